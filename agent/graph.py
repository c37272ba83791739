"""The loop as a LangGraph graph: START -> propose -> forecast -> [skip | verify -> benchmark] -> decide -> {propose, END}.

Where the sandbox evaluates several candidates at once, verify only begins an evaluation, and propose -> land takes one up that
is done. Nodes and edges only. The checkpoint holds ids and the phase; a run is taken up from the record, with or without it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from tilecast.agent import nodes
from tilecast.agent.state import LoopState, Services

ENDLESS = 2**31 - 1
"""Steps are limited by the ledger, not by the graph."""
CHECKPOINT_NAME = "checkpoint.sqlite"

Node = Callable[[LoopState, Services], LoopState]


class LatestOnly(SqliteSaver):
    """Keeps the newest checkpoint of a run: the way there is in the record, and a long run must not fill the disk."""

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint and drop those before it."""
        stored = super().put(config, checkpoint, metadata, new_versions)
        with self.cursor() as cursor:
            for table in ("checkpoints", "writes"):
                cursor.execute(
                    f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_id < ?",
                    (config["configurable"]["thread_id"], checkpoint["id"]),
                )
        return stored


def after_enter(state: LoopState) -> Literal["propose", "forecast", "verify", "decide"]:
    """Where the record says that the run stands."""
    return state["phase"]  # type: ignore[return-value]


def after_propose(state: LoopState) -> Literal["forecast", "land", "verify", "decide", "__end__"]:
    """A proposal came, an evaluation beside the loop is done, a candidate of an earlier session waits, or the run is over."""
    return "__end__" if state["phase"] == "stopped" else state["phase"]  # type: ignore[return-value]


def after_forecast(state: LoopState) -> Literal["verify", "decide"]:
    """The candidate deserves the device, or not."""
    return "verify" if state["phase"] == "verify" else "decide"


def after_verify(state: LoopState) -> Literal["benchmark", "decide", "propose", "__end__"]:
    """Right, rejected, begun beside the loop, or not begun because it does not fit in the budget."""
    return "__end__" if state["phase"] == "stopped" else state["phase"]  # type: ignore[return-value]


def build() -> StateGraph[LoopState, Services, LoopState, LoopState]:
    """The graph, not compiled."""
    graph = StateGraph(LoopState, context_schema=Services)
    for name in ("enter", "propose", "forecast", "verify", "benchmark", "land", "decide"):
        graph.add_node(name, _with_services(getattr(nodes, name)))
    graph.add_edge(START, "enter")
    graph.add_conditional_edges("enter", after_enter, ["propose", "forecast", "verify", "decide"])
    graph.add_conditional_edges("propose", after_propose, ["forecast", "land", "verify", "decide", END])
    graph.add_conditional_edges("forecast", after_forecast, ["verify", "decide"])
    graph.add_conditional_edges("verify", after_verify, ["benchmark", "decide", "propose", END])
    graph.add_edge("benchmark", "decide")
    graph.add_edge("land", "decide")
    graph.add_edge("decide", "propose")
    return graph


def run(services: Services, folder: Path) -> None:
    """Go round until the record says stopped; the checkpoint is kept in ``folder``.

    Raises:
        TilecastError: what the nodes raise (a broken machine, an invalid reference, a provider that is down).
    """
    connection = sqlite3.connect(folder / CHECKPOINT_NAME, check_same_thread=False)
    # Losing a checkpoint costs nothing, the record is what has to be durable.
    connection.execute("PRAGMA synchronous=OFF")
    try:
        app = build().compile(checkpointer=LatestOnly(connection))
        begin: LoopState = {"run": services.log.run_id, "phase": "enter", "index": None}
        config: Any = {"configurable": {"thread_id": services.log.run_id}, "recursion_limit": ENDLESS}
        app.invoke(begin, config, context=services, durability="sync")
    finally:
        connection.close()


def _with_services(node: Node) -> Any:
    def step(state: LoopState, runtime: Runtime[Services]) -> LoopState:
        return node(state, runtime.context)

    return step
