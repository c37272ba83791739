"""Which candidates deserve a GPU evaluation: pure functions of a forecast, the incumbent and what is left of the budget.

A forecast never wins anything here; it can only save an evaluation that would have been lost.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from tilecast.sandbox.schema import Document, Forecast

Decision = Literal["skip", "measure", "audit"]

STRADDLE = (0.25, 0.75)
"""A forecast whose central half interval contains the value to beat has no opinion."""


class BudgetLeft(Document):
    """What remains: ``evals`` evaluations (None for no limit) and ``expected`` further proposals if it is known."""

    evals: int | None = None
    gpu_seconds: float | None = None
    seconds_per_eval: float | None = None
    expected: int | None = None

    @property
    def evaluations(self) -> float:
        """Evaluations that still fit, by the tighter of the two limits; infinite without one."""
        by_time = math.inf
        if self.gpu_seconds is not None and self.seconds_per_eval:
            by_time = self.gpu_seconds / self.seconds_per_eval
        return min(by_time, math.inf if self.evals is None else self.evals)


class SelectionRules(Document):
    """Limits of skipping: a candidate is a confident loser below ``skip_below``, at most ``skip_at_most`` when scarce."""

    skip_below: float = Field(default=0.05, ge=0, le=1)
    skip_at_most: float = Field(default=0.20, ge=0, le=1)
    audit_share: float = Field(default=0.05, ge=0, le=1)
    margin: float = Field(default=0.01, ge=0)


def chance_below(forecast: Forecast, target_ms: float) -> float:
    """Probability that a candidate is valid and at most ``target_ms``, from the document alone.

    The shown median and 80 % interval are read as a two-piece normal in log-latency (half the mass each side).
    Even odds where the forecast shows no latency.
    """
    if forecast.latency_ms is None:
        return 0.5
    median, gap = math.log(forecast.latency_ms.median), math.log(target_ms)
    side = forecast.latency_ms.low if gap < median else forecast.latency_ms.high
    scale = max(abs(math.log(side) - median) / 1.2816, 1e-6)
    below = 0.5 * (1 + math.erf((gap - median) / scale / math.sqrt(2)))
    return forecast.p_valid * below


def chance_of_beating(forecast: Forecast, incumbent_ms: float, rules: SelectionRules) -> float:
    """Probability that a candidate is valid and faster than the incumbent by the margin."""
    return chance_below(forecast, incumbent_ms * (1 - rules.margin))


def value_of_measuring(forecast: Forecast, incumbent_ms: float) -> float:
    """Expected log-speedup over the incumbent that one evaluation buys, ``p_valid * E[max(0, ln(incumbent / ms))]``.

    Closed form of expected improvement for a normal in log-latency (Jones et al. 1998), with the left half-width as its
    scale, since only the fast side counts. Infinite for a forecast without a latency: it has to be measured to be known.
    """
    if forecast.latency_ms is None:
        return math.inf
    median = math.log(forecast.latency_ms.median)
    scale = max((median - math.log(forecast.latency_ms.low)) / 1.2816, 1e-6)
    z = (math.log(incumbent_ms) - median) / scale
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return forecast.p_valid * scale * (z * 0.5 * (1 + math.erf(z / math.sqrt(2))) + density)


def skip_threshold(budget: BudgetLeft, rules: SelectionRules) -> float:
    """Chance of beating the incumbent under which an evaluation is better spent elsewhere.

    With room for every expected proposal it is ``skip_below``; as evaluations become scarce (fewer than proposals to
    come) it rises in proportion to the missing share, up to ``skip_at_most``.
    """
    if budget.expected is None or budget.expected <= 0 or math.isinf(budget.evaluations):
        return rules.skip_below
    missing = max(0.0, 1.0 - budget.evaluations / budget.expected)
    return rules.skip_below + (rules.skip_at_most - rules.skip_below) * missing


def audited(source_sha256: str, seed: int, share: float) -> bool:
    """Whether a skipped candidate is measured all the same: a fixed share, drawn by hash so that a resume repeats it."""
    digest = hashlib.sha256(f"{seed}:{source_sha256}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < share


def decide(
    forecast: Forecast,
    incumbent_ms: float | None,
    budget_left: BudgetLeft,
    seed: int = 0,
    rules: SelectionRules | None = None,
) -> Decision:
    """``skip`` a confident loser, ``audit`` a seeded share of those, ``measure`` all else (also every abstention)."""
    rules = rules or SelectionRules()
    if forecast.abstain or incumbent_ms is None or forecast.latency_ms is None:
        return "measure"
    if chance_of_beating(forecast, incumbent_ms, rules) >= skip_threshold(budget_left, rules):
        return "measure"
    return "audit" if audited(forecast.source_sha256, seed, rules.audit_share) else "skip"


def rank(forecasts: Sequence[Forecast], incumbent_ms: float | None) -> list[int]:
    """Order in which to measure: most valuable first. Without an incumbent, least optimistic latency first.

    Abstentions keep their place among the confident ones by their own value where they show a latency, and come first
    among equals where they show none, since nothing else can be learned of them. Ties keep the given order.
    """

    def key(index: int) -> float:
        forecast = forecasts[index]
        if forecast.latency_ms is None:
            return 0.0 if incumbent_ms is None else -math.inf
        if incumbent_ms is None:
            return math.log(forecast.latency_ms.median) - math.log(max(forecast.p_valid, 1e-6))
        return -value_of_measuring(forecast, incumbent_ms)

    return sorted(range(len(forecasts)), key=key)
