"""One session at work: its log, tools, model and budget together, and what happens when the user interrupts or is asked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilecast.agent.budget import METERS, Amount, Ledger, Limits, MeterName
from tilecast.agent.chat import events as ev
from tilecast.agent.chat.claims import find_claims, marked
from tilecast.agent.chat.face import Face
from tilecast.agent.chat.known import (
    FRESH_MESSAGES,
    RESULT_CHARACTERS,
    facts_text,
    ground_of,
    language_for,
    standing,
    system_message,
)
from tilecast.agent.chat.paying import SessionJournal, WorkClock, charge_lost
from tilecast.agent.chat.sessions import SessionLog
from tilecast.agent.config import Settings
from tilecast.agent.engine import open_record
from tilecast.agent.report import wording
from tilecast.agent.toolbox.base import Fact, Hooks, Refusal, ToolResult
from tilecast.agent.toolbox.box import Toolbox
from tilecast.agent.toolbox.workbench import Workbench
from tilecast.sandbox.errors import TilecastError
from tilecast.sandbox.source import read_literal, source_sha256, with_config
from tilecast.tools.model.base import BudgetRefused, StreamingChatModel
from tilecast.tools.model.client import OpenAIChatModel


def check_price(model: StreamingChatModel | None) -> None:
    """Refuse a limit in dollars where they cannot be counted.

    Raises:
        Refusal: naming the model and the remedy.
    """
    if isinstance(model, OpenAIChatModel) and model.settings.price_known() is None:
        raise Refusal(
            f"the price of {model.name} is unknown, so dollars cannot be counted; set it in tilecast.toml under "
            f'[models."{model.name}".price], or limit tokens'
        )


@dataclass
class Permissions:
    """What the user has allowed for this session."""

    yes: bool = False
    always: bool = False


@dataclass
class Chat:
    """A session that is open.

    Attributes:
        log: where it is kept.
        face: who it is shown to.
        settings: the resolved configuration.
        home: the user's tilecast folder.
        root: the working folder.
        model: who answers; None without a key, and then why.
        no_model: what would be needed for a model.
        permissions: what the user has allowed.
    """

    log: SessionLog
    face: Face
    settings: Settings
    home: Path
    root: Path
    model: StreamingChatModel | None = None
    no_model: str = ""
    permissions: Permissions = field(default_factory=Permissions)

    def __post_init__(self) -> None:
        """Take the session up where its log ends; what was in flight then is charged."""
        lost = charge_lost(self.log)
        self.clock = WorkClock()
        self.ledger = Ledger(self.log.state.limits, self.clock, self.log.state.spent)
        hooks = Hooks(
            self.face.step, self.face.say, self.confirm, self.raise_limit, self.face.progress, self._note_reserved
        )
        self.work = Workbench(self.root, self.settings, self.home, self.ledger, hooks)
        self.box = Toolbox(self.work, self.log.state.facts)
        self.journal = SessionJournal(self.log, self.ledger, self.raise_limit)
        self.interrupted = threading.Event()
        self._turn_began = self.ledger.spent
        self._told = ""
        if lost.evals or lost.tokens:
            tokens = f"{lost.tokens} tokens, " if lost.tokens else ""
            self.face.warn(
                f"in flight when the last process ended, and charged as set aside: {tokens}{lost.evals} evaluation(s), "
                f"{lost.gpu_seconds:.3g} device seconds"
            )

    def load_problem(self, path: str) -> None:
        """Load a problem, and remember it.

        Raises:
            ProblemError: if it is none.
        """
        problem = self.work.load(path)
        self.log.append(ev.Chosen(what="problem", value=str(Path(problem.path).absolute())))
        self.log.set_system(system_message(self.settings.language or language_for(problem, self.settings.device)))
        kernel = f", kernel {self.work.files.name_of(problem.kernel)}" if problem.kernel else ""
        self.face.say(f"problem {problem.name}: {self.work.files.name_of(problem.path)}{kernel}")

    def call(self, tool: str, arguments: Mapping[str, Any], call_id: str | None = None) -> ToolResult:
        """Use a tool, recorded before and after; the result is shown."""
        self.face.calling(tool, arguments)
        self.log.append(ev.StepStarted(call_id=call_id, tool=tool, arguments=dict(arguments)))
        with self.clock.working():
            result = self.box.call(tool, arguments)
        if tool == "load_problem" and result.ok:
            self.log.append(ev.Chosen(what="problem", value=str(result.document["path"])))
        self.log.append(ev.StepDone(call_id=call_id, result=result))
        self.face.result(result)
        return result

    def begin_turn(self, text: str) -> None:
        """A message of the user's; the conversation is shortened first if it has become long."""
        self.interrupted.clear()
        self.work.stopping.clear()
        self._turn_began = self.ledger.spent
        self.shorten()
        context = standing(self.box)
        self.log.append(ev.UserSaid(text=text, context="" if context == self._told else context))
        self._told = context

    def begin_step(self) -> None:
        """A command of the user's."""
        self.interrupted.clear()
        self.work.stopping.clear()
        self._turn_began = self.ledger.spent

    def shorten(self) -> None:
        """Replace the older part of a long conversation by the facts."""
        state, most = self.log.state, self.settings.chat.compact_tokens
        if state.talk.tokens <= most:
            return
        state.talk.shorten_results(RESULT_CHARACTERS, FRESH_MESSAGES)
        if state.talk.tokens > most * 3 // 4:
            self.log.append(ev.Compacted(facts=facts_text(self.box, state), keep_turns=self.settings.chat.keep_turns))
            self.face.say("the older part of the conversation was replaced by its facts, to save tokens")

    def trim(self) -> None:
        """Cut long results of tools within a turn that has become long."""
        if self.log.state.talk.tokens > self.settings.chat.compact_tokens:
            self.log.state.talk.shorten_results(RESULT_CHARACTERS, FRESH_MESSAGES)

    def mark(self, text: str) -> str:
        """A text with its unfounded figures marked."""
        return marked(text, ground_of(self.box))

    def check_claims(self, text: str) -> None:
        """Hold what was said about speed against the record, tell the user, and the model with the next message."""
        wrong = [claim for claim in find_claims(text, ground_of(self.box)) if claim.trouble]
        if not wrong:
            return
        told = ", ".join(f'"{claim.text}"' for claim in wrong)
        self.face.warn(f"claim check: {told}: no measurement of this session or of a run shown in it says so")
        self.log.append(
            ev.Noted(text=f"A program marked figures of your last answer that no measurement supports: {told}")
        )

    def forget(self) -> None:
        """The model has to be told anew where things stand."""
        self._told = ""

    def text_of(self, fact: Fact) -> str:
        """The very text that a fact is about.

        Raises:
            Refusal: if it is neither in the file that it was read from nor in the record.
        """
        try:
            texts = [self.work.files.read(fact.candidate)]
        except Refusal:
            texts = []
        texts += [change.after for change in self.log.state.changes if change.path == fact.candidate]
        for text in texts:
            source = with_config(text, fact.config) if read_literal(text, "CONFIG") is not None else text
            if source_sha256(source) == fact.source_sha256:
                return source
        record = open_record(self.settings.database_url, self.home)
        try:
            return record.text(fact.source_sha256)
        except KeyError:
            raise Refusal(f"{fact.candidate} was changed since it was measured; measure it again") from None
        finally:
            record.close()

    def stop(self) -> None:
        """Stop what is going on (from a signal handler's thread)."""
        self.interrupted.set()
        if self.model is not None:
            self.model.interrupt()
        self.work.stop()

    def confirm(self, question: str) -> bool:
        """Before an expensive step."""
        if self.permissions.yes or self.permissions.always:
            self.face.say(f"{question}; allowed before")
            return True
        answer = self.face.ask(f"{question}. Do it?", "y/N/always").strip().lower()
        self.permissions.always = self.permissions.always or answer in ("a", "always")
        return answer in ("y", "yes", "a", "always")

    def raise_limit(self, refused: BudgetRefused) -> bool:
        """At a limit: pause and ask. True if it was raised."""
        meter = next(name for name in METERS if name == refused.meter)
        limit = self.ledger.limits.of(meter)
        self.face.warn(f"paused: the limit is reached: {refused}")
        answer = self.face.ask(f"new limit for {meter} (now {limit:g}), or Enter to stop", "number").strip()
        if not answer:
            return False
        try:
            self.set_limit(meter, float(answer))
        except (ValueError, Refusal) as error:
            self.face.warn(f"{answer!r}: {error}")
            return False
        return True

    def set_limit(self, meter: MeterName, value: float | None) -> None:
        """Change one limit.

        Raises:
            ValueError: if it is not above 0.
            Refusal: for dollars that cannot be counted.
        """
        if meter == "usd" and value is not None:
            check_price(self.model)
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{meter}={value:g}: a limit is a number above 0")
        limits: Limits = replace(self.ledger.limits, **{meter: value})
        self.ledger.limits = limits
        self.log.append(ev.LimitsSet(limits=limits.as_dict()))

    def money_line(self) -> str:
        """What the turn took, and the session so far against its limits."""
        before, now = self._turn_began, self.ledger.spent
        usd = None if now.usd is None or before.usd is None else now.usd - before.usd
        turn = Amount(now.evals - before.evals, now.gpu_seconds - before.gpu_seconds, now.tokens - before.tokens, usd)
        money = "$?" if turn.usd is None else f"${turn.usd:.4f}"
        return (
            f"turn: {turn.tokens} tokens, {money}, {turn.gpu_seconds:.1f} device s, {turn.evals} evals"
            f" | session: {wording.ledger(self.ledger.document())}"
        )

    def close(self) -> None:
        """End every process of the session."""
        try:
            self.work.close_device()
        except TilecastError as error:
            self.face.warn(str(error))
        self.log.close()

    def _note_reserved(self, what: str, amount: Amount) -> None:
        self.log.append(ev.StepReserved(evals=amount.evals, gpu_seconds=amount.gpu_seconds))
