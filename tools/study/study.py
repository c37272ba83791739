"""``tilecast study``: search policies and forecasts replayed over recorded measurements, as one JSON document."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilecast.sandbox import bins
from tilecast.tools.forecast.excess import excess, log_ratio
from tilecast.tools.forecast.ordering import adaptive_order
from tilecast.tools.forecast.pooling import Pair, Pooling, earned, pooled
from tilecast.tools.study import calibration, metrics
from tilecast.tools.study.calibration import Judged
from tilecast.tools.study.policies import (
    POLICIES,
    Order,
    Policy,
    learned_predictives,
    llm_order,
    mean_log_speedup,
    measured_ratio,
)
from tilecast.tools.study.pool import Pool, forecast_pool

SEEDS = 20
BUDGETS = (10, 20, 40)
HEADLINE_BUDGET = 20
"""``best_speedup`` is read after this many evaluations."""

FIXED = frozenset({"oracle"})
"""Policies that no seed changes."""

Say = Callable[[str], None]


@dataclass
class Replay:
    """Figures of one policy on one problem, averaged over seeds."""

    recovery: dict[float, float]
    evals_to_95: float
    best: dict[int, float] = field(default_factory=dict)
    """Best speedup over eager by budget (geometric mean over seeds); empty without a baseline."""
    share: dict[int, float] = field(default_factory=dict)
    """The same over the pool's best."""


def replay(pool: Pool, policy: Policy, seeds: int) -> Replay:
    """Run a policy over a pool with seeds 0 to ``seeds - 1``."""
    orders = [policy(pool, seed) for seed in range(seeds)]
    curves = [metrics.recovery(order, pool.speeds) for order in orders]
    found = Replay(
        recovery={q: float(np.mean([c[q] for c in curves])) for q in metrics.QUANTILES},
        evals_to_95=float(np.mean([metrics.evals_to(order, pool.speeds) for order in orders])),
    )
    top, slowest = float(pool.speeds.max()), float(pool.speeds[pool.speeds > 0].min())
    for budget in BUDGETS:
        # A search that found nothing that works is counted as the slowest variant, so that a mean of logs exists.
        best = metrics.geometric_mean(
            [max(metrics.best_after(order, pool.speeds, budget), slowest) for order in orders]
        )
        found.share[budget] = best / top
        if pool.baseline_ms is not None:
            found.best[budget] = best * pool.baseline_ms
    return found


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) or math.isinf(value) else round(value, 5)


def policy_document(replays: Mapping[str, Replay], pool_kind: str, seconds: float) -> dict[str, Any]:
    """One policy's block: means over problems, then each problem."""
    every = list(replays.values())
    recovery = {f"{q:.2f}": float(np.mean([r.recovery[q] for r in every])) for q in metrics.QUANTILES}
    recovery["mean"] = float(np.mean(list(recovery.values())))
    with_base = [r for r in every if r.best]
    return {
        "recovery": {k: _rounded(v) for k, v in recovery.items()},
        "evals_to_95": _rounded(metrics.geometric_mean([r.evals_to_95 for r in every])),
        "best_speedup": _rounded(metrics.geometric_mean([r.best[HEADLINE_BUDGET] for r in with_base])),
        "best_speedup_at": {str(b): _rounded(metrics.geometric_mean([r.best[b] for r in with_base])) for b in BUDGETS},
        "share_of_best_at": {str(b): _rounded(metrics.geometric_mean([r.share[b] for r in every])) for b in BUDGETS},
        "pool": pool_kind,
        "seconds": round(seconds, 3),
        "per_problem": {
            name: {
                "recovery": {f"{q:.2f}": _rounded(v) for q, v in r.recovery.items()}
                | {"mean": _rounded(float(np.mean(list(r.recovery.values()))))},
                "evals_to_95": _rounded(r.evals_to_95),
                "best_speedup": _rounded(r.best.get(HEADLINE_BUDGET, math.nan)),
                "share_of_best_at": {str(b): _rounded(v) for b, v in r.share.items()},
            }
            for name, r in replays.items()
        },
    }


def run_policies(
    pools: Sequence[Pool], policies: Mapping[str, Policy], seeds: int, kind: str, say: Say
) -> dict[str, Any]:
    """Blocks of several policies over the same pools; those that need a model skip pools without one."""
    found: dict[str, Any] = {}
    for name, policy in policies.items():
        started = time.perf_counter()
        usable = [p for p in pools if p.model is not None or not name.startswith(("learned", "ensemble"))]
        if not usable:
            continue
        replays = {p.name: replay(p, policy, 1 if name in FIXED else seeds) for p in usable}
        found[name] = policy_document(replays, kind, time.perf_counter() - started)
        say(f"{name}: recovery {found[name]['recovery']['mean']:.4f} over {len(usable)} problems ({kind} pools)")
    return found


def learned_bins(pool: Pool) -> list[list[float]]:
    """Bin probabilities of every variant by the model that never saw the problem."""
    base = pool.baseline_ms
    assert base is not None
    return [p.bin_probabilities(base) for p in learned_predictives(pool)]


def ensemble_policy(poolings: Mapping[str, Pooling]) -> Policy:
    """Adaptive, on the pooled expected log-speedup; share and sharpness are what the other problems' record earned.

    The pooled error is the sum of both, each by its share and taken as equally large: its spread is smaller by the root of the
    summed squares (and by that of the exponent), and only the learned part of it is correlated between candidates.
    """

    def order(pool: Pool, seed: int) -> Order:
        how, alone = poolings[pool.name], pool.beliefs
        floor = math.log(pool.floor_ms)
        told = [mean_log_speedup(p or [1.0] * bins.COUNT) for p in pool.llm]
        other = math.log(pool.baseline_ms or 1.0) - np.array(told) - floor
        mean = (1 - how.weight) * log_ratio(alone.centre) + how.weight * other
        squares = (1 - how.weight) ** 2 + how.weight**2
        learned = (1 - how.weight) ** 2 / squares
        both = replace(
            alone,
            centre=excess(np.maximum(mean, 0.0)),
            spread=alone.spread * math.sqrt(squares / how.exponent),
            prior=learned * alone.prior + (1 - learned) * np.eye(len(mean)),
        )
        # A pooled opinion may rank a candidate second that neither holds to be the fastest: the model's own choice comes first.
        return adaptive_order(both, measured_ratio(pool), seed, favourites=llm_order(pool, seed)[:1])

    return order


def record_of(pools: Sequence[Pool]) -> dict[str, list[Pair]]:
    """What both forecasters said and what came, by problem."""
    found: dict[str, list[Pair]] = {}
    for pool in pools:
        if pool.baseline_ms is None or pool.model is None:
            continue
        own = learned_bins(pool)
        found[pool.name] = [
            (own[i], p, bins.bin_of(pool.baseline_ms * float(pool.speeds[i])))
            for i, p in enumerate(pool.llm)
            if p is not None and pool.speeds[i] > 0
        ]
    return found


def earned_elsewhere(pools: Sequence[Pool]) -> dict[str, Pooling]:
    """How to pool on each problem: what the record on the others earned."""
    record = record_of(pools)
    return {
        name: earned([pair for other, pairs in record.items() if other != name for pair in pairs]) for name in record
    }


def forecaster_blocks(
    pools: Sequence[Pool], parts: Sequence[Pool], poolings: Mapping[str, Pooling]
) -> dict[str, list[Judged]]:
    """Judged forecasts by forecaster: learned on all variants, and all three on those that the language model saw."""
    usable = [p for p in pools if p.model is not None and p.baseline_ms is not None]
    found: dict[str, list[Judged]] = {"learned": []}
    for pool in usable:
        guesses = [math.log(pool.baseline_ms or 1.0) - p.quantile(0.5) for p in learned_predictives(pool)]
        found["learned"] += calibration.judge(pool, learned_bins(pool), guesses)
    for part in parts:
        if part.model is None or part.baseline_ms is None:
            continue
        own = learned_bins(part)
        mixed = [pooled(a, b or a, poolings[part.name]) for a, b in zip(own, part.llm, strict=True)]
        for name, given in (("learned (default CONFIG)", own), ("llm", part.llm), ("ensemble", mixed)):
            found.setdefault(name, []).extend(calibration.judge(part, given))
    return {name: judged for name, judged in found.items() if judged}


def skip_figures(pools: Sequence[Pool], seeds: int) -> dict[str, Any]:
    """Skipping confident losers in seeded proposal order: how often it was wrong, and what it saved."""
    found: list[calibration.Bout] = []
    for pool in (p for p in pools if p.model is not None):
        predictives = learned_predictives(pool)
        targets = [*pool.log_ms, math.log(pool.baseline_ms) if pool.baseline_ms else math.inf]
        chances = [[p.cdf(t) if math.isfinite(t) else 1.0 for t in targets] for p in predictives]
        for seed in range(seeds):
            found += calibration.bouts(pool, chances, seed, pool.baseline_ms)
    if not found:
        return {}
    return {
        "false_skips_at_60": _rounded(calibration.false_skips_at(found)),
        "by_threshold": [calibration.skipping(found, below) for below in (0.02, 0.05, 0.1, 0.2)],
    }


def study(pools: Sequence[Pool], seeds: int = SEEDS, say: Say = lambda _: None) -> dict[str, Any]:
    """The whole document (without ``schema`` and notes)."""
    parts = [part for pool in pools if (part := forecast_pool(pool)) is not None]
    policies = run_policies(pools, POLICIES, seeds, "all", say)
    poolings = earned_elsewhere(parts)
    default: dict[str, Any] = {}
    if parts:
        both = [p for p in parts if p.name in poolings]
        extra: dict[str, Policy] = {"llm": llm_order}
        default = run_policies(parts, {**POLICIES, **extra}, seeds, "forecast", say)
        if both:
            default |= run_policies(both, {"ensemble": ensemble_policy(poolings)}, seeds, "forecast", say)
        policies |= {name: default[name] for name in ("llm", "ensemble") if name in default}
    judged = forecaster_blocks(pools, parts, poolings)
    summaries = {name: {k: _rounded(v) for k, v in calibration.summary(j).items()} for name, j in judged.items()}
    blank = {k: _rounded(v) for k, v in calibration.summary([]).items()}
    return {
        "problems": [p.name for p in pools],
        "seeds": seeds,
        "policies": policies,
        "forecast_pools": default,
        "forecaster": summaries.get("learned", blank),
        "forecasters": summaries,
        "reliability": {name: calibration.reliability(j) for name, j in judged.items()},
        "risk_coverage": {name: calibration.curve(j) for name, j in judged.items()},
        "selection": skip_figures(pools, min(seeds, 5)),
        "pooling": {name: {"llm_share": p.weight, "exponent": p.exponent} for name, p in poolings.items()},
    }
