"""How many calls a candidate gets: enough to find a rare defect where calls are cheap, fewer where they are slow."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tilecast.sandbox.harness.judge import probes
from tilecast.sandbox.harness.judge.case import WorkloadCase

CALLS = 72
"""In all, over the workloads; a defect of one call in eight is missed with a probability of 7e-5."""
LEAST_CALLS = 8
_BUDGET_S = {"cpu": 6.0, "cuda": 30.0}
_LATEST = 3
_SHARE_OF_LIMIT = 0.3
"""Of the candidate's own time limit, at most this goes into the calls of a slow one (an interpreted kernel, say)."""


@dataclass
class Pace:
    """Kept up to date while calls are made. Seconds throughout."""

    device_type: str
    workloads: int
    timeout_s: float
    small: int = 0
    """How many of the workloads are small."""
    _latest: dict[str, deque[float]] = field(default_factory=dict)

    def note(self, case: WorkloadCase, seconds: float) -> None:
        """A call took so long, hand-over included."""
        self._latest.setdefault(case.name, deque(maxlen=_LATEST)).append(seconds)

    @property
    def knows_any(self) -> bool:
        """Whether a call was noted yet."""
        return bool(self._latest)

    def call_s(self, case: WorkloadCase) -> float:
        """What a call on a workload takes: the least of the latest few. One that a busy machine held up says nothing of it.

        Before any was made there: what one takes on the slowest of the others; 0 if none was made at all.
        """
        if case.name in self._latest:
            return min(self._latest[case.name])
        return max((min(times) for times in self._latest.values()), default=0.0)

    def calls(self, case: WorkloadCase) -> int:
        """For one workload: its share of :data:`CALLS`, or what the budget allows.

        Large inputs cost most and find least: where there are small workloads, the others get the fewest calls. (Every
        output of a timed call is checked as well.)
        """
        large = self.workloads - self.small
        share = max(LEAST_CALLS, CALLS // self.workloads + 1)
        if self.small and large:
            share = max(LEAST_CALLS, (CALLS - large * LEAST_CALLS) // self.small + 1) if case.is_small else LEAST_CALLS
        reference_s = max(1e-4, case.answer_s)
        by_reference = probes.call_count(reference_s, _BUDGET_S[self.device_type] / self.workloads, LEAST_CALLS, share)
        return min(
            by_reference, probes.call_count(self.call_s(case), self._own_budget_s / self.workloads, LEAST_CALLS, share)
        )

    @property
    def _own_budget_s(self) -> float:
        return _SHARE_OF_LIMIT * self.timeout_s

    def affords(self, calls: int, case: WorkloadCase) -> bool:
        """Whether so many calls beyond the ordinary ones take little of the limit and of the reference's time."""
        own_s, reference_s = calls * self.call_s(case), calls * case.answer_s
        return own_s <= 0.1 * self.timeout_s and reference_s <= 0.5 * _BUDGET_S[self.device_type]
