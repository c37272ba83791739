"""Bounds from bytes and flops alone: the same wide forecast for every candidate of a problem, never below the floor.

The floor is the largest of compulsory traffic over bandwidth, flops over the peak and one launch (Williams et al. 2009).
Where between the floor and far above it a candidate lies, this forecaster does not know; the distribution says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilecast.sandbox.roofline import floor_of
from tilecast.sandbox.schema import Forecast
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext
from tilecast.tools.forecast.predictive import LEVELS, Predictive, abstention, forecast_of

SPREAD = 1.0
"""Scale of the excess over the floor in natural-log units: median e^0.69 = 2 times the floor, 90 % below 10 times."""

SHAPE: tuple[float, ...] = tuple(-math.log(1 - p) for p in LEVELS)
"""An exponential in log space: nothing below the floor, a long tail above it."""


class RooflineForecaster:
    """Least time as a lower bound; abstains without figures for the GPU or without a baseline far from the bound."""

    name = "roofline"

    def forecast(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Forecast]:
        """The same distribution for each candidate, in their order."""
        baseline = (context.baseline_name, context.baseline_ms)
        if context.hardware is None:
            return [abstention(c, "the GPU is not in the catalogue", "roofline", baseline) for c in candidates]
        floor = floor_of(context.facts.workload("full"), context.hardware)
        predictive = Predictive(math.log(floor.ms), SPREAD, SHAPE)
        reference_ms = context.incumbent_ms or context.baseline_ms
        p_beat = 0.5 if reference_ms is None else predictive.cdf(math.log(reference_ms))
        unsure = 0.25 < p_beat < 0.75 or reference_ms is None
        why = f"{floor.bound}-bound floor of {floor.ms:.4g} ms; chance of beating {reference_ms or math.nan:.4g} ms is {p_beat:.2f}"
        return [
            forecast_of(c, predictive, baseline, "roofline", abstain=unsure, why=why, evidence=floor.model_dump())
            for c in candidates
        ]
