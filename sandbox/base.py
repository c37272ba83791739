"""The sandbox protocol: what the loop may ask of whatever evaluates candidates, wherever that is.

Implementations: CUDA and CPU through the local harness, recorded measurements, many evaluators of a Ray cluster. The loop
does not know which it talks to; of some it learns that they can work on several evaluations at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from tilecast.sandbox.problem import Problem, ProblemFacts
from tilecast.sandbox.schema import Document, EvaluationStatus, Measurement, Verification
from tilecast.sandbox.source import Candidate

ProgressSink = Callable[[str], None]
"""Called with one short line while long work runs."""


class DeviceFacts(Document):
    """The device as a user would name it, and the figures a roofline needs."""

    kind: Literal["cuda", "cpu", "replay", "bundle"]
    name: str
    """For instance ``NVIDIA H200``, or the CPU's model."""
    index: int | None = None
    uuid: str = ""
    compute_capability: str = ""
    driver: str = ""
    versions: dict[str, str] = {}
    recorded: bool = False
    """True where numbers come from a record instead of this machine."""


class EvaluationOptions(Document):
    """How to evaluate; the same for every candidate of a run."""

    timeout_s: float = 60.0
    pure: bool = False
    require_sandbox: bool = False
    baseline: str = "auto"
    """``auto`` is the fastest of eager, compile and max-autotune; or one of these names."""
    baseline_source: str | None = None
    """Text of the candidate-format file to compare with, where the user named one."""
    max_seconds: float = 20.0
    """Device seconds that one comparison may take."""
    margin: float = 0.01
    profile: bool = False
    workload: str = "full"
    """The workload that is timed."""
    confirm: bool = False
    """Time a finalist again in a fresh process with other call counts, and soak it."""


@dataclass(frozen=True)
class Expected:
    """What a run will ask for once the reference is known to be good; sent in advance where a round trip is dear."""

    options: EvaluationOptions
    start: Candidate | None = None
    confirm: bool = True
    """Whether a candidate that takes the lead is examined a second time."""


class Preflight(Document):
    """Answer of the check made before money is spent."""

    status: Literal[EvaluationStatus.PASSED, EvaluationStatus.INVALID_REFERENCE, EvaluationStatus.OUT_OF_MEMORY]
    reason: str = ""
    facts: ProblemFacts | None = None
    seconds: float = 0.0


class BaselineTimes(Document):
    """Median milliseconds on the ``full`` workload of each baseline that could be measured, and how long it took."""

    times_ms: dict[str, float]
    fastest: str
    seconds: float = 0.0
    recorded: bool = False
    notes: list[str] = []
    kept: bool = False
    """Whether all of them were taken by an earlier run on this device, and none now."""


class Estimate(Document):
    """What one evaluation is expected to take, in device seconds, before any was made."""

    seconds_per_eval: float
    setup_seconds: float
    basis: str
    """Where the figure comes from, in words: ``recorded``, ``measured``, ``assumed``."""


class Sandbox(Protocol):
    """Evaluates candidates of one problem at a time on one device.

    Calls block; they may be made from several threads but run one at a time on the device. Every call returns a value
    with a status for whatever a candidate does.

    Raises:
        EnvironmentFailure: when the machine itself is broken (and only then).
    """

    @property
    def device(self) -> DeviceFacts: ...

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight: ...

    def estimate(self, problem: Problem) -> Estimate: ...

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes: ...

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification: ...

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """Verify every timed output and measure against the baseline; may return any rejecting status."""
        ...

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]: ...

    def interrupt(self) -> None:
        """Stop what is running now (from another thread); its call returns or raises soon after."""
        ...

    def close(self) -> None:
        """Kill every process that belongs to the sandbox."""
        ...


def works_elsewhere(sandbox: Sandbox) -> bool:
    """Whether an evaluation handed over goes on when this process ends. Waiting for one takes no device time here."""
    return bool(getattr(sandbox, "keeps_work", False))


class WorkerState(Document):
    """One evaluator among several, as a user would name it."""

    name: str
    device: str
    state: Literal["starting", "idle", "busy", "lost"]
    role: Literal["times", "verifies"] = "times"
    """A GPU of another model than the run is bound to only verifies."""
    done: int = 0
    item: str = ""


class Incident(Document):
    """An evaluator was lost or came, told once, with the last lines of its log."""

    text: str
    worker: str = ""
    candidate: str = ""
    log: list[str] = []
    warning: bool = True


class Slot(Sandbox, Protocol):
    """One of several places of a sandbox: for one caller at a time, and its :meth:`interrupt` ends that caller's work only."""

    def turn(self) -> AbstractContextManager[None]:
        """Wait for an evaluator, and hold it: the wait is no device time."""
        ...


@runtime_checkable
class ParallelSandbox(Protocol):
    """What a sandbox offers besides, if it can work on several evaluations at once."""

    @property
    def slots(self) -> int:
        """Evaluations that it can work on now; grows and shrinks with the evaluators there are, and is at least 1."""
        ...

    @property
    def dashboard(self) -> str:
        """Address of a page that shows the evaluators; empty if there is none."""
        ...

    def slot(self) -> Slot:
        """A place for one evaluation."""
        ...

    def workers(self) -> list[WorkerState]:
        """The evaluators there are."""
        ...

    def incidents(self) -> list[Incident]:
        """What happened to evaluators since the last call."""
        ...
