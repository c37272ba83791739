"""Search policies replayed over a pool: each gives the order in which it would have measured the variants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilecast.sandbox import bins
from tilecast.tools.forecast.ordering import adaptive_order, batch_order, ranked
from tilecast.tools.forecast.predictive import Predictive
from tilecast.tools.study.pool import Pool

Order = list[int]
Policy = Callable[[Pool, int], Order]

LOG_MIDPOINTS = np.log([bins.midpoint(i) for i in range(bins.COUNT)])


def random_order(pool: Pool, seed: int) -> Order:
    """Seeded proposal order: what a run without a forecaster measures."""
    return [int(i) for i in np.random.default_rng(seed).permutation(len(pool))]


def roofline_order(pool: Pool, seed: int) -> Order:
    """By the physical lower estimate of what each candidate's own launches move and multiply; ties in proposal order."""
    proposal = random_order(pool, seed)
    return [proposal[i] for i in ranked([float(pool.bound_ms[j]) for j in proposal])]


def learned_order(pool: Pool, seed: int) -> Order:
    """All at once, before anything is measured."""
    return batch_order(pool.beliefs, seed)


def measured_ratio(pool: Pool) -> Callable[[int], float | None]:
    """What measuring a variant gives: ln(ms / floor), or None if it failed."""
    floor = math.log(pool.floor_ms)

    def measure(index: int) -> float | None:
        speed = float(pool.speeds[index])
        return -math.log(speed) - floor if speed > 0 else None

    return measure


def online_order(pool: Pool, seed: int) -> Order:
    """One at a time, learning from each."""
    return adaptive_order(pool.beliefs, measured_ratio(pool), seed)


def oracle_order(pool: Pool, seed: int) -> Order:
    """The fastest first: what no forecaster can beat."""
    return ranked([-float(s) for s in pool.speeds])


def mean_log_speedup(p: Sequence[float]) -> float:
    """Expected ln speedup of a distribution over the bins, by their midpoints."""
    return float(np.dot(p, LOG_MIDPOINTS) / max(sum(p), 1e-12))


def llm_order(pool: Pool, seed: int) -> Order:
    """By the recorded language model's expected speedup; ties in proposal order."""
    proposal = random_order(pool, seed)
    return [proposal[i] for i in ranked([-mean_log_speedup(pool.llm[j] or [1.0] * 8) for j in proposal])]


def learned_predictives(pool: Pool) -> list[Predictive]:
    """The learned distribution of each variant's log-latency."""
    beliefs = pool.beliefs
    return [
        beliefs.model.predictive(float(c), float(s), pool.floor_ms)
        for c, s in zip(beliefs.centre, beliefs.spread, strict=True)
    ]


POLICIES: dict[str, Policy] = {
    "random": random_order,
    "roofline": roofline_order,
    "learned": learned_order,
    "learned+online": online_order,
    "oracle": oracle_order,
}
