"""Two forecasts made one: an opinion pool whose weight and sharpness are earned by the record (Genest & Zidek 1986)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilecast.tools.forecast.predictive import normalised

GRID: tuple[float, ...] = tuple(i / 20 for i in range(21))
EXPONENTS: tuple[float, ...] = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0)
PRIOR_WEIGHT = 0.5
"""Share of the language model before any record, and the centre that a short record is drawn to."""

PRIOR_EXPONENT = 1.3
"""A linear pool of calibrated forecasts is too wide (Ranjan & Gneiting 2010): it is sharpened by this much before any record."""

PRIOR_COUNT = 10.0
"""Outcomes that the prior is worth."""

FLOOR = 0.005
"""No bin's probability counts as less: one confident miss must not silence a forecaster for ever."""

Pair = tuple[Sequence[float], Sequence[float], int]
"""Bins of the learned forecaster, bins of the language model, and the bin that came."""


@dataclass(frozen=True)
class Pooling:
    """How two forecasts are made one: the language model's share, and the exponent that sharpens the mean."""

    weight: float = PRIOR_WEIGHT
    exponent: float = PRIOR_EXPONENT


def pooled(learned: Sequence[float], llm: Sequence[float], how: Pooling) -> list[float]:
    """Weighted mean of two distributions over the bins, raised to the exponent and made to sum to 1 again."""
    mean = normalised([(1 - how.weight) * a + how.weight * b for a, b in zip(learned, llm, strict=True)])
    return normalised([p**how.exponent for p in mean])


def earned(record: Sequence[Pair]) -> Pooling:
    """The share and the exponent that would have scored best (log score), drawn to the prior while the record is short.

    The prior counts as :data:`PRIOR_COUNT` outcomes against a quadratic penalty of one nat a unit of squared distance.
    """
    if not record:
        return Pooling()
    own, other = (np.array([pair[i] for pair in record], dtype=np.float64) for i in (0, 1))
    came = np.array([pair[2] for pair in record])

    def cost(how: Pooling) -> float:
        mean = ((1 - how.weight) * own + how.weight * other) ** how.exponent
        p = mean[np.arange(len(came)), came] / mean.sum(axis=1)
        distance = (how.weight - PRIOR_WEIGHT) ** 2 + (how.exponent - PRIOR_EXPONENT) ** 2
        return float(-np.log(np.maximum(p, FLOOR)).sum()) + PRIOR_COUNT * distance

    return min((Pooling(w, e) for w in GRID for e in EXPONENTS), key=cost)
