"""The tools over the Model Context Protocol: the same ones, the same ledger and limits, for whatever agent somebody has."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from tilecast.agent.budget import Ledger, Limits
from tilecast.agent.config import Settings, home
from tilecast.agent.report import wording
from tilecast.agent.toolbox.base import Hooks, ToolResult
from tilecast.agent.toolbox.box import Toolbox
from tilecast.agent.toolbox.workbench import Workbench
from tilecast.tools.model.conversation import ToolSpec

SERVED = ("load_problem", "device", "forecast", "verify", "bench", "tune", "optimize", "show")
INSTRUCTIONS = (
    "tilecast judges and optimizes GPU kernels. Load a problem, then forecast (free, never a measurement), verify, bench "
    "(measured, with an interval), tune or optimize candidates: Python files with class ModelNew below the working "
    "folder. The reference is never changed. Every result says what is left of the budget."
)


class Served:
    """One server: a toolbox whose calls run one at a time in a thread.

    Args:
        settings: the resolved configuration.
        limits: what may be spent in all.
        root: the working folder.
    """

    def __init__(self, settings: Settings, limits: Limits, root: Path) -> None:
        # A client asks its own user before it calls a tool; the limits hold in any case.
        hooks = Hooks(say=_log, note=_log)
        self.ledger = Ledger(limits, time.monotonic)
        self.box = Toolbox(Workbench(root, settings, home(), self.ledger, hooks))
        self._turn = threading.Lock()

    def server(self) -> Server[Any]:
        """The protocol's end of it."""
        return Server("tilecast", instructions=INSTRUCTIONS, on_list_tools=self._list, on_call_tool=self._call)

    async def run(self) -> None:
        """Serve on stdin and stdout until the client leaves; every process of the device ends with it."""
        server = self.server()
        try:
            async with stdio_server() as (reader, writer):
                await server.run(reader, writer, server.create_initialization_options())
        finally:
            self.box.work.close_device()

    def document(self) -> dict[str, Any]:
        """What is served, and within which budget."""
        tools = [{"name": s.name, "description": s.description, "input_schema": s.parameters} for s in self._specs()]
        return {
            "schema": 1,
            "server": "tilecast",
            "instructions": INSTRUCTIONS,
            "tools": tools,
            "ledger": self.ledger.document().model_dump(mode="json"),
        }

    def _specs(self) -> list[ToolSpec]:
        return [spec for spec in self.box.specs if spec.name in SERVED]

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=s.name, description=s.description, input_schema=s.parameters) for s in self._specs()]
        )

    async def _call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        work = partial(self._work, params.name, params.arguments or {})
        try:
            result = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            self.box.work.stop()
            raise
        text = f"{result.for_model}\n[spent: {wording.ledger(self.ledger.document())}]"
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=result.document or None,
            is_error=not result.ok and not result.facts,
        )

    def _work(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        with self._turn:
            self.box.work.stopping.clear()
            if name not in SERVED:
                return ToolResult(tool=name, ok=False, summary=f"no tool {name!r}; there are {', '.join(SERVED)}")
            return self.box.call(name, arguments)


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
