"""The kernel half of the learned centre: what it says, what it leaves out, how it is stored."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilecast.tools.forecast.anchoring import RIDGE, fit_kernel
from tilecast.tools.forecast.anchors import anchors_from, scaling_of
from tilecast.tools.forecast.model import KERNEL_SHARE, WHOLE, Pull, load
from tilecast.tools.forecast.tiers import even_weights

RNG = np.random.default_rng(3)
PROBLEM = np.repeat([0, 1, 2], [20, 30, 10])
FEATURES = RNG.normal(size=(60, 5)) + PROBLEM[:, None]
FEATURES[::7, 2] = math.nan
TARGET = FEATURES[:, 0] + 0.1 * RNG.normal(size=60)
WEIGHT = even_weights(PROBLEM)


def test_leaving_a_problem_out_is_a_fit_without_it() -> None:
    kernel = fit_kernel(FEATURES, TARGET, PROBLEM, WEIGHT)
    strength, level = kernel.without({1})
    kept = PROBLEM != 1
    assert (strength[~kept] == 0).all()
    assert level == pytest.approx(np.average(TARGET[kept], weights=WEIGHT[kept]))
    points = kernel.anchors.points[kept]
    gram = np.exp(-np.abs(points[:, None, :] - points[None, :, :]).sum(axis=2) / kernel.anchors.width)
    again = np.linalg.solve(gram + np.diag(RIDGE / WEIGHT[kept]), TARGET[kept] - level)
    assert strength[kept] == pytest.approx(again, abs=1e-4)


def test_outcomes_of_a_problem_left_out_do_not_matter() -> None:
    other = np.where(PROBLEM == 1, 99.0, TARGET)
    found = [fit_kernel(FEATURES, target, PROBLEM, WEIGHT).predict({1}, PROBLEM == 1) for target in (TARGET, other)]
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_it_learns_and_falls_back_to_the_level_far_away() -> None:
    kernel = fit_kernel(FEATURES, TARGET, PROBLEM, WEIGHT)
    pull = Pull(kernel.anchors, *kernel.without(())[::-1])
    assert np.corrcoef(pull.at(FEATURES), TARGET)[0, 1] > 0.9
    assert pull.at(FEATURES) == pytest.approx(kernel.predict((), PROBLEM >= 0), abs=1e-4)
    # Far out on every axis is as far as the usual range goes, not a guess without bounds.
    assert abs(pull.at(np.full((1, 5), 1e6))[0]) < np.abs(TARGET).max()


def test_missing_features_are_filled_and_marked() -> None:
    scaling = scaling_of(FEATURES)
    assert list(scaling.marked) == [False, False, True, False, False]
    points = scaling.points(np.array([[0.0, 0, math.nan, 0, 0], [0.0, 0, float(scaling.fill[2]), 0, 0]]))
    assert points.shape == (2, 6) and list(points[:, 5]) == [1, 0]
    assert points[0, 2] == points[1, 2]


def test_anchors_go_round_and_others_are_refused() -> None:
    anchors = fit_kernel(FEATURES, TARGET, PROBLEM, WEIGHT).anchors
    stored = anchors.arrays("a/")
    again = anchors_from(stored, "a/", 5)
    assert again.closeness(FEATURES) == pytest.approx(anchors.closeness(FEATURES))
    with pytest.raises(ValueError, match="features"):
        anchors_from(stored, "a/", 6)
    with pytest.raises(ValueError, match="coordinates"):
        anchors_from({**stored, "a/points": stored["a/points"][:, :-1]}, "a/", 5)


def test_the_shipped_models_share_anchors_and_each_leaves_its_problem_out() -> None:
    weights = load()
    whole = weights.models[WHOLE].pull
    assert 0 < KERNEL_SHARE < 1 and (whole.strength != 0).all()
    silent = np.zeros(len(whole.strength), dtype=int)
    for key in weights.trained_on:
        own = weights.models[key].pull
        assert own.anchors is whole.anchors
        silent += own.strength == 0
    # Every anchor belongs to one problem, whose model does not hear it.
    assert (silent == 1).all()
