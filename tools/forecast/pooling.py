"""Two forecasts made one: a linear opinion pool whose weight is earned by the record (Genest & Zidek 1986)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilecast.tools.forecast.predictive import normalised

GRID: tuple[float, ...] = tuple(i / 20 for i in range(21))
PRIOR_WEIGHT = 0.5
"""Share of the language model before any record, and the centre that a short record is drawn to."""

PRIOR_COUNT = 10.0
"""Outcomes that the prior share is worth."""

FLOOR = 0.005
"""No bin's probability counts as less: one confident miss must not silence a forecaster for ever."""

Pair = tuple[Sequence[float], Sequence[float], int]
"""Bins of the learned forecaster, bins of the language model, and the bin that came."""


def pooled(learned: Sequence[float], llm: Sequence[float], weight: float) -> list[float]:
    """Weighted mean of two distributions over the bins; ``weight`` is the language model's share."""
    return normalised([(1 - weight) * a + weight * b for a, b in zip(learned, llm, strict=True)])


def earned_weight(record: Sequence[Pair], prior: float = PRIOR_WEIGHT) -> float:
    """The language model's share that would have scored best (log score), drawn to the prior while the record is short.

    The prior counts as :data:`PRIOR_COUNT` outcomes against a quadratic penalty of one nat a unit of squared distance.
    """

    def cost(weight: float) -> float:
        score = sum(-math.log(max(pooled(a, b, weight)[outcome], FLOOR)) for a, b, outcome in record)
        return score + PRIOR_COUNT * (weight - prior) ** 2

    return min(GRID, key=cost)


def moments(bins_p: Sequence[float], middles: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation of a distribution over bins with these middles."""
    p = np.asarray(normalised(bins_p))
    mean = float(p @ np.asarray(middles))
    return mean, math.sqrt(max(float(p @ (np.asarray(middles) - mean) ** 2), 0.0))
