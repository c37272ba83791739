"""Three clocks on one leg, and what it means when they disagree.

The *inner* clock (events on the device; the worker's monotonic clock on a CPU) times single calls but runs in the candidate's
process. The *worker's* wall clock times the leg there. The *judge's* clock times the leg from outside, where nothing of the
candidate can reach it, together with all that is not the call: hand-over, cache flush, copying of outputs. What that takes is
measured on legs that do everything but call, in the baseline's worker, with the same number of calls and the same buffers.

So per leg of ``n`` calls:  judge per call = (judge's wall - empty leg) / n,  and it must not exceed the inner clock's figure
by more than the tolerance. Below the size at which the judge's clock can tell, that is said.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

RELATIVE_TOLERANCE = 0.15
"""Inner clock and judge's clock may differ by this share of the call."""
CALL_SLACK_MS = {"cuda": 0.012, "cpu": 0.02}
"""And by this much a call: host work around a call that an empty leg does not have (wrapping, freeing its output)."""
WORKER_TOLERANCE = 0.1
WORKER_SLACK_MS = 1.0
"""The worker's wall clock may differ from the judge's by a tenth and a millisecond a leg (waking up, passing a line)."""
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


def compare(legs: list[LegClocks], empty: dict[int, list[float]], device: str) -> ClockReport:
    """Hold the clocks of one side's legs against each other.

    Args:
        legs: of the timed side.
        empty: the judge's wall of empty legs by number of calls (milliseconds); each number in ``legs`` must occur.
        device: ``cuda`` or ``cpu``.

    Raises:
        ValueError: without legs, or without an empty leg of the same number of calls.
    """
    if not legs:
        raise ValueError("there is no leg whose clocks could be compared")
    missing = {leg.calls for leg in legs} - {calls for calls, walls in empty.items() if walls}
    if missing:
        raise ValueError(f"no empty leg of {sorted(missing)} calls was measured")
    outside = np.array([(leg.judge_ms - float(np.median(empty[leg.calls]))) / leg.calls for leg in legs])
    inner = np.array([leg.inner_ms / leg.calls for leg in legs])
    judge_ms, inner_ms = float(np.median(outside)), float(np.median(inner))
    noise = max(float(np.median(np.abs(walls - np.median(walls)))) / calls for calls, walls in _arrays(empty, legs))
    tolerance_ms = max(RELATIVE_TOLERANCE * inner_ms, CALL_SLACK_MS[device]) + 3 * noise
    worker_leg, judge_leg = _median_walls(legs)
    return ClockReport(
        inner_ms=inner_ms,
        judge_ms=judge_ms,
        worker_leg_ms=worker_leg,
        judge_leg_ms=judge_leg,
        tolerance_ms=tolerance_ms,
        polices=tolerance_ms <= POLICED_SHARE * inner_ms,
        disagreement=_disagreement(inner_ms, judge_ms, tolerance_ms) or _worker_disagreement(worker_leg, judge_leg),
    )


def _arrays(empty: dict[int, list[float]], legs: list[LegClocks]) -> list[tuple[int, np.ndarray]]:
    used = {leg.calls for leg in legs}
    return [(calls, np.asarray(walls)) for calls, walls in empty.items() if calls in used]


def _median_walls(legs: list[LegClocks]) -> tuple[float, float]:
    return float(np.median([leg.worker_ms for leg in legs])), float(np.median([leg.judge_ms for leg in legs]))


def _disagreement(inner_ms: float, judge_ms: float, tolerance_ms: float) -> str:
    if judge_ms <= inner_ms + tolerance_ms:
        return ""
    return (
        f"clocks disagree: the candidate's process says {inner_ms:.4g} ms a call, the judge's clock {judge_ms:.4g} ms "
        f"(tolerance {tolerance_ms:.3g} ms)"
    )


def _worker_disagreement(worker_ms: float, judge_ms: float) -> str:
    if worker_ms <= judge_ms and judge_ms - worker_ms <= WORKER_TOLERANCE * judge_ms + WORKER_SLACK_MS:
        return ""
    return f"clocks disagree: a leg took {worker_ms:.4g} ms by the worker's wall clock and {judge_ms:.4g} ms by the judge's"
