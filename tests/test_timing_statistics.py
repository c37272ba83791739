"""The statistics of a comparison: exact pieces against known values, the whole against a simulated device."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecast.sandbox.harness.judge.timing.sampling import (
    Leg,
    NothingUsable,
    Sampler,
    SamplingPlan,
    Side,
    calls_per_leg,
)
from tilecast.sandbox.harness.judge.timing.simulation import SimulatedDevice
from tilecast.sandbox.harness.judge.timing.statistics import (
    Comparison,
    Design,
    block_log_ratio,
    bootstrap_interval,
    classify,
    leg_ms,
    midmean,
    signed_rank_interval,
    signed_rank_tail,
    student_quantile,
)

HARD = {"drift_per_s": 0.03, "spike_share": 0.2}
"""3 % drift a second, and a fifth of the calls 1.5 to 3 times as long."""


def verdicts(count: int, **device: float) -> list[str]:
    found = []
    for seed in range(count):
        source = SimulatedDevice(seed=1000 + seed, **device)  # type: ignore[arg-type]
        found.append(Sampler(source, SamplingPlan(), Design()).run().estimate.verdict)
    return found


@pytest.mark.parametrize(
    ("n", "alpha", "expected"), [(6, 0.05, 1), (10, 0.05, 9), (12, 0.05, 14), (20, 0.05, 53), (5, 0.05, 0)]
)
def test_signed_rank_tail_against_published_tables(n: int, alpha: float, expected: int) -> None:
    # The table of critical values (two-sided 5 %) gives the largest w with P(T+ <= w) <= 2.5 %: one less than the tail here.
    assert signed_rank_tail(n, alpha) == expected


def test_normal_approximation_continues_the_exact_tail() -> None:
    exact, approximate = signed_rank_tail(60, 0.01), signed_rank_tail(61, 0.01)
    assert 0 < approximate - exact < 40


def test_signed_rank_interval_covers_the_centre_as_often_as_it_says() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(2000):
        low, high = signed_rank_interval(generator.standard_cauchy(12), 0.05)
        covered += low <= 0 <= high
    assert 0.94 <= covered / 2000 <= 0.985


@pytest.mark.parametrize(
    ("df", "p", "expected"), [(1, 0.975, 12.706), (4, 0.975, 2.776), (9, 0.995, 3.250), (30, 0.975, 2.042)]
)
def test_student_quantiles(df: int, p: float, expected: float) -> None:
    assert student_quantile(df, p) == pytest.approx(expected, abs=2e-3)


def test_midmean_ignores_a_quarter_on_each_side() -> None:
    values = np.array([0.0, 1.0, 2.0, 3.0, 1e9, -1e9, 1.0, 2.0])
    assert midmean(values) == pytest.approx(1.5)
    assert midmean(np.array([1.0, 9.0, 2.0])) == 2.0


def test_bootstrap_is_seeded() -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert bootstrap_interval(values, 0.05, 500, 7) == bootstrap_interval(values, 0.05, 500, 7)
    assert bootstrap_interval(values, 0.05, 500, 7) != bootstrap_interval(values, 0.05, 500, 8)


def test_linear_drift_cancels_in_a_block() -> None:
    assert block_log_ratio((math.exp(0.0), math.exp(0.3)), (math.exp(0.1), math.exp(0.2))) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.995, 1.004, "same"),
        (1.002, 1.008, "same"),
        (1.002, 1.02, "faster"),
        (0.9, 0.99, "slower"),
        (0.98, 1.02, "undecided"),
    ],
)
def test_verdict_of_an_interval(low: float, high: float, verdict: str) -> None:
    assert classify(low, high, 0.01) == verdict


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [1.0, -2.0], [0.0], [math.inf]])
def test_impossible_times_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"positive|without"):
        leg_ms(np.array(bad))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=60), st.integers(1, 60))
def test_the_error_spent_never_exceeds_the_design(values: list[float], step: int) -> None:
    comparison = Comparison(Design(resamples=50))
    for index, value in enumerate(values):
        comparison.add((1.0,), (math.exp(value),))
        if index % step == 0:
            comparison.look((index + 1) / len(values))
    estimate = comparison.look(1.0, final=True)
    assert estimate.alpha_spent <= comparison.design.alpha + 1e-12
    assert estimate.low <= estimate.ratio <= estimate.high


@pytest.mark.parametrize("baseline_ms", [0.02, 0.2, 2.0])
def test_equal_kernels_are_rarely_called_different(baseline_ms: float) -> None:
    found = verdicts(80, baseline_ms=baseline_ms, **HARD)
    assert found.count("faster") + found.count("slower") <= 4
    assert found.count("same") >= 60


def test_equal_kernels_in_processes_that_differ_a_little() -> None:
    wrong = 0
    for seed in range(60):
        bias = math.exp(np.random.default_rng(seed).normal(0.0, 0.002))
        source = SimulatedDevice(seed=seed, baseline_ms=0.2, ratio=bias, **HARD)  # type: ignore[arg-type]
        wrong += Sampler(source, SamplingPlan(), Design()).run().estimate.verdict in ("faster", "slower")
    assert wrong <= 3


def test_short_kernels_that_lie_elsewhere_are_not_called_different_and_do_not_use_up_the_budget() -> None:
    design, plan = Design(systematic_ms=0.0004), SamplingPlan(max_seconds=5.0)
    for seed in range(60):
        bias = math.exp(np.random.default_rng(seed).uniform(-0.0125, 0.0125))
        source = SimulatedDevice(seed=seed, baseline_ms=0.026, ratio=bias, noise=0.01)
        found = Sampler(source, plan, design).run()
        assert found.estimate.verdict == "undecided" and found.estimate.final
        assert found.seconds < 1.0


def test_a_short_kernel_that_is_clearly_faster_is_found_and_a_long_one_loses_nothing() -> None:
    design = Design(systematic_ms=0.0004)
    short = Sampler(SimulatedDevice(baseline_ms=0.026, ratio=1.06), SamplingPlan(), design).run().estimate
    assert short.verdict == "faster"
    long = Sampler(SimulatedDevice(baseline_ms=1.0, noise=0.003), SamplingPlan(), design).run().estimate
    assert long.verdict == "same"


@pytest.mark.parametrize(("ratio", "right"), [(1.03, "faster"), (1 / 1.03, "slower")])
def test_three_percent_are_found(ratio: float, right: str) -> None:
    found = verdicts(80, baseline_ms=1.0, ratio=ratio, noise=0.02, **HARD)
    assert found.count(right) >= 68


def test_few_long_calls_stay_within_the_budget_and_claim_little() -> None:
    wrong = 0
    for seed in range(200):
        device = SimulatedDevice(baseline_ms=1500.0, seed=seed, **HARD)  # type: ignore[arg-type]
        result = Sampler(device, SamplingPlan(), Design()).run()
        assert result.seconds < 20.0 + 4 * 1.5 * 3
        wrong += result.estimate.verdict in ("faster", "slower")
    assert wrong <= 10


def test_a_big_difference_ends_at_the_first_look() -> None:
    result = Sampler(SimulatedDevice(baseline_ms=1.0, ratio=2.0), SamplingPlan(), Design()).run()
    assert result.estimate.verdict == "faster"
    assert result.estimate.blocks == Design().first_look_blocks
    assert result.estimate.ratio == pytest.approx(2.0, rel=0.02)


class Flagged(SimulatedDevice):
    """A device whose every third leg ran under a throttled clock, twice as slow for the candidate."""

    count = 0

    def leg(self, side: Side, calls: int) -> Leg:
        leg = super().leg(side, calls)
        self.count += 1
        if self.count % 3 or side == "baseline":
            return leg
        return Leg(side, leg.calls_ms * 2, leg.judge_ms, discard="clock throttled: power cap")


def test_flagged_legs_do_not_count_and_are_reported() -> None:
    result = Sampler(Flagged(baseline_ms=1.0, noise=0.003), SamplingPlan(), Design()).run()
    assert result.estimate.verdict == "same"
    assert result.discarded["clock throttled: power cap"] > 0


def test_a_comparison_without_a_usable_block_says_so() -> None:
    class Bad(SimulatedDevice):
        def leg(self, side: Side, calls: int) -> Leg:
            leg = super().leg(side, calls)
            return Leg(side, leg.calls_ms, leg.judge_ms, discard="another process uses the device")

    with pytest.raises(NothingUsable, match="another process"):
        Sampler(Bad(baseline_ms=5.0), SamplingPlan(max_seconds=1.0), Design()).run()


@pytest.mark.parametrize(("call_s", "calls"), [(1e-5, 24), (1e-3, 5), (0.1, 4), (10.0, 1)])
def test_leg_size_follows_the_budget(call_s: float, calls: int) -> None:
    assert calls_per_leg(call_s, SamplingPlan(), 10) == calls
