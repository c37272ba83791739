"""The study's figures against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilecast.tools.study import metrics


def test_how_many_are_measured() -> None:
    assert [metrics.measured_count(q, 110) for q in (0.01, 0.05, 0.10, 0.25, 0.50)] == [2, 6, 11, 28, 55]
    assert [metrics.measured_count(q, 100) for q in (0.01, 0.05, 0.10, 0.25, 0.50)] == [1, 5, 10, 25, 50]
    assert metrics.measured_count(0.01, 3) == 1


def test_recovery_by_hand() -> None:
    speeds = np.array([1.0, 4.0, 0.0, 8.0] + [1.0] * 16)
    order = [0, 1, 3, 2, *range(4, 20)]
    # 20 variants: the first 1, 1, 2, 5 and 10 are measured.
    found = metrics.recovery(order, speeds)
    assert list(found.values()) == [1 / 8, 1 / 8, 4 / 8, 1.0, 1.0]


def test_recovery_needs_something_that_works() -> None:
    with pytest.raises(ValueError, match="no variant passed"):
        metrics.recovery([0, 1], np.zeros(2))


def test_evaluations_to_95_percent() -> None:
    speeds = np.array([0.94, 0.95, 1.0, 0.0])
    assert metrics.evals_to([3, 0, 1, 2], speeds) == 3
    assert metrics.evals_to([2, 0, 1, 3], speeds) == 1
    assert metrics.best_after([3, 0, 1, 2], speeds, 2) == 0.94


def test_geometric_mean() -> None:
    assert metrics.geometric_mean([1, 4]) == pytest.approx(2)
    assert math.isnan(metrics.geometric_mean([]))


P = [0.0, 0.0, 0.1, 0.2, 0.5, 0.2, 0.0, 0.0]


def test_half_brier_by_hand() -> None:
    # 0.5 * (0.01 + 0.04 + 0.25 + 0.04)
    assert metrics.half_brier(P, 4) == pytest.approx(0.5 * (0.01 + 0.04 + 0.25 + 0.04))
    assert metrics.half_brier(P, 0) == pytest.approx(0.5 * (1 + 0.01 + 0.04 + 0.25 + 0.04))


def test_crps_by_hand() -> None:
    # Cumulative at the seven inner edges: 0 0 0.1 0.3 0.8 1 1; the outcome lies below edges 4, 5 and 6.
    assert metrics.crps(P, 4) == pytest.approx((0 + 0 + 0.01 + 0.09 + 0.04 + 0 + 0) / 7)
    assert metrics.crps([0, 0, 0, 0, 0, 0, 0, 1.0], 0) == pytest.approx(1.0)


def test_calibration_error_by_hand() -> None:
    confidence, correct = [0.95, 0.91, 0.55, 0.52], [True, False, True, True]
    # Bin 9: confidence 0.93, accuracy 0.5; bin 5: confidence 0.535, accuracy 1.
    expected = (2 * abs(0.5 - 0.93) + 2 * abs(1 - 0.535)) / 4
    assert metrics.expected_calibration_error(confidence, correct) == pytest.approx(expected)
    assert metrics.expected_calibration_error([1.0], [True]) == 0


def test_risk_by_coverage() -> None:
    confidence, correct = [0.9, 0.8, 0.7, 0.6, 0.5], [True, True, False, True, False]
    assert metrics.risk_at(confidence, correct, 0.6) == pytest.approx(1 / 3)
    assert metrics.risk_at(confidence, correct, 1.0) == pytest.approx(2 / 5)
    assert metrics.risk_coverage(confidence, correct, steps=5)[0] == (0.2, 0.0)


def test_spearman_with_ties() -> None:
    assert metrics.spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert metrics.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # Ranks 1.5 1.5 3 against 1 2 3.
    assert metrics.spearman([5, 5, 9], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)
    assert math.isnan(metrics.spearman([1, 1], [1, 2]))
