"""What a study reports, in pure functions: recovery, evaluations to 95 %, calibration, accuracy. Formulas as in the contract."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilecast.sandbox import bins

QUANTILES: tuple[float, ...] = (0.01, 0.05, 0.10, 0.25, 0.50)
"""Shares of the pool at which recovery is read."""

TARGET = 0.95
ECE_BINS = 10
COVERAGE = 0.60

Speeds = npt.NDArray[np.float64]


def measured_count(share: float, size: int) -> int:
    """``ceil(share * size)``, at least 1; a tiny amount is taken off first so that 0.05 * 100 is 5 and not 6."""
    return max(1, math.ceil(share * size - 1e-9))


def recovery(order: Sequence[int], speeds: Speeds) -> dict[float, float]:
    """Best speed among the first ``ceil(q * n)`` measured over the pool's best, for each q. ``speeds`` is 1/ms, failures 0.

    Raises:
        ValueError: if nothing in the pool succeeded.
    """
    best = float(speeds.max(initial=0.0))
    if best <= 0:
        raise ValueError("recovery is not defined for a pool in which no variant passed")
    found = np.maximum.accumulate(speeds[np.asarray(order)])
    return {q: float(found[measured_count(q, len(speeds)) - 1]) / best for q in QUANTILES}


def evals_to(order: Sequence[int], speeds: Speeds, share: float = TARGET) -> int:
    """Measurements until one reaches ``share`` of the pool's best speed."""
    reached = speeds[np.asarray(order)] >= share * speeds.max()
    return int(np.argmax(reached)) + 1


def best_after(order: Sequence[int], speeds: Speeds, budget: int) -> float:
    """Best speed among the first ``budget`` measured."""
    return float(speeds[np.asarray(order)[:budget]].max())


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers; NaN of none."""
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def half_brier(p: Sequence[float], outcome: int) -> float:
    """Half the Brier score of one forecast over the bins: ``0.5 * sum((p - y)^2)`` (Brier 1950)."""
    return 0.5 * sum((value - (index == outcome)) ** 2 for index, value in enumerate(p))


def crps(p: Sequence[float], outcome: int) -> float:
    """Ranked probability score over the seven inner edges, as a mean: ``mean((P(below edge) - [outcome below edge])^2)``."""
    below = 0.0
    total = 0.0
    for edge in range(bins.COUNT - 1):
        below += p[edge]
        total += (below - (outcome <= edge)) ** 2
    return total / (bins.COUNT - 1)


def expected_calibration_error(confidence: Sequence[float], correct: Sequence[bool]) -> float:
    """ECE with ten equal bins of the largest probability: ``sum(n_b / n * |accuracy_b - confidence_b|)`` (Guo et al. 2017)."""
    if not confidence:
        return math.nan
    groups: dict[int, list[tuple[float, bool]]] = {}
    for value, hit in zip(confidence, correct, strict=True):
        groups.setdefault(min(int(value * ECE_BINS), ECE_BINS - 1), []).append((value, hit))
    gaps = [abs(sum(h for _, h in g) / len(g) - sum(c for c, _ in g) / len(g)) * len(g) for g in groups.values()]
    return sum(gaps) / len(confidence)


def risk_at(confidence: Sequence[float], correct: Sequence[bool], coverage: float = COVERAGE) -> float:
    """Error rate among the ``ceil(coverage * n)`` forecasts with the largest p. Ties keep their order."""
    if not confidence:
        return math.nan
    order = sorted(range(len(confidence)), key=lambda i: -confidence[i])[: measured_count(coverage, len(confidence))]
    return sum(not correct[i] for i in order) / len(order)


def risk_coverage(confidence: Sequence[float], correct: Sequence[bool], steps: int = 10) -> list[tuple[float, float]]:
    """The risk-coverage curve at ``1/steps, 2/steps, … 1``."""
    return [(i / steps, risk_at(confidence, correct, i / steps)) for i in range(1, steps + 1)]


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Rank correlation with average ranks for ties; NaN where one side is constant."""
    a, b = _ranks(np.asarray(left)), _ranks(np.asarray(right))
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Speeds) -> Speeds:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    result: Speeds = (upper - (counts - 1) / 2)[inverse]
    return result
