"""The proposer protocol: given what the run knows, the next candidate (or none, with the reason)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol, runtime_checkable

from pydantic import SkipValidation

from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.problem import Problem, ProblemFacts
from tilecast.sandbox.schema import Cost, Document, EvaluationStatus
from tilecast.sandbox.source import Candidate
from tilecast.tools.model.base import CallJournal


class Tried(Document):
    """One candidate that the run has dealt with, as proposers and forecasters see it."""

    candidate: Candidate
    status: EvaluationStatus | None
    """None if it was skipped by the forecaster."""
    reason: str = ""
    latency_ms: float | None = None
    speedup: float | None = None
    fraction_of_light: float | None = None
    limits: str = ""
    """What limits the kernel, where a profile or evidence says so."""
    note: str = ""
    """What its proposer said it changed."""


class ProposalContext(Document):
    """Everything a proposer may use. Fixed parts first; then what the run has learned so far."""

    problem: Problem
    facts: ProblemFacts
    device: DeviceFacts
    language: str
    baseline_name: str
    baseline_ms: float | None
    floor_ms: float | None
    start: Candidate | None
    """The kernel the user gave, if any."""
    tried: Annotated[Sequence[Tried], SkipValidation] = ()
    """In the order judged; in a run a view of its log, which is not copied."""
    pending: list[Candidate] = []
    """Proposed before and not yet dealt with (in flight, or waiting after a resume): never proposed again."""


class ProposalRequest(Document):
    """The ``index``-th proposal of a run: same index, seed and context give the same request key."""

    index: int
    seed: int
    parent: Candidate | None
    """The archive's choice to build on; None asks for a fresh start."""
    seconds_left: float | None = None
    """What is left of the run's time: a paid question gives up after that. It is no part of the question."""


class Proposal(Document):
    """A candidate, or none with the reason (an empty answer, a space that is used up)."""

    candidate: Candidate | None
    reason: str = ""
    parent_sha256: str | None = None
    origin: str = ""
    """``builtin``, ``replay`` or the model's name."""
    note: str = ""
    """What the proposer says it changed, one line."""
    cost: Cost = Cost()
    prompt: str = ""
    reply: str = ""
    exhausted: bool = False
    """True when this proposer will never have another one."""


class Proposer(Protocol):
    """One source of candidates; `propose` may be called from several threads at once."""

    @property
    def name(self) -> str: ...

    @property
    def costs_money(self) -> bool: ...

    def propose(self, request: ProposalRequest, context: ProposalContext, journal: CallJournal) -> Proposal:
        """The next candidate.

        Raises:
            BudgetRefused: if asking would not fit in the budget.
            EnvironmentFailure: if a provider is down.
        """
        ...


@runtime_checkable
class PoolProposer(Protocol):
    """A proposer that can lay many candidates before a forecaster at once; those chosen are then claimed."""

    def pool(self, request: ProposalRequest, context: ProposalContext, limit: int) -> list[Candidate]:
        """Up to ``limit`` candidates that were not proposed yet: neighbours of the best, and a spread over the rest."""
        ...

    def claim(self, candidate: Candidate, request: ProposalRequest, context: ProposalContext) -> Proposal:
        """Turn one of :meth:`pool` into the proposal of this request; it will not be offered again."""
        ...
