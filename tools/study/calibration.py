"""How good the probabilities are: bins against eager, the risk-coverage curve, and what skipping by them would have cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilecast.sandbox import bins
from tilecast.tools.study import metrics
from tilecast.tools.study.pool import Pool


@dataclass(frozen=True)
class Judged:
    """One forecast with what came of it. ``guess`` and ``truth`` are log-speedups over the baseline."""

    problem: str
    p: tuple[float, ...]
    outcome: int
    guess: float
    truth: float

    @property
    def confidence(self) -> float:
        """The largest p."""
        return max(self.p)

    @property
    def called(self) -> int:
        """The likeliest bin; the first among equals."""
        return self.p.index(max(self.p))


def judge(
    pool: Pool, forecasts: Sequence[Sequence[float] | None], guesses: Sequence[float] | None = None
) -> list[Judged]:
    """Pair bin forecasts with outcomes, for variants that passed. A guess is the expected log-speedup if none is given."""
    if pool.baseline_ms is None:
        return []
    found = []
    middles = np.log([bins.midpoint(i) for i in range(bins.COUNT)])
    for index, p in enumerate(forecasts):
        if p is None or pool.speeds[index] <= 0:
            continue
        speedup = pool.baseline_ms * float(pool.speeds[index])
        total = sum(p)
        even = tuple(v / total for v in p)
        guess = guesses[index] if guesses is not None else float(np.dot(even, middles))
        found.append(Judged(pool.name, even, bins.bin_of(speedup), guess, math.log(speedup)))
    return found


def summary(judged: Sequence[Judged]) -> dict[str, float]:
    """The contract's ``forecaster`` block. ``spearman`` is the mean over problems of the rank correlation with the truth."""
    if not judged:
        return dict.fromkeys(("exact", "within_one", "brier", "crps", "ece", "spearman", "risk_at_60"), math.nan) | {
            "forecasts": 0
        }
    confidence, correct = [j.confidence for j in judged], [j.called == j.outcome for j in judged]
    by_problem: dict[str, list[Judged]] = {}
    for item in judged:
        by_problem.setdefault(item.problem, []).append(item)
    ranks = [metrics.spearman([j.guess for j in g], [j.truth for j in g]) for g in by_problem.values()]
    known = [r for r in ranks if not math.isnan(r)]
    count = len(judged)
    return {
        "exact": sum(correct) / count,
        "within_one": sum(abs(j.called - j.outcome) <= 1 for j in judged) / count,
        "brier": sum(metrics.half_brier(j.p, j.outcome) for j in judged) / count,
        "crps": sum(metrics.crps(j.p, j.outcome) for j in judged) / count,
        "ece": metrics.expected_calibration_error(confidence, correct),
        "spearman": sum(known) / len(known) if known else math.nan,
        "risk_at_60": metrics.risk_at(confidence, correct),
        "forecasts": count,
    }


def reliability(judged: Sequence[Judged], groups: int = metrics.ECE_BINS) -> list[dict[str, float]]:
    """Mean confidence and accuracy by equal bins of the largest p, for a plot."""
    table: dict[int, list[Judged]] = {}
    for item in judged:
        table.setdefault(min(int(item.confidence * groups), groups - 1), []).append(item)
    return [
        {
            "confidence": sum(j.confidence for j in g) / len(g),
            "accuracy": sum(j.called == j.outcome for j in g) / len(g),
            "count": len(g),
        }
        for _, g in sorted(table.items())
    ]


def curve(judged: Sequence[Judged]) -> list[dict[str, float]]:
    """Risk by coverage."""
    confidence, correct = [j.confidence for j in judged], [j.called == j.outcome for j in judged]
    return [{"coverage": c, "risk": r} for c, r in metrics.risk_coverage(confidence, correct)] if judged else []


@dataclass(frozen=True)
class Bout:
    """One question "does this beat the incumbent?" with the forecast chance and the answer."""

    chance: float
    beats: bool
    seconds: float


def bouts(pool: Pool, chances: Sequence[Sequence[float]], seed: int, start_ms: float | None) -> list[Bout]:
    """Variants in seeded proposal order against the best so far. ``chances[i](log incumbent)`` is tabulated by the caller as
    ``chances[i][k]``, the probability that variant i beats variant k; column n stands for ``start_ms``.
    """
    best, best_ms = len(pool), start_ms
    found = []
    for index in np.random.default_rng(seed).permutation(len(pool)):
        ms = 1 / pool.speeds[index] if pool.speeds[index] > 0 else math.inf
        beats = best_ms is None or ms < best_ms
        if best_ms is not None:
            found.append(Bout(chances[index][best], beats, float(pool.seconds[index])))
        if beats and math.isfinite(ms):
            best, best_ms = int(index), ms
    return found


def false_skips_at(found: Sequence[Bout], coverage: float = metrics.COVERAGE) -> float:
    """Among the most confident share of the answers (by distance of the chance from even), the share of "skip" that was wrong."""
    order = sorted(range(len(found)), key=lambda i: -abs(found[i].chance - 0.5))[
        : metrics.measured_count(coverage, len(found))
    ]
    skipped = [found[i] for i in order if found[i].chance < 0.5]
    return sum(b.beats for b in skipped) / len(skipped) if skipped else 0.0


def skipping(found: Sequence[Bout], below: float) -> dict[str, Any]:
    """What skipping everything under a chance would have done."""
    skipped = [b for b in found if b.chance < below]
    return {
        "skip_below": below,
        "skipped_share": len(skipped) / len(found) if found else 0.0,
        "false_skips": sum(b.beats for b in skipped) / len(skipped) if skipped else 0.0,
        "gpu_seconds_saved_share": sum(b.seconds for b in skipped) / max(sum(b.seconds for b in found), 1e-12),
    }
