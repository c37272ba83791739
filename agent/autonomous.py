"""``--strategy agent``: each proposal is a turn of a model with tools, which drafts, asks the forecaster and submits.

The engine around it is that of ``search``: what the forecaster confidently rules out is not measured (but for the audited
share), nothing goes beyond the ledger, and ``best`` comes from the record. A turn's questions are named by the proposal's
index, so that a resumed run finds their answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from pydantic import Field, ValidationError

from tilecast.agent.report import wording
from tilecast.agent.toolbox.arguments import Arguments
from tilecast.agent.turn_graph import Phase, turn_graph
from tilecast.prompts import fenced, render
from tilecast.sandbox.hardware import find_hardware, named_hardware
from tilecast.sandbox.schema import Cost
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext, Forecaster
from tilecast.tools.model.base import CallJournal, ChatAnswer, ChatModel
from tilecast.tools.model.conversation import Conversation, ToolCall, ToolSpec, tool_calls
from tilecast.tools.propose.base import Proposal, ProposalContext, ProposalRequest, Tried
from tilecast.tools.propose.prompting import messages_for, summary
from tilecast.tools.propose.replies import read_reply

ROUNDS = 12
"""Most questions of one turn."""


class Draft(Arguments):
    """Predict the speed of a draft without running it."""

    source: str = Field(description="The whole file.")


class Earlier(Arguments):
    """The source and the result of an earlier candidate."""

    name: str


class Submit(Arguments):
    """Hand in a candidate; the turn ends."""

    source: str = Field(description="The whole file, with class ModelNew.")
    change: str = Field(default="", description="One line: what is changed, and why it should be faster.")


class GiveUp(Arguments):
    """End the run: there is nothing left worth trying."""

    why: str


TOOLS: dict[str, type[Arguments]] = {
    "forecast": Draft,
    "read_candidate": Earlier,
    "submit": Submit,
    "give_up": GiveUp,
}


class TurnState(TypedDict):
    """Where a turn stands."""

    phase: Phase
    rounds: int
    repaired: bool


@dataclass
class Turn:
    """One proposal in the making, and what it cost."""

    model: ChatModel
    forecaster: Forecaster | None
    request: ProposalRequest
    context: ProposalContext
    journal: CallJournal
    talk: Conversation
    target: str | None = None
    answers: list[ChatAnswer] = field(default_factory=list)
    found: Candidate | None = None
    note: str = ""
    reason: str = ""
    exhausted: bool = False
    problem: str = ""


class AgentProposer:
    """Proposes by turns of a tool-calling model.

    Args:
        model: the model.
        forecaster: asked about drafts; None where it would cost money itself.
        target: GPU to forecast for, where it is not the device.
    """

    def __init__(self, model: ChatModel, forecaster: Forecaster | None, target: str | None = None) -> None:
        self._model, self._forecaster, self._target = model, forecaster, target

    @property
    def name(self) -> str:
        """The model's name."""
        return f"agent {self._model.name}"

    @property
    def costs_money(self) -> bool:
        """Tokens, always."""
        return True

    def propose(self, request: ProposalRequest, context: ProposalContext, journal: CallJournal) -> Proposal:
        """One turn.

        Raises:
            BudgetRefused, EnvironmentFailure, RequestCancelled: from the model.
        """
        _, task = messages_for(request, context)
        talk = Conversation(render("agent_system", rules=render("propose_system").strip()))
        talk.say(task["content"])
        turn = Turn(self._model, self._forecaster, request, context, journal, talk, self._target)
        begin: TurnState = {"phase": "ask", "rounds": 0, "repaired": False}
        _GRAPH.invoke(begin, {"recursion_limit": 4 * ROUNDS}, context=turn)
        return self._proposal(turn)

    def _proposal(self, turn: Turn) -> Proposal:
        prices = [answer.usage.usd for answer in turn.answers]
        known = [usd for usd in prices if usd is not None]
        parent = turn.request.parent
        return Proposal(
            candidate=turn.found,
            reason=turn.reason,
            parent_sha256=None if parent is None else parent.sha256,
            origin=self.name,
            note=turn.note,
            cost=Cost(
                seconds=sum(answer.seconds for answer in turn.answers),
                tokens=sum(answer.usage.tokens for answer in turn.answers),
                usd=sum(known) if len(known) == len(prices) else None,
            ),
            prompt="\n\n".join(f"[{m['role']}]\n{m['content']}" for m in turn.talk.messages[:2]),
            reply="\n\n".join(_told(message) for message in turn.talk.messages[2:]),
            exhausted=turn.exhausted,
        )


def ask(state: TurnState, turn: Turn) -> TurnState:
    """The next question of the turn."""
    if state["rounds"] >= ROUNDS:
        turn.reason = f"no candidate after {ROUNDS} questions in one turn"
        return {**state, "phase": "end"}
    request = turn.talk.request(f"agent:{turn.request.index}:{state['rounds']}", _specs())
    request = request.model_copy(update={"purpose": "propose", "deadline_s": turn.request.seconds_left})
    answer = turn.model.complete(request, turn.journal)
    turn.answers.append(answer)
    turn.talk.hear(answer)
    state = {**state, "rounds": state["rounds"] + 1}
    if answer.tool_calls:
        return {**state, "phase": "act"}
    parent = turn.request.parent
    reply = read_reply(answer.text, answer.finish_reason, None if parent is None else parent.source)
    if reply.source is not None:
        turn.found, turn.note = _named(turn, reply.source), reply.note
        return {**state, "phase": "end"}
    turn.problem = f"neither a tool call nor a usable file: {reply.detail}"
    return {**state, "phase": "repair"}


def act(state: TurnState, turn: Turn) -> TurnState:
    """Make the calls of the last answer."""
    turn.problem = ""
    for call in tool_calls(turn.answers[-1], list(TOOLS)):
        text, trouble = _do(turn, call)
        turn.problem = turn.problem or trouble
        turn.talk.result(call.id, text)
        if turn.found is not None or turn.exhausted:
            return {**state, "phase": "end"}
    return {**state, "phase": "repair" if turn.problem else "ask"}


def repair(state: TurnState, turn: Turn) -> TurnState:
    """One chance to do better."""
    if state["repaired"]:
        turn.reason = f"not right at the second attempt either: {turn.problem}"
        return {**state, "phase": "end"}
    turn.talk.say(render("chat_repair", empty=False, problem=turn.problem).strip())
    return {**state, "phase": "ask", "repaired": True}


_GRAPH = turn_graph(TurnState, Turn, (ask, act, repair))


def _specs() -> list[ToolSpec]:
    specs = []
    for name, model in TOOLS.items():
        schema = model.model_json_schema()
        description = schema.pop("description", "")
        schema.pop("title", None)
        specs.append(ToolSpec(name=name, description=description, parameters=schema))
    return specs


def _do(turn: Turn, call: ToolCall) -> tuple[str, str]:
    """What a call gives, and what was wrong with it as a call."""
    if call.problem:
        return call.problem, call.problem
    try:
        asked = TOOLS[call.name].model_validate(call.arguments)
    except ValidationError as error:
        first = error.errors()[0]
        text = f"{call.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        return text, text
    if isinstance(asked, Draft):
        return _forecast(turn, asked.source), ""
    if isinstance(asked, Earlier):
        return _earlier(turn.context.tried, asked.name), ""
    if isinstance(asked, GiveUp):
        turn.exhausted, turn.reason = True, asked.why or "the agent gave up"
        return "The run ends.", ""
    assert isinstance(asked, Submit)
    reply = read_reply(fenced(asked.source, "python"), "stop", None)
    if reply.source is None:
        return f"not handed in: {reply.detail}", f"submit: {reply.detail}"
    turn.found, turn.note = _named(turn, reply.source), asked.change
    return "Handed in.", ""


def _named(turn: Turn, source: str) -> Candidate:
    return Candidate(name=f"{turn.context.language}_{turn.request.index:03d}", source=source)


def _forecast(turn: Turn, source: str) -> str:
    if turn.forecaster is None:
        return "There is no forecaster in this run; submit the draft to have it measured."
    context, device = turn.context, turn.context.device
    times = [tried.latency_ms for tried in context.tried if tried.latency_ms is not None]
    found = turn.forecaster.forecast(
        [_named(turn, source)],
        ForecastContext(
            problem=context.problem,
            facts=context.facts,
            hardware=named_hardware(turn.target) if turn.target else find_hardware(device.name),
            on_cpu=device.kind == "cpu",
            baseline_name=context.baseline_name,
            baseline_ms=context.baseline_ms,
            incumbent_ms=min(times, default=None),
            tried=context.tried,
        ),
    )[0]
    return f"{wording.forecast_text(found)}; {found.why}. A forecast, not a measurement."


def _earlier(tried: Sequence[Tried], name: str) -> str:
    for item in tried:
        if item.candidate.name == name:
            return f"{summary(item)}\n{fenced(item.candidate.source, 'python')}"
    return f"there is no candidate {name!r}; there are {', '.join(item.candidate.name for item in tried) or 'none'}"


def _told(message: dict[str, Any]) -> str:
    calls = "".join(f"\n{c['function']['name']}({c['function']['arguments']})" for c in message.get("tool_calls", []))
    return f"[{message['role']}]\n{message['content']}{calls}"
