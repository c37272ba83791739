"""One place of a Ray sandbox: holds an evaluator for one item; an item whose evaluator is lost is tried elsewhere once.

What it blames on a candidate after that is a status with the story; a node that went away is nobody's fault.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilecast.sandbox.base import BaselineTimes, DeviceFacts, Estimate, EvaluationOptions, Preflight, ProgressSink
from tilecast.sandbox.cluster.fleet import Fleet, Role
from tilecast.sandbox.cluster.worker import Worker, WorkerLost
from tilecast.sandbox.errors import EnvironmentFailure, InvalidReference, UsageError
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.process import Interrupted
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification
from tilecast.sandbox.source import Candidate

if TYPE_CHECKING:
    from tilecast.sandbox.cluster.sandbox import RaySandbox

TRIES = 2
NODES = 4
"""Nodes that may go away under an item, which says nothing about it, before the cluster is blamed."""


class Unanswered(Exception):
    """An item that no evaluator answered."""

    def __init__(self, losses: list[WorkerLost], seconds: float) -> None:
        super().__init__("; then ".join(lost.why for lost in losses))
        self.losses, self.seconds = losses, seconds

    @property
    def status(self) -> EvaluationStatus:
        """Hung wherever it was tried, ended the processes, or machines that say themselves that they are broken."""
        faults = {lost.fault for lost in self.losses if lost.fault != "node"}
        if faults == {"hung"}:
            return EvaluationStatus.TIMEOUT
        broken = not faults or faults == {"broken"}
        return EvaluationStatus.ENVIRONMENT_ERROR if broken else EvaluationStatus.RUNTIME_ERROR


class RaySlot:
    """The sandbox protocol on one evaluator at a time."""

    def __init__(self, parent: RaySandbox, fleet: Fleet, role: Role | None = None) -> None:
        self._parent, self._fleet = parent, fleet
        self._role: Role = role or ("times" if parent.benchmark_verifies else "verifies")
        self._worker: Worker | None = None
        self._cancelled = threading.Event()
        self._losses: list[WorkerLost] = []
        self._lost_s = 0.0
        self.benchmark_verifies = parent.benchmark_verifies

    @property
    def device(self) -> DeviceFacts:
        """Of the whole sandbox."""
        return self._parent.device

    @property
    def where(self) -> str:
        """Name of the evaluator that is held."""
        return self._worker.name if self._worker is not None else ""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold an evaluator that fits the next step."""
        _ = self._parent.device
        self._cancelled.clear()
        self._parent.entered(self)
        try:
            self._worker = self._fleet.acquire(self._role, self._cancelled.is_set)
            yield
        finally:
            self._parent.left(self)
            if self._worker is not None:
                self._fleet.release(self._worker)
            self._worker = None

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        """See the protocol."""
        return Preflight.model_validate(self._must("preflight", problem, EvaluationOptions(), progress))

    def estimate(self, problem: Problem) -> Estimate:
        """Of the whole sandbox."""
        return self._parent.estimate(problem)

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """Of the evaluator that is held."""
        return BaselineTimes.model_validate(self._must("baselines", problem, options, progress))

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]:
        """See the protocol."""
        return dict(self._must("lint", problem, EvaluationOptions(), progress))

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """See the protocol; the step after it takes times."""
        self._role = "times"
        try:
            answer = Verification.model_validate(self._ask("verify", problem, candidate, options, progress))
        except Unanswered as error:
            return Verification(**self._blame(error, candidate))
        self._parent.spent_s.append(answer.seconds)
        return answer

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """See the protocol; the measurement says where it was made, and the seconds lost on the way are part of its own."""
        try:
            answer = Measurement.model_validate(self._ask("benchmark", problem, candidate, options, progress))
        except Unanswered as error:
            return Measurement(**self._blame(error, candidate), details=self._details({}))
        self._parent.spent_s.append(answer.seconds)
        seconds = answer.seconds + (0.0 if answer.recorded else self._lost_s)
        return answer.model_copy(update={"details": self._details(answer.details), "seconds": seconds})

    def _details(self, details: dict[str, Any]) -> dict[str, Any]:
        """A measurement's details with where it was made, the clocks seen there, and what was tried in vain before."""
        told: dict[str, Any] = self._worker.told() if self._worker is not None else {}
        window = details.get("window")
        told["sm_mhz"] = window.get("sm_mhz") if isinstance(window, dict) else None
        if self._losses:
            told |= {"lost": [lost.why for lost in self._losses], "lost_s": round(self._lost_s, 3)}
        return {**details, "worker": told}

    def _blame(self, error: Unanswered, candidate: Candidate) -> dict[str, Any]:
        tries = len(error.losses)
        return {
            "status": error.status,
            "reason": f"{tries} evaluators were lost one after the other while they worked on it: {error}",
            "source_sha256": candidate.sha256,
            "candidate": candidate.name,
            "device": self.device.name,
            "seconds": error.seconds,
        }

    def _must(self, op: str, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> Any:
        try:
            return self._ask(op, problem, None, options, progress)
        except Unanswered as error:
            raise EnvironmentFailure(f"{op} of {problem.name} on the cluster: {error}") from error

    def _ask(
        self,
        op: str,
        problem: Problem,
        candidate: Candidate | None,
        options: EvaluationOptions,
        progress: ProgressSink,
    ) -> Any:
        """One step, on another evaluator if the first is lost.

        Raises:
            Unanswered: if the second is lost too.
        """
        known = self._parent.known if self._parent.recorded is not None else None
        item = {
            "id": f"{op}:{candidate.sha256[:16] if candidate else problem.sha256[:16]}:{secrets.token_hex(8)}",
            "op": op,
            "problem": problem.model_dump(mode="json"),
            "candidate": candidate.model_dump(mode="json", include={"name", "source"}) if candidate else None,
            "options": options.model_dump(mode="json"),
            "known": known.model_dump(mode="json") if known is not None else None,
        }
        losses: list[WorkerLost] = []
        began_s = time.monotonic()
        while True:
            worker = self._held(losses)
            worker.item = candidate.name if candidate is not None else op
            try:
                answer = self._answered(worker, item, progress)
            except WorkerLost as lost:
                self._drop(worker, lost, worker.item)
                losses.append(lost)
                self._lost_s += time.monotonic() - began_s
                began_s = time.monotonic()
                if self._cancelled.is_set():
                    raise Interrupted("interrupted") from lost
                own = sum(one.fault != "node" for one in losses)
                if own >= TRIES or len(losses) - own >= NODES:
                    raise Unanswered(losses, self._lost_s) from lost
                continue
            worker.done += 1
            return answer

    def _answered(self, worker: Worker, item: dict[str, Any], progress: ProgressSink) -> Any:
        limit_s = self._fleet.options.item_limit_s
        try:
            answer = worker.ask(self._fleet.connection, item, limit_s, self._cancelled, progress)
        except SystemExit as error:
            # Ray's way to say that its part of this process has ended.
            raise EnvironmentFailure("the connection to the Ray cluster is gone (is its head node up?)") from error
        if "result" in answer:
            return answer["result"]
        message = str(answer.get("message"))
        if answer.get("error") == "problem":
            raise InvalidReference(message)
        if answer.get("exit_code") == UsageError.exit_code:
            raise UsageError(message)
        raise WorkerLost("broken", message[:500])

    def _held(self, losses: list[WorkerLost]) -> Worker:
        if self._worker is None:
            avoid = self._avoid if losses else ""
            self._worker = self._fleet.acquire(self._role, self._cancelled.is_set, avoid)
        return self._worker

    def _drop(self, worker: Worker, lost: WorkerLost, candidate: str) -> None:
        self._avoid, self._worker = worker.node.id, None
        self._losses.append(lost)
        self._fleet.lose(worker, lost, candidate)

    def interrupt(self) -> None:
        """Stop what is done in this place."""
        self._cancelled.set()

    def close(self) -> None:
        """The sandbox closes its evaluators."""
