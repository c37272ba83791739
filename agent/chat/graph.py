"""One turn as a LangGraph graph: START -> ask -> [act -> ask | repair -> ask | END], bounded.

The model may be wrong in any way: the session goes on. What it may do is held by the tools, not by it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypedDict

from tilecast import prompts
from tilecast.agent.chat import events as ev
from tilecast.agent.chat.chat import Chat
from tilecast.agent.toolbox.base import ToolResult
from tilecast.agent.turn_graph import Phase, turn_graph
from tilecast.sandbox.errors import TilecastError
from tilecast.tools.model.base import BudgetRefused, ChatAnswer, Delta, RequestCancelled
from tilecast.tools.model.conversation import ToolCall, tool_calls

SAME_CALL_AT_MOST = 2
"""How often the very same call is made in one turn; what it would find out is known."""


class TurnState(TypedDict):
    """Where a turn stands; what was said and done is in the session's log."""

    phase: Phase
    rounds: int
    repaired: bool
    why: str


@dataclass
class Turn:
    """Handed to every node: the session, and what this turn has done."""

    chat: Chat
    calls: Counter[str] = field(default_factory=Counter)
    problem: str = ""


def ask(state: TurnState, turn: Turn) -> TurnState:
    """Put the question, and show the answer as it comes."""
    chat, rounds = turn.chat, state["rounds"] + 1
    if rounds > chat.settings.chat.rounds:
        return _end(state, f"stopped after {chat.settings.chat.rounds} questions to the model in one turn")
    if chat.interrupted.is_set():
        return _end(state, "interrupted")
    chat.trim()
    try:
        answer = _stream(chat)
    except RequestCancelled:
        return _end(state, "interrupted")
    except BudgetRefused as refused:
        return _end(state, f"the budget does not allow another question: {refused}")
    except TilecastError as error:
        return _end(state, str(error))
    if answer.tool_calls:
        return {**state, "rounds": rounds, "phase": "act"}
    if answer.text.strip():
        return {**_end(state, ""), "rounds": rounds}
    return {**state, "rounds": rounds, "phase": "repair"}


def act(state: TurnState, turn: Turn) -> TurnState:
    """Make the calls of the last answer, in order; broken ones get an answer that says so."""
    chat, broken = turn.chat, ""
    last = ChatAnswer(text="", tool_calls=chat.log.state.talk.pending)
    for call in tool_calls(last, list(chat.box.tools)):
        if chat.interrupted.is_set():
            return _end(state, "interrupted")
        trouble = _call(turn, call)
        broken = broken or trouble
    if chat.interrupted.is_set():
        return _end(state, "interrupted")
    if not broken:
        return {**state, "phase": "ask"}
    turn.problem = broken
    return {**state, "phase": "repair"}


def repair(state: TurnState, turn: Turn) -> TurnState:
    """One chance to do better after a broken call or an empty answer."""
    what = turn.problem or "the answer was empty"
    if state["repaired"]:
        return _end(state, f"the model did not get it right at the second attempt either: {what}")
    note = prompts.render("chat_repair", empty=not turn.problem, problem=turn.problem)
    turn.chat.log.append(ev.Noted(text=note.strip(), at_once=True))
    turn.problem = ""
    return {**state, "phase": "ask", "repaired": True}


def run_turn(chat: Chat, text: str | None) -> str:
    """One turn to its end; gives why it ended early, empty if it was answered.

    Args:
        chat: the session.
        text: what the user said; None goes on with a turn that was cut off.
    """
    if text is not None:
        chat.begin_turn(text)
    phase: Phase = "act" if chat.log.state.talk.pending else "ask"
    begin: TurnState = {"phase": phase, "rounds": 0, "repaired": False, "why": ""}
    config: Any = {"recursion_limit": 3 * chat.settings.chat.rounds + 10}
    with chat.clock.working():
        ended = turn_graph(TurnState, Turn, (ask, act, repair)).invoke(begin, config, context=Turn(chat))
    why = str(ended["why"])
    chat.log.append(ev.TurnEnded(why=why))
    if why:
        chat.face.warn(why)
    return why


def _stream(chat: Chat) -> ChatAnswer:
    """Ask with the answer shown piece by piece; what had come of a stopped one is kept.

    Raises:
        RequestCancelled, BudgetRefused, TilecastError: as the model does.
    """
    assert chat.model is not None
    pieces: list[str] = []

    def show(delta: Delta) -> None:
        if delta.kind == "text":
            pieces.append(delta.text)
            chat.face.piece(delta.text, chat.mark)

    request = chat.log.state.talk.request(f"chat:{chat.log.state.calls}", chat.box.specs)
    try:
        answer = chat.model.stream(request, chat.journal, show)
    except RequestCancelled:
        chat.face.end_answer(chat.mark)
        if pieces:
            chat.log.append(ev.Partial(text="".join(pieces)))
        raise
    chat.face.end_answer(chat.mark)
    if answer.text:
        chat.check_claims(answer.text)
    return answer


def _call(turn: Turn, call: ToolCall) -> str:
    """Make one call; gives what was wrong with it as a call, if anything."""
    chat = turn.chat
    if call.problem:
        _answer(chat, call, call.problem)
        return call.problem
    same = f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"
    turn.calls[same] += 1
    if turn.calls[same] > SAME_CALL_AT_MOST:
        _answer(chat, call, f"{call.name} was called with these arguments before in this turn; its result is above")
        return ""
    wrong = chat.box.argument_trouble(call.name, call.arguments)
    if wrong:
        _answer(chat, call, wrong)
        return wrong
    chat.call(call.name, call.arguments, call.id)
    return ""


def _answer(chat: Chat, call: ToolCall, why: str) -> None:
    result = ToolResult(tool=call.name, ok=False, summary=why.splitlines()[0], text=why)
    chat.log.append(ev.StepDone(call_id=call.id, result=result))
    chat.face.result(result)


def _end(state: TurnState, why: str) -> TurnState:
    return {**state, "phase": "end", "why": why}
