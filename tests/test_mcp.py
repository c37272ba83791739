"""The SDK's own client against the server over stdio: lists the tools, uses them, meets the limits."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tilecast.agent.cli.app import app

anyio = pytest.importorskip("anyio")
pytest.importorskip("mcp.client.client", reason="the protocol's SDK is not installed")
from mcp.client.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

TESTS = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    shutil.copytree(TESTS / "data" / "tiny", place)
    return place / "scale"


def talk(folder: Path, with_client: Callable[[Client], Awaitable[None]], *more: str) -> None:
    """Start the server in ``folder`` and let a client talk to it."""
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(TESTS / "loop_parts.py"), "mcp", *more],
        env=dict(os.environ),
        cwd=str(folder),
    )

    async def main() -> None:
        with anyio.fail_after(60):
            async with Client(server) as client:
                await with_client(client)

    anyio.run(main)


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


def test_a_client_forecasts_verifies_and_measures(folder: Path) -> None:
    async def use(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"forecast", "verify", "bench", "tune", "optimize", "show"} <= set(tools)
        assert tools["bench"].input_schema["required"] == ["path"] and "write_file" not in tools
        early = await client.call_tool("verify", {"path": "kernel.py"})
        assert early.is_error and "no problem is loaded" in text_of(early)
        await client.call_tool("load_problem", {"path": "."})
        forecast = await client.call_tool("forecast", {"path": "kernel.py"})
        assert "not a measurement" in text_of(forecast) and forecast.structured_content["schema"] == 1
        verified = await client.call_tool("verify", {"path": "kernel.py"})
        assert verified.structured_content["status"] == "PASSED"
        measured = await client.call_tool("bench", {"path": "kernel.py", "config": {"block": 256, "warps": 2}})
        assert "1.6x [1.57, 1.63]" in text_of(measured) and "evals 2 of 40" in text_of(measured)
        wrong = await client.call_tool("bench", {"path": "candidates/wrong.py"})
        assert not wrong.is_error and wrong.structured_content["status"] == "INCORRECT_NUMERICAL"
        broken = await client.call_tool("bench", {})
        assert broken.is_error and "path" in text_of(broken)

    talk(folder, use)


def test_limits_hold_for_a_client(folder: Path) -> None:
    async def use(client: Client) -> None:
        tuned = await client.call_tool("tune", {"path": "kernel.py", "max_evals": 3, "save_to": "tuned.py"})
        assert not tuned.is_error and "evals 3 of 4" in text_of(tuned)
        assert "best of the run" in text_of(await client.call_tool("show", {"candidate": "best"}))
        refused = await client.call_tool("optimize", {"max_evals": 5, "proposals": "builtin"})
        assert refused.is_error and "budget does not allow" in text_of(refused)
        outside = await client.call_tool("tune", {"path": "kernel.py", "max_evals": 1, "save_to": "reference.py"})
        assert outside.is_error and "reference" in text_of(outside) and "evals 3 of 4" in text_of(outside)

    before = (folder / "reference.py").read_bytes()
    talk(folder, use, ".", "--max-evals", "4")
    assert (folder / "tuned.py").is_file() and (folder / "reference.py").read_bytes() == before


def test_json_tells_what_is_served_and_serves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["mcp", "--json", "--max-evals", "7"])
    document = json.loads(done.stdout)
    assert document["schema"] == 1 and document["ledger"]["evals"]["limit"] == 7
    assert {"forecast", "verify", "bench"} <= {tool["name"] for tool in document["tools"]}
