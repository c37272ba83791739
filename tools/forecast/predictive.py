"""A predictive distribution of log-latency, and what is derived from it: bins, speedups, intervals, the forecast document.

The distribution is ``ln(ms) = centre + scale * z`` where ``z`` follows a table of quantiles taken from residuals on problems
that the model had not seen (split conformal, Lei et al. 2018), so that tails are as heavy as they were found to be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilecast.sandbox import bins
from tilecast.sandbox.schema import Cost, Forecast, ForecastBin, Range
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.excess import excess, log_ratio

LEVELS: tuple[float, ...] = tuple(i / 40 for i in range(1, 40))
"""Probabilities at which a shape's quantiles are tabulated."""

LOW, HIGH = 0.1, 0.9
"""Ends of every interval that is shown: a central 80 %."""

TAIL_LOGITS = 12.0
"""Beyond the table the tail is logistic; probabilities below e^-12 are taken as 0."""

Source = Literal["roofline", "learned", "llm", "ensemble", "none"]


@dataclass(frozen=True)
class Predictive:
    """Distribution of the natural log of a latency in milliseconds.

    With ``floor_log_ms`` the numbers are on the scale of :mod:`tilecast.tools.forecast.excess` over that floor, else plain.
    """

    centre: float
    scale: float
    shape: tuple[float, ...]
    floor_log_ms: float | None = None

    def cdf(self, log_ms: float) -> float:
        """Probability that the latency is at most ``exp(log_ms)`` milliseconds."""
        value = log_ms if self.floor_log_ms is None else float(excess(log_ms - self.floor_log_ms))
        z = (value - self.centre) / max(self.scale, 1e-9)
        first, last = self.shape[0], self.shape[-1]
        edge = math.log(LEVELS[0] / (1 - LEVELS[0]))
        slope = 2 * -edge / max(last - first, 1e-9)
        if z < first:
            return _logistic(edge + (z - first) * slope)
        if z > last:
            return _logistic(-edge + (z - last) * slope)
        return float(np.interp(z, self.shape, LEVELS))

    def quantile(self, level: float) -> float:
        """Log-milliseconds below which the latency lies with this probability (within the table's range)."""
        return float(self.log_ms(self.centre + self.scale * float(np.interp(level, LEVELS, self.shape))))

    def log_ms(self, value: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Log-milliseconds of values on this distribution's scale."""
        if self.floor_log_ms is None:
            return np.asarray(value, dtype=np.float64)
        result: npt.NDArray[np.float64] = self.floor_log_ms + log_ratio(value)
        return result

    def bin_probabilities(self, baseline_ms: float) -> list[float]:
        """Probabilities of the eight speedup bins over a baseline in milliseconds; they sum to 1."""
        base = math.log(baseline_ms)
        slower_than = [1 - self.cdf(base - math.log(edge)) for edge in bins.EDGES]
        cumulative = [0.0, *slower_than, 1.0]
        return normalised([b - a for a, b in itertools.pairwise(cumulative)])


def _logistic(logit: float) -> float:
    return 0.0 if logit < -TAIL_LOGITS else 1.0 if logit > TAIL_LOGITS else 1 / (1 + math.exp(-logit))


def normalised(weights: Sequence[float]) -> list[float]:
    """Non-negative weights made to sum to 1; equal weights if all are zero."""
    clipped = [max(0.0, float(w)) for w in weights]
    total = sum(clipped)
    return [w / total for w in clipped] if total > 0 else [1 / len(clipped)] * len(clipped)


def range_of(predictive: Predictive) -> Range:
    """Median latency with the central 80 % interval, in milliseconds."""
    low, mid, high = (math.exp(predictive.quantile(p)) for p in (LOW, 0.5, HIGH))
    return Range(median=mid, low=low, high=high)


def speedup_range(latency: Range, baseline_ms: float) -> Range:
    """Speedup over a baseline: the latency interval turned round."""
    return Range(median=baseline_ms / latency.median, low=baseline_ms / latency.high, high=baseline_ms / latency.low)


def forecast_bins(probabilities: Sequence[float]) -> list[ForecastBin]:
    """The contract's eight bins with their probabilities."""
    found = []
    for index, p in enumerate(normalised(probabilities)):
        low, high = bins.bounds(index)
        found.append(ForecastBin(low=low, high=high, p=min(1.0, p)))
    return found


def abstention(
    candidate: Candidate, why: str, source: Source, baseline: tuple[str, float | None], cost: Cost | None = None
) -> Forecast:
    """A forecast that says nothing: equal bins, no interval, even odds."""
    name, baseline_ms = baseline
    return Forecast(
        latency_ms=None,
        baseline=name,
        baseline_ms=baseline_ms,
        bins=forecast_bins([1.0] * bins.COUNT),
        speedup=None,
        p_faster=0.5,
        p_valid=0.5,
        abstain=True,
        why=why,
        source=source,
        cost=cost or Cost(),
        candidate=candidate.name,
        source_sha256=candidate.sha256,
    )


def forecast_of(
    candidate: Candidate,
    predictive: Predictive,
    baseline: tuple[str, float | None],
    source: Source,
    **known: Any,
) -> Forecast:
    """The forecast document of a distribution. ``known`` may set ``p_valid``, ``abstain``, ``why``, ``cost``, ``evidence``.

    Without a measured baseline, bins are even and there is no speedup: the latency still stands.
    """
    name, baseline_ms = baseline
    latency = range_of(predictive)
    even = [1.0] * bins.COUNT
    fields: dict[str, Any] = {"p_valid": 1.0, "abstain": False, "why": "", **known}
    return Forecast(
        latency_ms=latency,
        baseline=name,
        baseline_ms=baseline_ms,
        bins=forecast_bins(even if baseline_ms is None else predictive.bin_probabilities(baseline_ms)),
        speedup=None if baseline_ms is None else speedup_range(latency, baseline_ms),
        p_faster=0.5 if baseline_ms is None else predictive.cdf(math.log(baseline_ms)),
        source=source,
        candidate=candidate.name,
        source_sha256=candidate.sha256,
        **fields,
    )
