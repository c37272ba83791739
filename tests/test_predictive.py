"""Distributions of log-latency, their bins, and the opinion pool."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from tilecast.sandbox import bins
from tilecast.tools.forecast.ensemble import mixture, sharpened
from tilecast.tools.forecast.llm import predictive_of
from tilecast.tools.forecast.pooling import Pooling, earned, pooled
from tilecast.tools.forecast.predictive import LEVELS, Predictive, range_of, speedup_range

NORMAL = tuple(NormalDist().inv_cdf(p) for p in LEVELS)


def test_cdf_and_quantiles_agree() -> None:
    item = Predictive(0.3, 0.5, NORMAL)
    for level in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert item.cdf(item.quantile(level)) == pytest.approx(level)
    values = [item.cdf(x) for x in np.linspace(-20, 20, 200)]
    assert values == sorted(values) and values[0] == 0 and values[-1] == 1


def test_bins_sum_to_one_and_hold_the_mass() -> None:
    item = Predictive(math.log(0.5), 0.05, NORMAL)
    p = item.bin_probabilities(0.75)
    assert sum(p) == pytest.approx(1) and p.index(max(p)) == bins.bin_of(1.5)


def test_a_speedup_turns_the_interval_round() -> None:
    latency = range_of(Predictive(0.0, 0.3, NORMAL))
    speedup = speedup_range(latency, 2.0)
    assert speedup.median == pytest.approx(2.0) and speedup.low == pytest.approx(2.0 / latency.high)


def test_bins_survive_the_way_through_a_distribution() -> None:
    p = [0.02, 0.05, 0.13, 0.3, 0.3, 0.15, 0.04, 0.01]
    again = predictive_of(p, 1.7).bin_probabilities(1.7)
    assert again == pytest.approx(p, abs=0.02)


def test_a_mixture_lies_between() -> None:
    a, b = Predictive(0.0, 0.1, NORMAL), Predictive(2.0, 0.1, NORMAL)
    both = mixture(a, b, 0.3)
    assert both.cdf(1.0) == pytest.approx(0.7, abs=0.02)
    assert mixture(a, b, 0.0).quantile(0.5) == pytest.approx(0.0, abs=0.02)


GOOD = [0.0, 0.0, 0.0, 0.0, 0.9, 0.1, 0.0, 0.0]
BAD = [0.9, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_the_record_earns_the_weight() -> None:
    assert earned([]) == Pooling()
    assert earned([(BAD, GOOD, 4)] * 50).weight > 0.9
    assert earned([(GOOD, BAD, 4)] * 50).weight < 0.1
    assert 0.5 < earned([(BAD, GOOD, 4)]).weight < 1.0


def test_pooling() -> None:
    assert pooled(GOOD, BAD, Pooling(0.25, 1.0))[4] == pytest.approx(0.675)
    assert pooled(GOOD, BAD, Pooling(0.25, 2.0))[4] > 0.675
    wide = Predictive(1.0, 0.4, NORMAL)
    assert sharpened(wide, 4.0).quantile(0.9) - 1.0 == pytest.approx((wide.quantile(0.9) - 1.0) / 2)
