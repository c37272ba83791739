"""The state of a session, folded from its events; fresh and resumed sessions take the same path."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilecast.agent.budget import Amount, Limits
from tilecast.agent.chat import events as ev
from tilecast.agent.record.events import CallAnswered, CallReleased
from tilecast.agent.record.fold import amount_of
from tilecast.agent.toolbox.base import Fact, FileChange, ToolResult
from tilecast.tools.model.base import ChatAnswer, Usage
from tilecast.tools.model.conversation import Conversation

CUT_OFF = "\n[The user stopped the answer here.]"


@dataclass
class SessionState:
    """Where a session stands."""

    talk: Conversation
    facts: list[Fact] = field(default_factory=list)
    changes: list[FileChange] = field(default_factory=list)
    spent: Amount = field(default_factory=Amount)
    limits: Limits = field(default_factory=Limits)
    chosen: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    title: str = ""
    turns: int = 0
    answered: int = 0
    calls: int = 0
    turn_open: bool = False
    open_calls: dict[str, Usage] = field(default_factory=dict)
    open_step: ev.StepStarted | None = None
    open_reserved: Amount = field(default_factory=Amount)
    note: str = ""
    last_result: ToolResult | None = None
    said: list[tuple[str, str]] = field(default_factory=list)
    """The transcript for people: who, and what."""

    def apply(self, event: ev.Event) -> None:
        """Take in one event."""
        if isinstance(event, ev.Opened):
            self.folder = self.folder or event.folder
            self.limits = Limits(**event.limits)
        elif isinstance(event, ev.Chosen):
            self.chosen[event.what] = event.value
        elif isinstance(event, ev.LimitsSet):
            self.limits = Limits(**event.limits)
        elif isinstance(event, ev.CallReserved | CallAnswered | CallReleased):
            self._call(event)
        elif isinstance(event, ev.StepStarted | ev.StepReserved | ev.StepDone | ev.StepLost | ev.Undone):
            self._step(event)
        else:
            self._conversation(event)

    def _call(self, event: ev.CallReserved | CallAnswered | CallReleased) -> None:
        if isinstance(event, ev.CallReserved):
            self.calls += 1
            self.open_calls[event.key] = event.estimate
            return
        self.open_calls.pop(event.key, None)
        if isinstance(event, CallReleased):
            self.spent = self.spent + amount_of(event.charged)
            return
        self.spent = self.spent + amount_of(event.answer.usage)
        self.talk.hear(event.answer)
        if event.answer.text:
            self.said.append(("tilecast", event.answer.text))

    def _step(self, event: ev.StepStarted | ev.StepReserved | ev.StepDone | ev.StepLost | ev.Undone) -> None:
        if isinstance(event, ev.StepStarted):
            self.open_step, self.open_reserved = event, Amount()
        elif isinstance(event, ev.StepReserved):
            self.open_reserved = self.open_reserved + Amount(evals=event.evals, gpu_seconds=event.gpu_seconds)
        elif isinstance(event, ev.StepLost):
            self.spent = self.spent + self.open_reserved
            self.open_reserved = Amount()
        elif isinstance(event, ev.Undone):
            self.changes.pop()
        else:
            self._done(event)

    def _done(self, event: ev.StepDone) -> None:
        result, charged = event.result, event.result.charged
        self.open_step, self.open_reserved = None, Amount()
        self.spent = self.spent + Amount(charged.evals, charged.gpu_seconds, charged.tokens, charged.usd)
        self.facts += result.facts
        if result.change is not None:
            self.changes.append(result.change)
        if event.call_id is not None:
            self.talk.result(event.call_id, result.for_model)
        self.last_result = result
        self.said.append((result.tool, result.summary))

    def _conversation(self, event: ev.Event) -> None:
        if isinstance(event, ev.UserSaid):
            self.turns, self.turn_open = self.turns + 1, True
            self.title = self.title or event.text.splitlines()[0][:60]
            self.said.append(("you", event.text))
            parts = [f"({self.note})" if self.note else "", event.context, event.text]
            self.talk.say("\n\n".join(part for part in parts if part))
            self.note = ""
        elif isinstance(event, ev.Partial):
            self.talk.hear(ChatAnswer(text=event.text + CUT_OFF))
            self.said.append(("tilecast", event.text + CUT_OFF))
        elif isinstance(event, ev.Noted) and event.at_once:
            self.talk.say(event.text)
        elif isinstance(event, ev.Noted):
            self.note = f"{self.note}; {event.text}" if self.note else event.text
        elif isinstance(event, ev.Compacted):
            self.talk.compact(event.facts, event.keep_turns)
        elif isinstance(event, ev.Cleared):
            self.talk = Conversation(self.talk.messages[0]["content"])
        elif isinstance(event, ev.TurnEnded):
            self.turn_open, self.open_step = False, None
            self.answered += 0 if event.why else 1
