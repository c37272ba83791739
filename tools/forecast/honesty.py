"""How honest a run's forecasts were: pure functions over what was said and what came, for reports.

Only candidates that were measured can be judged; of the skipped, the audited share stands for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilecast.sandbox import bins
from tilecast.sandbox.schema import Document, Forecast


class Outcome(Document):
    """One forecast of a run with what became of its candidate."""

    forecast: Forecast
    decision: str
    """``measure``, ``skip`` or ``audit``."""
    latency_ms: float | None = None
    """Measured median; None if it was not measured or did not pass."""
    baseline_ms: float | None = None
    incumbent_ms: float | None = None
    """The best time when the decision was taken."""
    gpu_seconds: float | None = None
    """What measuring took; None for the skipped."""


class Honesty(Document):
    """The panel. None where there is nothing to judge by."""

    forecasts: int
    judged: int
    abstained: int
    coverage: float | None
    """Share of measured latencies inside their 80 % interval."""
    brier: float | None
    """Half-Brier over the speedup bins."""
    ece: float | None
    """Expected calibration error with ten bins of the largest probability."""
    skipped: int
    audited: int
    false_skips: int
    """Audited candidates that would have been skipped and became the incumbent."""
    false_skip_rate: float | None
    regret: float | None
    """Log-speedup over the incumbent that audits found, a skipped candidate: what skipping is expected to have cost."""
    gpu_seconds_saved: float | None
    """Skipped candidates times the mean of those measured."""


def honesty(outcomes: Sequence[Outcome]) -> Honesty:
    """The panel of a run."""
    timed = [o for o in outcomes if o.latency_ms is not None and o.forecast.latency_ms is not None]
    binned = [o for o in timed if o.baseline_ms is not None and o.forecast.source != "none"]
    skipped = [o for o in outcomes if o.decision == "skip"]
    audits = [o for o in outcomes if o.decision == "audit"]
    wrong = [
        o for o in audits if o.latency_ms is not None and o.incumbent_ms is not None and o.latency_ms < o.incumbent_ms
    ]
    spent = [o.gpu_seconds for o in outcomes if o.gpu_seconds is not None]
    lost = [math.log((o.incumbent_ms or 1.0) / (o.latency_ms or 1.0)) for o in wrong]
    return Honesty(
        forecasts=len(outcomes),
        judged=len(timed),
        abstained=sum(o.forecast.abstain for o in outcomes),
        coverage=_mean([_inside(o) for o in timed]),
        brier=_mean([_half_brier(o) for o in binned]),
        ece=_calibration_error(binned),
        skipped=len(skipped),
        audited=len(audits),
        false_skips=len(wrong),
        false_skip_rate=len(wrong) / len(audits) if audits else None,
        regret=sum(lost) / len(audits) if audits else None,
        gpu_seconds_saved=len(skipped) * sum(spent) / len(spent) if spent else None,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _inside(outcome: Outcome) -> float:
    interval, value = outcome.forecast.latency_ms, outcome.latency_ms
    assert interval is not None and value is not None
    return float(interval.low <= value <= interval.high)


def _bin(outcome: Outcome) -> int:
    assert outcome.baseline_ms is not None and outcome.latency_ms is not None
    return bins.bin_of(outcome.baseline_ms / outcome.latency_ms)


def _half_brier(outcome: Outcome) -> float:
    came = _bin(outcome)
    return 0.5 * sum((b.p - (index == came)) ** 2 for index, b in enumerate(outcome.forecast.bins))


def _calibration_error(outcomes: Sequence[Outcome], groups: int = 10) -> float | None:
    if not outcomes:
        return None
    table: dict[int, list[tuple[float, bool]]] = {}
    for outcome in outcomes:
        p = [b.p for b in outcome.forecast.bins]
        top = max(p)
        table.setdefault(min(int(top * groups), groups - 1), []).append((top, p.index(top) == _bin(outcome)))
    gaps = [abs(sum(h for _, h in g) - sum(c for c, _ in g)) for g in table.values()]
    return sum(gaps) / len(outcomes)
