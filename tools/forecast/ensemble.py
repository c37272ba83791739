"""Learned and language-model forecasts pooled; the language model's share is earned by its record in this run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilecast.sandbox import bins
from tilecast.sandbox.schema import Cost, Forecast
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext
from tilecast.tools.forecast.learned import LearnedForecaster, Prediction
from tilecast.tools.forecast.llm import LlmForecaster, predictive_of
from tilecast.tools.forecast.pooling import Pair, Pooling, earned
from tilecast.tools.forecast.predictive import LEVELS, Predictive, forecast_of
from tilecast.tools.forecast.selection import STRADDLE
from tilecast.tools.model.base import BudgetRefused

SEARCH_STEPS = 60


def mixture(first: Predictive, second: Predictive, weight: float) -> Predictive:
    """The linear pool of two distributions (``weight`` on the second), as a quantile table of its own."""
    low = min(p.quantile(LEVELS[0]) for p in (first, second)) - 3.0
    high = max(p.quantile(LEVELS[-1]) for p in (first, second)) + 3.0
    grid = np.linspace(low, high, 40 * SEARCH_STEPS)
    cdf = np.array([(1 - weight) * first.cdf(x) + weight * second.cdf(x) for x in grid])
    rising = np.maximum.accumulate(cdf) + 1e-12 * np.arange(len(cdf))
    table = np.interp(LEVELS, rising, grid)
    return Predictive(0.0, 1.0, tuple(float(v) for v in table))


def sharpened(predictive: Predictive, exponent: float) -> Predictive:
    """Narrower about its median, as a normal density raised to this power is: by one over the root of it."""
    middle = predictive.quantile(0.5)
    table = tuple(middle + (predictive.quantile(level) - middle) / math.sqrt(exponent) for level in LEVELS)
    return Predictive(0.0, 1.0, table)


class EnsembleForecaster:
    """Pools both; where one of them is silent or cannot be paid for, the other one stands alone."""

    name = "ensemble"

    def __init__(self, learned: LearnedForecaster, llm: LlmForecaster) -> None:
        self._learned, self._llm = learned, llm
        self._said: dict[str, tuple[list[float], list[float]]] = {}

    def forecast(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Forecast]:
        """One forecast a candidate, in order.

        Raises:
            EnvironmentFailure: if the provider is down.
        """
        own = self._learned.forecast(candidates, context)
        predicted = self._learned.predict(candidates, context)
        try:
            asked = self._llm.forecast(candidates, context)
        except BudgetRefused as refusal:
            return [f.model_copy(update={"why": f"{f.why}; the language model was not asked: {refusal}"}) for f in own]
        how = earned(self.record(context))
        found = []
        for index, (mine, theirs) in enumerate(zip(own, asked, strict=True)):
            cost = _sum(mine.cost, theirs.cost)
            prediction = None if isinstance(predicted, str) else predicted[index]
            if theirs.latency_ms is None or context.baseline_ms is None:
                found.append(mine.model_copy(update={"cost": cost}))
            elif prediction is None or prediction.doubt:
                found.append(theirs.model_copy(update={"cost": cost}))
            else:
                self._said[mine.source_sha256] = ([b.p for b in mine.bins], [b.p for b in theirs.bins])
                found.append(self._pool(candidates[index], prediction, theirs, how, context, cost))
        return found

    def record(self, context: ForecastContext) -> list[Pair]:
        """What both said of candidates that were measured since."""
        if context.baseline_ms is None:
            return []
        pairs: list[Pair] = []
        for item in context.tried:
            said = self._said.get(item.candidate.sha256)
            if said is not None and item.latency_ms:
                pairs.append((*said, bins.bin_of(context.baseline_ms / item.latency_ms)))
        return pairs

    def _pool(
        self,
        candidate: Candidate,
        mine: Prediction,
        theirs: Forecast,
        how: Pooling,
        context: ForecastContext,
        cost: Cost,
    ) -> Forecast:
        assert context.baseline_ms is not None
        other = predictive_of([b.p for b in theirs.bins], context.baseline_ms)
        predictive = sharpened(mixture(mine.predictive, other, how.weight), how.exponent)
        target = context.incumbent_ms or context.baseline_ms
        chance = predictive.cdf(math.log(target))
        return forecast_of(
            candidate,
            predictive,
            (context.baseline_name, context.baseline_ms),
            "ensemble",
            p_valid=math.sqrt(mine.p_valid * theirs.p_valid),
            abstain=STRADDLE[0] < chance < STRADDLE[1],
            why=f"chance of beating {target:.4g} ms is {chance:.2f}; the language model counts {how.weight:.2f}",
            cost=cost,
            evidence={**mine.detail, "llm_share": how.weight, "sharpness": how.exponent},
        )


def _sum(first: Cost, second: Cost) -> Cost:
    usd = None if first.usd is None or second.usd is None else first.usd + second.usd
    return Cost(seconds=first.seconds + second.seconds, tokens=first.tokens + second.tokens, usd=usd)
