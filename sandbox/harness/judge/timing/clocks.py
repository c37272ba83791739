"""Three clocks on one leg, and what it means when they disagree.

The *inner* clock (events on the device; the worker's monotonic clock on a CPU) times single calls but runs in the candidate's
process. The *worker's* wall clock times the leg there. The *judge's* clock times the leg from outside, where nothing of the
candidate can reach it, together with all that is not the call: hand-over, cache flush, copying of outputs. What that takes is
measured on legs that do everything but call, in the baseline's worker, with the same number of calls and the same buffers.

So per leg of ``n`` calls:  unexplained = (judge's wall - empty leg - sum of the inner clock) / n.  A process that understates
its times leaves just that much unexplained. On a busy machine honest legs leave something unexplained too; the baseline's
legs, made in the same window by a process that has no reason to lie, show how much, and that is granted. Below the size at
which this tells anything, the report says so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

RELATIVE_TOLERANCE = 0.15
"""Inner clock and judge's clock may differ by this share of the call."""
CALL_SLACK_MS = {"cuda": 0.012, "cpu": 0.02}
"""And by this much a call: host work around a call that an empty leg does not have (wrapping, freeing its output)."""
WORKER_TOLERANCE = 0.25
WORKER_SLACK_MS = 1.0
"""The worker's wall clock may differ from the judge's by a quarter and a millisecond a leg (waking up, passing a line). It is
a second witness: the reported time rests on the inner clock, which is held against the judge's by itself."""
POLICED_SHARE = 0.5
"""The judge's clock polices a call if its tolerance is at most this share of the call: it would see a time halved."""


@dataclass(frozen=True)
class LegClocks:
    """What the clocks said of one leg; milliseconds. ``inner_ms`` is the sum over its calls."""

    calls: int
    inner_ms: float
    worker_ms: float
    judge_ms: float


@dataclass(frozen=True)
class ClockReport:
    """Figures a call (milliseconds), the tolerance applied, and the verdict: ``disagreement`` is empty if they agree."""

    inner_ms: float
    judge_ms: float
    worker_leg_ms: float
    judge_leg_ms: float
    tolerance_ms: float
    polices: bool
    disagreement: str = ""

    def as_details(self) -> dict[str, Any]:
        """For the record."""
        return {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(self).items()}


def compare(
    candidate: list[LegClocks], baseline: list[LegClocks], empty: dict[int, list[float]], device: str
) -> ClockReport:
    """Hold the clocks of the candidate's legs against each other.

    Args:
        candidate: legs of the side in question.
        baseline: legs of the trusted side, made in the same window.
        empty: the judge's wall of empty legs by number of calls (milliseconds); each number that occurs must be there.
        device: ``cuda`` or ``cpu``.

    Raises:
        ValueError: without legs, or without an empty leg of the same number of calls.
    """
    if not candidate or not baseline:
        raise ValueError("there is no leg whose clocks could be compared")
    missing = {leg.calls for leg in [*candidate, *baseline]} - {calls for calls, walls in empty.items() if walls}
    if missing:
        raise ValueError(f"no empty leg of {sorted(missing)} calls was measured")
    inner_ms, unexplained = _per_call(candidate, empty)
    baseline_ms, granted = _per_call(baseline, empty, 0.75)
    granted = max(granted, granted * inner_ms / baseline_ms, 0.0)
    noise = max(
        float(np.median(np.abs(np.asarray(walls) - np.median(walls)))) / calls
        for calls, walls in empty.items()
        if walls
    )
    tolerance_ms = max(RELATIVE_TOLERANCE * inner_ms, CALL_SLACK_MS[device]) + 3 * noise + granted
    judge_ms = inner_ms + unexplained
    worker_leg, judge_leg = _median_walls(candidate)
    return ClockReport(
        inner_ms=inner_ms,
        judge_ms=judge_ms,
        worker_leg_ms=worker_leg,
        judge_leg_ms=judge_leg,
        tolerance_ms=tolerance_ms,
        polices=tolerance_ms <= POLICED_SHARE * inner_ms,
        disagreement=_disagreement(inner_ms, judge_ms, tolerance_ms) or _worker_disagreement(candidate, baseline),
    )


def _per_call(legs: list[LegClocks], empty: dict[int, list[float]], quantile: float = 0.5) -> tuple[float, float]:
    """The inner clock's time of a call (median over legs), and what the judge's clock saw beyond it (a quantile)."""
    beyond = [(leg.judge_ms - float(np.median(empty[leg.calls])) - leg.inner_ms) / leg.calls for leg in legs]
    return float(np.median([leg.inner_ms / leg.calls for leg in legs])), float(np.quantile(beyond, quantile))


def _median_walls(legs: list[LegClocks]) -> tuple[float, float]:
    return float(np.median([leg.worker_ms for leg in legs])), float(np.median([leg.judge_ms for leg in legs]))


def _disagreement(inner_ms: float, judge_ms: float, tolerance_ms: float) -> str:
    if judge_ms <= inner_ms + tolerance_ms:
        return ""
    return (
        f"clocks disagree: the candidate's process says {inner_ms:.4g} ms a call, the judge's clock {judge_ms:.4g} ms "
        f"(tolerance {tolerance_ms:.3g} ms)"
    )


def _worker_disagreement(candidate: list[LegClocks], baseline: list[LegClocks]) -> str:
    """The worker's wall clock around a leg against the judge's: what the hand-over takes, and no more, may lie between.

    A hand-over can only be delayed, so the candidate's lower quartile is held against what the baseline's usually is.
    """
    worker_ms, judge_ms = _median_walls(candidate)
    between = float(np.quantile([leg.judge_ms - leg.worker_ms for leg in candidate], 0.25))
    usual = max(0.0, float(np.quantile([leg.judge_ms - leg.worker_ms for leg in baseline], 0.9)))
    if between >= 0 and between <= WORKER_TOLERANCE * judge_ms + WORKER_SLACK_MS + 2 * usual:
        return ""
    return f"clocks disagree: a leg took {worker_ms:.4g} ms by the worker's wall clock and {judge_ms:.4g} ms by the judge's"
