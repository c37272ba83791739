"""The state of a run, folded from its events. A fresh and a resumed run take the same path through here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tilecast.agent.archive import Archive
from tilecast.agent.budget import Amount
from tilecast.agent.record.candidate import REJECTED, CandidateState, Health
from tilecast.agent.record.events import (
    BaselinesDone,
    CallAnswered,
    CallLost,
    CallReleased,
    CallReserved,
    Chosen,
    EvaluationDone,
    EvaluationLeft,
    EvaluationLost,
    EvaluationStarted,
    Event,
    Failed,
    Forecasted,
    Judged,
    PreflightDone,
    ProposalAsked,
    Proposed,
    SessionOpened,
    Stopped,
    Stored,
    Verified,
)
from tilecast.sandbox.schema import CandidateCounts, EvaluationStatus
from tilecast.tools.model.base import Usage

__all__ = ["CandidateState", "RunState", "amount_of"]


@dataclass
class RunState:
    """Everything that the log says."""

    seq: int = 0
    elapsed_s: float = 0.0
    sessions: int = 0
    limits: dict[str, float | None] = field(default_factory=dict)
    preflight: PreflightDone | None = None
    baselines: BaselinesDone | None = None
    spent: Amount = field(default_factory=Amount)
    candidates: dict[int, CandidateState] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    """Indices without an answer."""
    arrived: set[int] = field(default_factory=set)
    """Indices answered and not judged."""
    next_index: int = 0
    """Number of the next proposal to ask for."""
    open_calls: dict[str, Usage] = field(default_factory=dict)
    answered_seq: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    lost_calls: int = 0
    by_canonical: dict[str, int] = field(default_factory=dict)
    by_sha256: dict[str, int] = field(default_factory=dict)
    """The first candidate with a source."""
    archive: Archive = field(default_factory=Archive)
    health: Health = field(default_factory=Health)
    judged: list[int] = field(default_factory=list)
    """Indices in the order in which they were judged."""
    whole: deque[int] | None = None
    """Indices whose results are held with all their details; None is all of them."""
    best: int | None = None
    since_best: int = 0
    """Evaluations judged since the best one changed."""
    barren: int = 0
    """Proposals in a row that led to no evaluation."""
    exhausted: bool = False
    stopped: Stopped | None = None
    failed: Failed | None = None
    evaluated: int = 0
    evaluated_gpu_s: float = 0.0
    counts: CandidateCounts = field(default_factory=CandidateCounts)

    def apply(self, stored: Stored) -> None:
        """Fold one event in."""
        self.seq = stored.seq
        self.elapsed_s = max(self.elapsed_s, stored.elapsed_s)
        event = stored.event
        if isinstance(event, SessionOpened):
            self.stopped = self.failed = None
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event, stored.seq)

    def keep_whole(self, count: int) -> None:
        """From now on hold details for the best and the last ``count`` judged candidates only; all of them are in the record."""
        self.whole = deque(maxlen=count)
        for index in self.judged:
            self._lighten(index)

    def _lighten(self, newest: int) -> None:
        if self.whole is None:
            return
        oldest = self.whole[0] if len(self.whole) == self.whole.maxlen else None
        self.whole.append(newest)
        if oldest is not None and oldest != self.best:
            self.candidates[oldest].lighten()

    def candidate(self, index: int) -> CandidateState:
        """The state of one proposal, made on first use."""
        return self.candidates.setdefault(index, CandidateState(index))

    @property
    def unanswered(self) -> list[CandidateState]:
        """Asked for, and nothing came yet; in order."""
        return [self.candidates[index] for index in sorted(self.asked)]

    @property
    def unfinished(self) -> CandidateState | None:
        """The first candidate that has come and is not judged yet."""
        return self.unfinished_but(())

    def unfinished_but(self, others: Collection[int]) -> CandidateState | None:
        """The first one that has come, is not judged yet, and is none of ``others`` (those that are being evaluated)."""
        waiting = self.arrived.difference(others)
        return self.candidates[min(waiting)] if waiting else None

    def best_state(self) -> CandidateState | None:
        """The fastest verified and measured candidate."""
        return None if self.best is None else self.candidates[self.best]

    def _count(self, **more: int) -> None:
        current = self.counts
        self.counts = current.model_copy(update={k: getattr(current, k) + v for k, v in more.items()})


def amount_of(usage: Usage) -> Amount:
    """Tokens and dollars of a request as a ledger amount."""
    return Amount(tokens=usage.tokens, usd=usage.usd)


def _session(state: RunState, event: SessionOpened, seq: int) -> None:
    state.sessions, state.limits = event.number, event.limits


def _preflight(state: RunState, event: PreflightDone, seq: int) -> None:
    state.preflight = event
    state.spent += Amount(gpu_seconds=event.charged_gpu_s)


def _baselines(state: RunState, event: BaselinesDone, seq: int) -> None:
    state.baselines = event
    state.spent += Amount(gpu_seconds=event.charged_gpu_s)


def _call_reserved(state: RunState, event: CallReserved, seq: int) -> None:
    state.open_calls[event.key] = event.estimate


def _call_answered(state: RunState, event: CallAnswered, seq: int) -> None:
    state.open_calls.pop(event.key, None)
    state.answered_seq[event.key] = seq
    state.calls += 1
    state.spent += amount_of(event.answer.usage)


def _call_released(state: RunState, event: CallReleased, seq: int) -> None:
    state.open_calls.pop(event.key, None)
    state.spent += amount_of(event.charged)


def _call_lost(state: RunState, event: CallLost, seq: int) -> None:
    state.open_calls.pop(event.key, None)
    state.lost_calls += 1
    state.spent += amount_of(event.charged)


def _asked(state: RunState, event: ProposalAsked, seq: int) -> None:
    candidate = state.candidate(event.index)
    candidate.asked_seq, candidate.parent_sha256 = seq, event.parent_sha256
    if event.parent_sha256 is not None:
        state.archive.built_on(event.parent_sha256)
    state.asked.add(event.index)
    state.next_index = max(state.next_index, event.index + 1)


def _proposed(state: RunState, event: Proposed, seq: int) -> None:
    candidate = state.candidate(event.index)
    candidate.proposed, candidate.proposed_seq = event, seq
    state.asked.discard(event.index)
    state.arrived.add(event.index)
    state.exhausted = state.exhausted or event.exhausted
    if event.source_sha256 is not None:
        state._count(proposed=1)
        state.by_sha256.setdefault(event.source_sha256, event.index)
    if event.canonical is not None:
        state.by_canonical.setdefault(event.canonical, event.index)


def _forecasted(state: RunState, event: Forecasted, seq: int) -> None:
    state.candidate(event.index).forecast = event.forecast
    if event.forecast.source != "none":
        state._count(forecast=1)


def _chosen(state: RunState, event: Chosen, seq: int) -> None:
    state.candidate(event.index).chosen = event
    if event.action == "skip":
        state._count(skipped_by_forecast=1)


def _started(state: RunState, event: EvaluationStarted, seq: int) -> None:
    state.candidate(event.index).in_flight_gpu_s = event.reserved_gpu_s


def _verified(state: RunState, event: Verified, seq: int) -> None:
    state.candidate(event.index).verification = event.verification


def _evaluated(state: RunState, event: EvaluationDone, seq: int) -> None:
    candidate = state.candidate(event.index)
    candidate.in_flight_gpu_s = None
    candidate.result, candidate.counted, candidate.charged_gpu_s = event.result, event.counted, event.charged_gpu_s
    status = event.result.status
    if event.counted:
        state.spent += Amount(evals=1, gpu_seconds=event.charged_gpu_s)
        state.evaluated += 1
        state.evaluated_gpu_s += event.charged_gpu_s
        state.health.take_in(event.result)
    state._count(
        verified=int(status is EvaluationStatus.PASSED),
        rejected=int(status in REJECTED),
        measured=int(candidate.timed),
        not_recorded=int(status is EvaluationStatus.NOT_RECORDED),
    )


def _evaluation_lost(state: RunState, event: EvaluationLost, seq: int) -> None:
    candidate = state.candidate(event.index)
    candidate.in_flight_gpu_s, candidate.verification, candidate.lost = None, None, event
    state.spent += Amount(evals=1, gpu_seconds=event.charged_gpu_s)


def _evaluation_left(state: RunState, event: EvaluationLeft, seq: int) -> None:
    state.candidate(event.index).in_flight_gpu_s = None


def _judged(state: RunState, event: Judged, seq: int) -> None:
    candidate = state.candidate(event.index)
    candidate.judged, candidate.judged_seq = event, seq
    state.arrived.discard(event.index)
    if candidate.counted:
        state.barren = 0
        state.since_best += 1
    else:
        state.barren += 1
    state.judged.append(event.index)
    result = candidate.result
    if candidate.timed and candidate.sha256 is not None and result is not None and result.speedup is not None:
        state.archive.measured(event.index, candidate.sha256, result.speedup.ratio)
    # The log says which is best; that it was verified and measured is checked here all the same.
    if event.best and candidate.timed:
        before, state.best, state.since_best = state.best, event.index, 0
        if before is not None and state.whole is not None and before not in state.whole:
            state.candidates[before].lighten()
    state._lighten(event.index)


def _stopped(state: RunState, event: Stopped, seq: int) -> None:
    state.stopped = event


def _failed(state: RunState, event: Failed, seq: int) -> None:
    state.failed = event


_HANDLERS: dict[type[Event], Callable[..., None]] = {
    SessionOpened: _session,
    PreflightDone: _preflight,
    BaselinesDone: _baselines,
    CallReserved: _call_reserved,
    CallAnswered: _call_answered,
    CallReleased: _call_released,
    CallLost: _call_lost,
    ProposalAsked: _asked,
    Proposed: _proposed,
    Forecasted: _forecasted,
    Chosen: _chosen,
    EvaluationStarted: _started,
    Verified: _verified,
    EvaluationDone: _evaluated,
    EvaluationLost: _evaluation_lost,
    EvaluationLeft: _evaluation_left,
    Judged: _judged,
    Stopped: _stopped,
    Failed: _failed,
}
