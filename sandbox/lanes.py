"""Several judges for one GPU: candidates are compiled and verified side by side, one at a time is timed, alone.

Each lane is a judge of its own with its own workers; the judges agree through lock files that nobody uses the device while one
of them times (:mod:`tilecast.sandbox.harness.judge.quiet`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
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
from tilecast.sandbox.local import LocalSandbox, default_state_dir
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.process import Interrupted
from tilecast.sandbox.schema import Measurement, Verification
from tilecast.sandbox.source import Candidate
from tilecast.sandbox.turns import device_turn

_POLL_S = 0.1


class LanedSandbox:
    """The sandbox protocol on one device with several judges.

    Args:
        spec: ``cuda:N`` (or ``cpu``, where lanes disturb each other's compilation only).
        lanes: how many judges; each holds contexts and data on the device.
        require_sandbox: refuse to run candidates without full isolation.
        state_dir: where locks, baselines' times and compiled code are kept, common to all lanes.
    """

    benchmark_verifies = True
    dashboard = ""

    def __init__(self, spec: str, lanes: int, *, require_sandbox: bool = False, state_dir: Path | None = None) -> None:
        folder = state_dir or default_state_dir()
        (folder / "locks").mkdir(parents=True, exist_ok=True)
        quiet = folder / "locks" / f"quiet-{spec.replace(':', '-')}"
        self.lanes = [
            LocalSandbox(spec, require_sandbox=require_sandbox, state_dir=folder, quiet=quiet, sharers=lanes)
            for _ in range(lanes)
        ]
        self.spec = spec
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(lanes):
            self._free.put(number)
        self._holding = threading.Lock()
        self._holders, self._turn = 0, ExitStack()
        self._items = ["" for _ in range(lanes)]
        self._done = [0] * lanes
        self._closed = threading.Event()

    @property
    def device(self) -> DeviceFacts:
        """The device, as the first judge sees it."""
        return self.lanes[0].device

    @property
    def sandbox_level(self) -> str:
        """The isolation in force for candidates."""
        return self.lanes[0].sandbox_level

    @property
    def slots(self) -> int:
        """One a lane."""
        return len(self.lanes)

    def slot(self) -> Lane:
        """A place for one evaluation."""
        return Lane(self)

    def workers(self) -> list[WorkerState]:
        """The lanes, and what is in them."""
        return [
            WorkerState(
                name=f"lane {number + 1}",
                device=self.spec,
                state="busy" if item else "idle",
                done=self._done[number],
                item=item,
            )
            for number, item in enumerate(self._items)
        ]

    def incidents(self) -> list[Incident]:
        """None: a judge that dies ends the run, as it does without lanes."""
        return []

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        """Is the problem fit to be used; asked of the first judge."""
        return self.lanes[0].preflight(problem, progress)

    def estimate(self, problem: Problem) -> Estimate:
        """Mean seconds of the evaluations made so far, over all lanes; before any, an assumption."""
        return max((lane.estimate(problem) for lane in self.lanes), key=lambda found: found.basis == "measured")

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """The first judge times them; the others then take up its times and what it compiled.

        Raises:
            InvalidReference: if the problem is refused.
        """
        found = self.lanes[0].baselines(problem, options, progress)
        if len(self.lanes) > 1:
            progress(f"preparing {len(self.lanes) - 1} more judges")
            with ThreadPoolExecutor(len(self.lanes) - 1) as pool:
                list(pool.map(lambda lane: lane.baselines(problem, options, lambda _: None), self.lanes[1:]))
        return found

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """Correctness and integrity of one candidate, by the first judge."""
        return self.lanes[0].verify(problem, candidate, options, progress)

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """Verified and timed, by the first judge."""
        return self.lanes[0].benchmark(problem, candidate, options, progress)

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]:
        """Which wrong kernels the checker would accept on this problem."""
        return self.lanes[0].lint(problem, progress)

    def evidence(self, args: dict[str, Any], progress: ProgressSink) -> dict[str, Any]:
        """Run an evidence job in a confined worker."""
        return self.lanes[0].evidence(args, progress)

    @contextmanager
    def held(self, cancelled: threading.Event) -> Iterator[int]:
        """A free lane's number, for one evaluation. While any is held, the device is this run's.

        Raises:
            Interrupted: if ``cancelled`` is set while all lanes are taken.
        """
        number = self._wait(cancelled)
        try:
            with self._holding:
                if self._holders == 0:
                    self._turn.enter_context(device_turn(self.device))
                self._holders += 1
            try:
                yield number
            finally:
                with self._holding:
                    self._holders -= 1
                    if self._holders == 0:
                        self._turn.close()
        finally:
            self._items[number] = ""
            self._free.put(number)

    def _wait(self, cancelled: threading.Event) -> int:
        while True:
            try:
                return self._free.get(timeout=_POLL_S)
            except queue.Empty:
                if cancelled.is_set() or self._closed.is_set():
                    raise Interrupted("interrupted while waiting for a judge") from None

    def note(self, number: int, item: str) -> None:
        """What a lane works on; empty when it is done with it."""
        self._done[number] += not item
        self._items[number] = item

    def interrupt(self) -> None:
        """Stop what runs in every lane."""
        for lane in self.lanes:
            lane.interrupt()

    def close(self) -> None:
        """End every judge."""
        self._closed.set()
        for lane in self.lanes:
            lane.close()


class Lane:
    """One place of a :class:`LanedSandbox`: for one caller at a time, which holds a judge during its :meth:`turn`."""

    benchmark_verifies = True

    def __init__(self, parent: LanedSandbox) -> None:
        self._parent = parent
        self._number: int | None = None
        self._cancelled = threading.Event()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold a judge."""
        self._cancelled.clear()
        with self._parent.held(self._cancelled) as number:
            self._number = number
            try:
                yield
            finally:
                self._number = None

    @property
    def _lane(self) -> LocalSandbox:
        return self._parent.lanes[0 if self._number is None else self._number]

    @property
    def device(self) -> DeviceFacts:
        """Of the whole sandbox."""
        return self._parent.device

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        """See the protocol."""
        return self._lane.preflight(problem, progress)

    def estimate(self, problem: Problem) -> Estimate:
        """Of the whole sandbox."""
        return self._parent.estimate(problem)

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """See the protocol."""
        return self._lane.baselines(problem, options, progress)

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """See the protocol."""
        with self._at(candidate):
            return self._lane.verify(problem, candidate, options, progress)

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """See the protocol."""
        with self._at(candidate):
            return self._lane.benchmark(problem, candidate, options, progress)

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]:
        """See the protocol."""
        return self._lane.lint(problem, progress)

    @contextmanager
    def _at(self, candidate: Candidate) -> Iterator[None]:
        number = self._number
        if number is None:
            yield
            return
        self._parent.note(number, candidate.name)
        try:
            yield
        finally:
            self._parent.note(number, "")

    def interrupt(self) -> None:
        """Stop what is done in this place."""
        self._cancelled.set()
        if self._number is not None:
            self._lane.interrupt()

    def close(self) -> None:
        """The sandbox closes its judges."""
