"""How long a process was ready to run on a CPU and did not get one: the kernel's own account, read from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OF_SHARE, OF_DIFFERENCE = 0.1, 0.5


@dataclass
class Waiting:
    """Time that the legs of one side took, and how much of it its process waited for a processor."""

    waited_ms: float = 0.0
    wall_ms: float = 0.0

    def add(self, waited_ms: float, wall_ms: float) -> None:
        """One more leg."""
        self.waited_ms += waited_ms
        self.wall_ms += wall_ms

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return min(1.0, self.waited_ms / self.wall_ms) if self.wall_ms else 0.0


def allowance(candidate: Waiting, baseline: Waiting) -> float:
    """By how much (a fraction) other work on the processors may have shifted the ratio, beyond what blocks average out.

    Interference lasts longer than a block and hits the two processes unequally. The factors are empirical: equal kernels on
    two processors with four times as many busy processes differed by up to a tenth of the share waited, and by up to half
    of the difference of shares. On a quiet machine both are next to nothing.
    """
    return OF_SHARE * max(candidate.share, baseline.share) + OF_DIFFERENCE * abs(candidate.share - baseline.share)


def waited_ms(pids: Sequence[int]) -> float:
    """Milliseconds that the main threads of these processes have waited for a processor so far.

    Second figure of ``/proc/PID/schedstat`` (https://docs.kernel.org/scheduler/sched-stats.html); 0 where there is none.
    """
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return total / 1e6
