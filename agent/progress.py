"""What a run tells its listeners while it goes on: typed, one class an event. A face (screen, chat, CI) shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilecast.agent.record.fold import CandidateState
from tilecast.sandbox.base import BaselineTimes, DeviceFacts, WorkerState
from tilecast.sandbox.schema import LedgerDocument, StoppedBy


@dataclass(frozen=True)
class Said:
    """One line for the user: a choice made for them, or a warning."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Began:
    """The run has its place; ``resumed`` if it is taken up again, with the best so far if anything was measured."""

    run: str
    run_dir: str
    problem: str
    device: DeviceFacts
    proposer: str
    forecaster: str
    resumed: bool
    best: CandidateState | None = None


@dataclass(frozen=True)
class BaselineKnown:
    """The baselines were timed."""

    baselines: BaselineTimes


@dataclass(frozen=True)
class Step:
    """What is running now; ``index`` is the candidate, if it is about one."""

    text: str
    index: int | None = None


@dataclass(frozen=True)
class Finished:
    """A candidate was judged."""

    candidate: CandidateState


@dataclass(frozen=True)
class Spent:
    """The ledger after a change, and how many proposals are in flight."""

    ledger: LedgerDocument
    in_flight: int


@dataclass(frozen=True)
class Fleet:
    """The evaluators, where there are several, after a change; and the page that shows more of them."""

    workers: tuple[WorkerState, ...]
    dashboard: str = ""


@dataclass(frozen=True)
class StopAsked:
    """The user asked for the end: the step under way is finished first. Told between any two instructions."""


@dataclass(frozen=True)
class Ended:
    """The run stopped."""

    stopped_by: StoppedBy
    why: str


Progress = Said | Began | BaselineKnown | Step | Finished | Spent | Fleet | StopAsked | Ended
Listener = Callable[[Progress], None]
