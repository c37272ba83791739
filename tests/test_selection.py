"""Skipping, auditing and ranking: pure functions of forecasts."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from tilecast.sandbox.schema import Forecast
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.honesty import Outcome, honesty
from tilecast.tools.forecast.predictive import LEVELS, Predictive, abstention, forecast_of
from tilecast.tools.forecast.selection import (
    BudgetLeft,
    SelectionRules,
    audited,
    chance_below,
    decide,
    rank,
    skip_threshold,
    value_of_measuring,
)


def forecast(ms: float, spread: float = 0.2, name: str = "a", **known: object) -> Forecast:
    predictive = Predictive(math.log(ms), spread, tuple(NormalDist().inv_cdf(p) for p in LEVELS))
    return forecast_of(Candidate(name=name, source=f"x = {name!r}"), predictive, ("eager", 1.0), "learned", **known)


def silent(name: str = "s") -> Forecast:
    return abstention(Candidate(name=name, source=f"y = {name!r}"), "why not", "learned", ("eager", 1.0))


NO_AUDIT = SelectionRules(audit_share=0)


def test_a_confident_loser_is_skipped_and_a_winner_measured() -> None:
    left = BudgetLeft(evals=10)
    assert decide(forecast(2.0), 1.0, left, rules=NO_AUDIT) == "skip"
    assert decide(forecast(0.5), 1.0, left, rules=NO_AUDIT) == "measure"


def test_silence_and_doubt_are_measured() -> None:
    left = BudgetLeft(evals=10)
    assert decide(silent(), 1.0, left) == "measure"
    assert decide(forecast(2.0, abstain=True), 1.0, left) == "measure"
    assert decide(forecast(2.0), None, left) == "measure"
    assert decide(forecast(1.1, spread=0.5), 1.0, left, rules=NO_AUDIT) == "measure"


def test_scarcity_raises_the_threshold() -> None:
    rules = SelectionRules()
    assert skip_threshold(BudgetLeft(), rules) == rules.skip_below
    assert skip_threshold(BudgetLeft(evals=100, expected=50), rules) == rules.skip_below
    assert skip_threshold(BudgetLeft(evals=0, expected=50), rules) == rules.skip_at_most
    half = skip_threshold(BudgetLeft(evals=25, expected=50), rules)
    assert half == pytest.approx((rules.skip_below + rules.skip_at_most) / 2)
    by_time = skip_threshold(BudgetLeft(gpu_seconds=50, seconds_per_eval=2, expected=50), rules)
    assert by_time == pytest.approx(half)


def test_audits_are_seeded_and_of_the_share() -> None:
    picks = [audited(f"{i:064x}", 1, 0.05) for i in range(4000)]
    assert 0.03 < sum(picks) / 4000 < 0.07
    assert picks == [audited(f"{i:064x}", 1, 0.05) for i in range(4000)]
    assert picks != [audited(f"{i:064x}", 2, 0.05) for i in range(4000)]
    assert decide(forecast(9.0), 1.0, BudgetLeft(), rules=SelectionRules(audit_share=1)) == "audit"


def test_chances_by_hand() -> None:
    item = forecast(1.0, spread=0.2)
    assert chance_below(item, 1.0) == pytest.approx(0.5)
    # One standard deviation below the median of a normal.
    assert chance_below(item, math.exp(-0.2)) == pytest.approx(0.1587, abs=0.002)
    assert chance_below(forecast(1.0, p_valid=0.5), 1.0) == pytest.approx(0.25)
    assert chance_below(silent(), 1.0) == 0.5


def test_expected_gain_by_hand() -> None:
    # At the incumbent's own time the expected improvement of a normal is its scale over sqrt(2 pi).
    assert value_of_measuring(forecast(1.0, spread=0.2), 1.0) == pytest.approx(0.2 / math.sqrt(2 * math.pi), rel=0.01)
    assert value_of_measuring(forecast(1.0, spread=0.4), 1.0) > value_of_measuring(forecast(1.0, spread=0.2), 1.0)
    assert math.isinf(value_of_measuring(silent(), 1.0))


def test_ranking() -> None:
    items = [forecast(3.0), forecast(0.5), silent(), forecast(0.9)]
    assert rank(items, 1.0) == [2, 1, 3, 0]
    assert rank([forecast(3.0), forecast(0.5), forecast(0.9)], None) == [1, 2, 0]


def test_the_honesty_panel_by_hand() -> None:
    common = {"baseline_ms": 1.0, "incumbent_ms": 0.8}
    outcomes = [
        Outcome(forecast=forecast(1.0), decision="measure", latency_ms=1.05, gpu_seconds=2.0, **common),
        Outcome(forecast=forecast(1.0), decision="measure", latency_ms=9.0, gpu_seconds=4.0, **common),
        Outcome(forecast=forecast(2.0), decision="audit", latency_ms=0.4, gpu_seconds=3.0, **common),
        Outcome(forecast=forecast(2.0), decision="audit", latency_ms=2.0, gpu_seconds=3.0, **common),
        Outcome(forecast=forecast(5.0), decision="skip", **common),
        Outcome(forecast=silent(), decision="measure", gpu_seconds=3.0, **common),
    ]
    panel = honesty(outcomes)
    assert (panel.forecasts, panel.judged, panel.abstained, panel.skipped, panel.audited) == (6, 4, 1, 1, 2)
    assert panel.coverage == pytest.approx(2 / 4)
    assert (panel.false_skips, panel.false_skip_rate) == (1, 0.5)
    assert panel.regret == pytest.approx(math.log(2) / 2)
    assert panel.gpu_seconds_saved == pytest.approx(3.0)
    assert panel.brier is not None and panel.ece is not None
    assert honesty([]).coverage is None
