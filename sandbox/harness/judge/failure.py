"""How a worker's failure is told inside the judge: a value with a status of the contract, or a broken machine."""

from __future__ import annotations

import signal
from dataclasses import dataclass


class EnvironmentBroken(Exception):
    """This machine cannot go on (no sandbox, no memory, a fork server that does not start): never the candidate's fault."""


class OutOfDeviceMemory(EnvironmentBroken):
    """The judge had not the memory it needs; where several share a device, another try may do."""


class HelperLost(EnvironmentBroken):
    """A worker of the judge's own (the reference, a baseline) ended in the middle: another try, with new ones, may do."""


class ProblemRefused(Exception):
    """The problem is unusable: ``status`` is INVALID_REFERENCE or OUT_OF_MEMORY."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Rejected(Exception):
    """The candidate is refused: status, reason, the rule that was broken (if it is one), and the workload."""

    def __init__(self, status: str, reason: str, rule: str = "", workload: str = "") -> None:
        super().__init__(reason)
        self.status, self.reason, self.rule, self.workload = status, reason, rule, workload


@dataclass(frozen=True)
class Failure:
    """A candidate's failure: status, a reason a person and a model can act on, and the rule where one was broken."""

    status: str
    reason: str
    rule: str = ""


CANDIDATE = "the candidate"
FORK_SERVER = "a fork server that is gone"


class WorkerFailed(Exception):
    """A request to a worker ended in a failure; the worker may be gone. ``whose`` it is: blame goes to nobody else."""

    def __init__(self, failure: Failure, whose: str = CANDIDATE) -> None:
        super().__init__(failure.reason)
        self.failure, self.whose = failure, whose

    def of_a_helper(self) -> EnvironmentBroken | None:
        """What it amounts to if it is not the candidate's."""
        if self.whose == CANDIDATE:
            return None
        kind = OutOfDeviceMemory if self.failure.status == "OUT_OF_MEMORY" else HelperLost
        return kind(f"the worker of {self.whose} failed: {self.failure.reason}")


_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGBUS, signal.SIGTRAP}


def of_wait_status(status: int | None, *, locked: bool, doing: str, log: str) -> Failure:
    """What the end of a worker amounts to. ``status`` as ``waitpid`` gives it, None if even that never came."""
    tail = f"; last output: {log}" if log else ""
    if status is None:
        return Failure("RUNTIME_ERROR", f"the worker vanished during {doing}{tail}")
    if not status & 0x7F:
        code = status >> 8
        return Failure("RUNTIME_ERROR", f"the worker ended itself with exit status {code} during {doing}{tail}")
    number = signal.Signals(status & 0x7F)
    if number is signal.SIGSYS and locked:
        reason = f"started a process during {doing}: after compilation a candidate may not fork or run programs"
        return Failure("REWARD_HACK", reason, "process-started")
    if number is signal.SIGXCPU:
        return Failure("TIMEOUT", f"used up its processor time during {doing}")
    if number in _CRASHES:
        return Failure("RUNTIME_ERROR", f"crashed with {number.name} during {doing}{tail}")
    if number is signal.SIGKILL:
        why = "by the system for its memory, most likely, unless it sent the signal itself"
        return Failure("OUT_OF_MEMORY", f"was killed (SIGKILL) during {doing}: {why}{tail}")
    return Failure("RUNTIME_ERROR", f"was ended by {number.name} during {doing}{tail}")
