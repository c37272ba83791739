"""Clocks that must agree: a process that understates its times is caught from outside, as far as that clock can see."""

from __future__ import annotations

import numpy as np
import pytest

from tilecast.sandbox.harness.judge.timing.clocks import ClockReport, LegClocks, compare

EMPTY_CALL_MS, HAND_OVER_MS = 0.11, 0.06


def legs(
    true_ms: float, *, claimed_ms: float | None = None, worker_scale: float = 1.0, seed: int = 1
) -> list[LegClocks]:
    """Legs of 8 calls whose inner clock says ``claimed_ms`` while calls take ``true_ms``."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(20):
        wall = HAND_OVER_MS + 8 * (true_ms + EMPTY_CALL_MS) + generator.exponential(0.01)
        made.append(LegClocks(8, 8 * (claimed_ms or true_ms), (wall - HAND_OVER_MS) * worker_scale, wall))
    return made


def compared(candidate: list[LegClocks], baseline_ms: float | None = None) -> ClockReport:
    inner = candidate[0].inner_ms / candidate[0].calls
    return compare(candidate, legs(inner if baseline_ms is None else baseline_ms, seed=9), empty(), "cuda")


def empty() -> dict[int, list[float]]:
    generator = np.random.default_rng(2)
    return {8: [HAND_OVER_MS + 8 * EMPTY_CALL_MS + generator.exponential(0.01) for _ in range(8)], 16: []}


@pytest.mark.parametrize("true_ms", [0.002, 0.02, 0.2, 2.0, 200.0])
def test_honest_clocks_agree(true_ms: float) -> None:
    report = compared(legs(true_ms))
    assert report.disagreement == ""
    assert report.judge_ms == pytest.approx(true_ms, abs=0.004)


@pytest.mark.parametrize(("true_ms", "claimed_ms"), [(0.1, 0.05), (0.05, 0.001), (2.0, 1.5), (20.0, 15.0)])
def test_an_understated_time_is_caught(true_ms: float, claimed_ms: float) -> None:
    report = compared(legs(true_ms, claimed_ms=claimed_ms))
    assert f"{claimed_ms:.4g}" in report.disagreement and "judge" in report.disagreement


def test_it_says_when_a_call_is_too_short_to_police() -> None:
    assert not compared(legs(0.005)).polices
    assert compared(legs(0.05)).polices


def test_overstating_ones_own_time_is_no_concern() -> None:
    assert compared(legs(1.0, claimed_ms=1.4)).disagreement == ""


@pytest.mark.parametrize("scale", [0.001, 0.5, 3.0])
def test_a_forged_wall_clock_is_caught(scale: float) -> None:
    assert "wall clock" in compared(legs(1.0, worker_scale=scale)).disagreement


def test_each_leg_size_needs_its_empty_leg() -> None:
    with pytest.raises(ValueError, match=r"\[8\]"):
        compare(legs(1.0), legs(1.0), {16: [1.0]}, "cpu")
    with pytest.raises(ValueError, match="no leg"):
        compare([], legs(1.0), empty(), "cpu")


def test_a_busy_machine_is_not_a_lie() -> None:
    """Both processes are interrupted between calls: a third of the time is unexplained on either side."""

    def interrupted(seed: int) -> list[LegClocks]:
        return [LegClocks(8, 8.0, leg.worker_ms + 4.0, leg.judge_ms + 4.0) for leg in legs(1.0, seed=seed)]

    report = compare(interrupted(1), interrupted(2), empty(), "cpu")
    assert report.disagreement == "" and not report.polices
