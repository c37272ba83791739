"""Evaluation on this machine's CPU or on one of its CUDA GPUs, through the judge."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilecast.sandbox.base import BaselineTimes, DeviceFacts, Estimate, EvaluationOptions, Preflight, ProgressSink
from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.sandbox.hardware import find_hardware
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.process import Interrupted, JudgeProcess
from tilecast.sandbox.process import default_state_dir as default_state_dir
from tilecast.sandbox.schema import Measurement, Verification
from tilecast.sandbox.source import Candidate

_ASSUMED_S = {"cpu": 4.0, "cuda": 15.0}
_SETUP_S = {"cpu": 10.0, "cuda": 30.0}
_POLL_S = 0.1


class LocalSandbox:
    """The sandbox protocol for ``cpu`` or ``cuda`` (``index`` or ``cuda:N``).

    Every call takes the device's lock, a file in ``state_dir``, so that runs of several processes take turns. With ``quiet``,
    a lock file that several judges have in common, calls of these run side by side and only timing is done alone; ``sharers``
    is their number, so that each keeps to its share of the device's memory.
    """

    benchmark_verifies = True
    """A benchmark is a whole verification first, in the same worker: asking for one before would pay for it twice."""

    def __init__(
        self,
        kind: str,
        *,
        index: int | None = None,
        require_sandbox: bool = False,
        state_dir: Path | None = None,
        quiet: Path | None = None,
        sharers: int = 1,
    ) -> None:
        head, _, number = kind.partition(":")
        if head not in ("cpu", "cuda") or (number and not number.isdecimal()):
            raise UsageError(f"device {kind!r} is not a local one: cpu, cuda or cuda:N")
        self._kind = head
        chosen = index if index is not None else int(number or 0)
        self.spec = "cpu" if head == "cpu" else f"cuda:{chosen}"
        self._state_dir = state_dir or default_state_dir()
        self._judge = JudgeProcess(
            self.spec, self._state_dir, require_sandbox=require_sandbox, quiet=quiet, sharers=sharers
        )
        # Judges that agree among themselves when to be quiet share the device's turn.
        self._lock_kind = fcntl.LOCK_EX if quiet is None else fcntl.LOCK_SH
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._hello: dict[str, Any] | None = None
        self._spent_s: list[float] = []

    @property
    def device(self) -> DeviceFacts:
        """The device, as the judge sees it (started if need be)."""
        return DeviceFacts.model_validate(self._greeting()["device"])

    @property
    def sandbox_level(self) -> str:
        """The isolation in force for candidates, for instance ``namespaces+landlock+seccomp``."""
        return str(self._greeting()["sandbox"]["level"])

    @property
    def log(self) -> list[str]:
        """The last lines of the judge's output, for a report of what went wrong."""
        return self._judge.last_lines

    def _greeting(self) -> dict[str, Any]:
        if self._hello is None:
            self._hello = self._judge.request("hello", {}, lambda _: None)
        return self._hello

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        """Is the problem fit to be used, and what are its workloads; checked on this device."""
        return Preflight.model_validate(self._ask("preflight", {"problem": problem.payload()}, progress))

    def estimate(self, problem: Problem) -> Estimate:
        """Mean seconds of the evaluations made so far; before any, an assumption."""
        if self._spent_s:
            mean = sum(self._spent_s) / len(self._spent_s)
            return Estimate(seconds_per_eval=mean, setup_seconds=_SETUP_S[self._kind], basis="measured")
        return Estimate(seconds_per_eval=_ASSUMED_S[self._kind], setup_seconds=_SETUP_S[self._kind], basis="assumed")

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """Times of the reference as it is and compiled.

        Raises:
            InvalidReference: if the problem is refused.
        """
        return BaselineTimes.model_validate(self._ask("baselines", self._args(problem, None, options), progress))

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """Correctness and integrity of one candidate."""
        answer = Verification.model_validate(self._ask("verify", self._args(problem, candidate, options), progress))
        self._spent_s.append(answer.seconds)
        return answer

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """Verified, then timed against the baseline in the same worker."""
        answer = Measurement.model_validate(self._ask("bench", self._args(problem, candidate, options), progress))
        self._spent_s.append(answer.seconds)
        return answer

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]:
        """Which wrong kernels the checker would accept on this problem."""
        return self._ask("lint", {"problem": problem.payload()}, progress)

    def evidence(self, args: dict[str, Any], progress: ProgressSink) -> dict[str, Any]:
        """Run an evidence job (``harness.evidence.job.run``) in a confined worker and return its answer."""
        return self._judge.request("evidence", args, progress)

    def _args(self, problem: Problem, candidate: Candidate | None, options: EvaluationOptions) -> dict[str, Any]:
        plain = options.model_dump(mode="json")
        hardware = find_hardware(self.device.name) if self._kind == "cuda" else None
        if hardware is not None:
            plain["hardware"] = hardware.model_dump(mode="json")
        args: dict[str, Any] = {"problem": problem.payload(), "options": plain}
        if candidate is not None:
            args["candidate"] = {"name": candidate.name, "source": candidate.source, "sha256": candidate.sha256}
        return args

    def _ask(self, op: str, args: dict[str, Any], progress: ProgressSink) -> dict[str, Any]:
        with self._turn:
            self._stopping.clear()
            with self._device_lock(progress):
                return self._judge.request(op, args, progress)

    @contextmanager
    def _device_lock(self, progress: ProgressSink) -> Iterator[None]:
        """Wait for this device's turn; the lock goes with the process that holds it, however that ends."""
        folder = self._state_dir / "locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentFailure(
                f"the folder {self._state_dir} for locks and kept times cannot be made ({error.strerror}); "
                "set TILECAST_HOME to a folder that you may write to"
            ) from error
        with open(folder / f"{self.spec.replace(':', '-')}.lock", "a", encoding="ascii") as file:
            waiting = False
            while True:
                try:
                    fcntl.flock(file, self._lock_kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waiting:
                        progress(f"waiting for {self.spec}: another run is using it")
                    waiting = True
                    if self._stopping.is_set():
                        raise Interrupted(f"interrupted while waiting for {self.spec}") from None
                    time.sleep(_POLL_S)
            yield

    def interrupt(self) -> None:
        """Stop what runs now: the judge's group is killed; the call under way raises soon after."""
        self._stopping.set()
        self._judge.interrupt()

    def close(self) -> None:
        """End the judge and every process of it."""
        self._stopping.set()
        self._judge.close()
