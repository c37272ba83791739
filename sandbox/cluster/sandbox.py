"""The sandbox protocol over a Ray cluster: as many places as there are evaluators, each lost item tried once elsewhere."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tilecast.sandbox.base import (
    BaselineTimes,
    DeviceFacts,
    Estimate,
    EvaluationOptions,
    Incident,
    Preflight,
    ProgressSink,
    WorkerState,
)
from tilecast.sandbox.cluster.connection import Connection
from tilecast.sandbox.cluster.evidence import ClusterRunner
from tilecast.sandbox.cluster.fleet import Fleet
from tilecast.sandbox.cluster.options import CPU, GPU, ClusterOptions
from tilecast.sandbox.cluster.slot import RaySlot
from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.sandbox.evidence_runner import EvidenceRunner
from tilecast.sandbox.hardware import find_hardware, named_hardware
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.replay import ReplaySandbox
from tilecast.sandbox.schema import Measurement, Verification
from tilecast.sandbox.source import Candidate

ASSUMED_S, SETUP_S = {CPU: 4.0, GPU: 15.0}, {CPU: 10.0, GPU: 30.0}
MOST_EVIDENCE = 8
SETTLE_S = 60.0
"""How long the first evaluators may take to follow the very first one, before the run begins without them."""


class RaySandbox:
    """Evaluations on the nodes of a Ray cluster.

    Args:
        spec: as the user named the device: ``ray`` or ``ray:ADDRESS``.
        options: the table ``[ray]`` of the configuration, with the run's target.
        require_sandbox: refuse to run candidates without full isolation.
        recorded: answers what the run asks about the record, where evaluators replay one.
    """

    def __init__(
        self,
        spec: str,
        options: ClusterOptions,
        *,
        require_sandbox: bool = False,
        recorded: ReplaySandbox | None = None,
    ) -> None:
        self.options, self.recorded, self._require_sandbox = options, recorded, require_sandbox
        address = spec.partition(":")[2]
        self._fleet = Fleet(Connection(spec, address, options.dashboard), options, require_sandbox)
        self._lock = threading.Lock()
        self._device: DeviceFacts | None = None
        self._closed = False
        self._slots: set[RaySlot] = set()
        self.spent_s: list[float] = []
        self.known: Preflight | None = None

    @property
    def device(self) -> DeviceFacts:
        """The model that times are taken on; the cluster is joined and evaluators are placed if need be.

        Raises:
            UsageError: if there are several models and no target.
            EnvironmentFailure: if there is no evaluator, or none of the target's model.
        """
        with self._lock:
            if self._device is None:
                self._fleet.start()
                found = self._fleet.settle(SETTLE_S)
                self._device = self.recorded.device if self.recorded is not None else self._bound(found)
                self._fleet.bind(self._device.name)
            return self._device

    def _bound(self, found: list[DeviceFacts]) -> DeviceFacts:
        models = sorted({facts.name for facts in found})
        target = self.options.target
        if target is not None and found[0].kind == "cuda":
            wanted = named_hardware(target)
            fitting = [f for f in found if f.name == target or (wanted is not None and find_hardware(f.name) == wanted)]
            if not fitting:
                raise EnvironmentFailure(f"--target {target}: the cluster has no such GPU; it has {', '.join(models)}")
            chosen = fitting[0]
        elif len(models) > 1:
            raise UsageError(
                f"the cluster has several models ({', '.join(models)}) and times of different ones are not comparable; "
                "name one with --target, and the others only verify"
            )
        else:
            chosen = found[0]
        return chosen.model_copy(update={"index": None, "uuid": ""})

    def tell_waiting(self, told: Callable[[str], None]) -> None:
        """From now on ``told`` learns of the wait for the first evaluators."""
        self._fleet.on_waiting = told

    @property
    def benchmark_verifies(self) -> bool:
        """A benchmark is a whole verification first; with GPUs that only verify, these do it before."""
        return self.recorded is None and not self._fleet.joined("verifies")

    @property
    def slots(self) -> int:
        """One for each evaluator that is there."""
        return max(1, len(self._fleet.joined()))

    @property
    def dashboard(self) -> str:
        """Of the cluster."""
        return self._fleet.connection.dashboard

    def workers(self) -> list[WorkerState]:
        """The evaluators that are starting or there."""
        return [worker.shown for worker in self._fleet.workers]

    def incidents(self) -> list[Incident]:
        """Evaluators that were lost since the last call."""
        return self._fleet.incidents()

    def evidence_runners(self) -> list[EvidenceRunner]:
        """Places for evidence jobs on CPU slots of the cluster: as many as there are evaluators, at least two."""
        count = min(MOST_EVIDENCE, max(2, self.slots))
        return [ClusterRunner(self._fleet.connection, self._require_sandbox) for _ in range(count)]

    def slot(self) -> RaySlot:
        """A place for one evaluation; kept only while it is in use."""
        return RaySlot(self, self._fleet)

    def entered(self, slot: RaySlot) -> None:
        """A slot is in use: an interrupt of the whole sandbox reaches it."""
        with self._lock:
            self._slots.add(slot)

    def left(self, slot: RaySlot) -> None:
        """It is no more."""
        with self._lock:
            self._slots.discard(slot)

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        """On one of the evaluators; of a record, on this machine's CPU."""
        if self.recorded is not None:
            answer = self.recorded.preflight(problem, progress)
        else:
            with self._place() as slot:
                answer = slot.preflight(problem, progress)
        self.known = answer
        return answer

    def estimate(self, problem: Problem) -> Estimate:
        """Mean seconds of the evaluations made so far; before any, an assumption or the record's."""
        if self.recorded is not None:
            return self.recorded.estimate(problem)
        kind = self.options.evaluators
        if self.spent_s:
            mean = sum(self.spent_s) / len(self.spent_s)
            return Estimate(seconds_per_eval=mean, setup_seconds=SETUP_S[kind], basis="measured")
        return Estimate(seconds_per_eval=ASSUMED_S[kind], setup_seconds=SETUP_S[kind], basis="assumed")

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """Each evaluator that takes times measures its own, all at once; medians over them choose the fastest.

        Raises:
            InvalidReference: if the problem is refused.
        """
        if self.recorded is not None:
            return self.recorded.baselines(problem, options, progress)
        _ = self.device
        count = max(1, len(self._fleet.joined("times")))

        def one(_: int) -> tuple[str, BaselineTimes]:
            with self._place() as slot:
                return slot.where, slot.baselines(problem, options, progress)

        with ThreadPoolExecutor(count) as pool:
            found = list(pool.map(one, range(count)))
        return merged(found)

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """Correctness and integrity of one candidate, on any evaluator."""
        with self._place("verifies") as slot:
            return slot.verify(problem, candidate, options, progress)

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """Verified and timed on one GPU, against the baseline in the same window of the same GPU."""
        with self._place() as slot:
            return slot.benchmark(problem, candidate, options, progress)

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]:
        """Which wrong kernels the checker would accept on this problem."""
        if self.recorded is not None:
            return self.recorded.lint(problem, progress)
        with self._place() as slot:
            return slot.lint(problem, progress)

    @contextmanager
    def _place(self, role: Any = "times") -> Iterator[RaySlot]:
        slot = RaySlot(self, self._fleet, role)
        with slot.turn():
            yield slot

    def interrupt(self) -> None:
        """Stop everything that runs now."""
        with self._lock:
            slots = list(self._slots)
        for slot in slots:
            slot.interrupt()

    def close(self) -> None:
        """End the evaluators; a cluster that was started for the run ends too."""
        if not self._closed:
            self._closed = True
            self.interrupt()
            self._fleet.close()


def merged(found: list[tuple[str, BaselineTimes]]) -> BaselineTimes:
    """Baselines of several evaluators as one: medians of those that all have, and each one's own in the notes."""
    if len(found) == 1:
        return found[0][1]
    common = set.intersection(*(set(times.times_ms) for _, times in found))
    if not common:
        raise EnvironmentFailure("no baseline could be timed on all evaluators: " + "; ".join(n for n, _ in found))
    times = {name: statistics.median(t.times_ms[name] for _, t in found) for name in common}
    fastest = min(times, key=lambda name: times[name])
    own = [t.times_ms[fastest] for _, t in found]
    spread = max(own) / min(own) - 1
    notes = [f"{where}: {fastest} {t.times_ms[fastest]:.5g} ms" for where, t in found]
    notes.append(f"{fastest} differs by {spread:.2%} between {len(found)} evaluators; each is compared with its own")
    for _, one in found:
        notes += [note for note in one.notes if note not in notes]
    return BaselineTimes(
        times_ms=times,
        fastest=fastest,
        seconds=sum(t.seconds for _, t in found),
        notes=notes,
        kept=all(t.kept for _, t in found),
    )
