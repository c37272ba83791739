"""What the graph carries (ids and the phase, nothing else) and what its nodes work with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypedDict

from tilecast.agent.budget import Ledger, MeterName
from tilecast.agent.flights import Flights
from tilecast.agent.knowledge import Knowledge
from tilecast.agent.policy import Rules
from tilecast.agent.pool import ProposalPool
from tilecast.agent.progress import Fleet, Listener, Progress, Said, Spent
from tilecast.agent.record.journal import RunJournal
from tilecast.agent.record.store import RunLog
from tilecast.sandbox.base import EvaluationOptions, Sandbox
from tilecast.sandbox.problem import Problem
from tilecast.tools.forecast.base import EvidenceProvider, Forecaster
from tilecast.tools.propose.base import Proposer


class LoopState(TypedDict):
    """Checkpointed by LangGraph. The record is the truth; this says only where the loop stands."""

    run: str
    phase: str
    index: int | None


@dataclass
class Services:
    """Fixed for a session, handed to every node."""

    log: RunLog
    ledger: Ledger
    journal: RunJournal
    knowledge: Knowledge
    pool: ProposalPool
    problem: Problem
    sandbox: Sandbox
    proposer: Proposer
    forecaster: Forecaster
    options: EvaluationOptions
    rules: Rules
    seed: int
    evidence: EvidenceProvider | None = None
    listeners: list[Listener] = field(default_factory=list)
    device_turn: Callable[[], AbstractContextManager[None]] = nullcontext
    """Held while the device works: one evaluation at a time, also among several runs."""
    interrupted: threading.Event = field(default_factory=threading.Event)
    interrupt_model: Callable[[], None] | None = None
    deferred: list[int] = field(default_factory=list)
    """Proposals whose question did not fit in the budget while others were in flight."""
    refused: MeterName | None = None
    """The meter that the last question of all did not fit in."""
    flights: Flights = field(default_factory=Flights)
    """Evaluations beside the loop, where the sandbox has several places."""
    last_fleet: Fleet | None = None

    def tell(self, progress: Progress) -> None:
        """Inform every listener."""
        for listener in self.listeners:
            listener(progress)

    def tell_spent(self) -> None:
        """Inform of the ledger, and warn of the marks passed."""
        document = self.ledger.document()
        self.tell(Spent(document, self.pool.in_flight))
        for meter in self.ledger.warnings():
            used = getattr(document, meter)
            # Rounded down: 99.6 % is not all of it. What is used up ends the run, which says so itself.
            if (percent := int(100 * used.spent / used.limit)) < 100:
                self.tell(Said(f"{percent} % of {meter} is spent ({used.spent:.4g} of {used.limit:.4g})", warning=True))
