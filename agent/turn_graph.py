"""A model's turn with tools as a LangGraph graph: START -> ask -> [act | repair | END], each node naming the next by the phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

Phase = Literal["ask", "act", "repair", "end"]


def next_of(state: Mapping[str, Any]) -> Literal["ask", "act", "repair", "__end__"]:
    """Where a turn goes on."""
    phase: Phase = state["phase"]
    return "__end__" if phase == "end" else phase


def turn_graph(state: type[Any], turn: type[Any], nodes: Sequence[Callable[[Any, Any], Any]]) -> Any:
    """The graph, compiled.

    Args:
        state: a typed dict with a ``phase``.
        turn: the context that every node is handed beside the state.
        nodes: functions called ``ask``, ``act`` and ``repair``, from state and turn to the changed state.
    """
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(state, context_schema=turn)
    for node in nodes:
        graph.add_node(node.__name__, _with_turn(node))
    for place in (START, *(node.__name__ for node in nodes)):
        graph.add_conditional_edges(place, next_of, ["ask", "act", "repair", END])
    return graph.compile()


def _with_turn(node: Callable[[Any, Any], Any]) -> Any:
    def step(state: Any, runtime: Runtime[Any]) -> Any:
        return node(state, runtime.context)

    return step
