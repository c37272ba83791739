"""Fitting the forecaster: trees under physical monotonicity and a kernel, residuals on unseen problems, their spread.

Needs LightGBM (the ``train`` extra); imported only here. Few settings, chosen once on plausibility and held for every fold.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilecast.sandbox.errors import UsageError
from tilecast.tools.forecast.anchoring import RIDGE, Kernel, fit_kernel
from tilecast.tools.forecast.dataset import ProblemExamples, Table, table_of
from tilecast.tools.forecast.model import KERNEL_SHARE, WHOLE, Correlation, Model, Pull, Weights
from tilecast.tools.forecast.posterior import log_likelihood
from tilecast.tools.forecast.predictive import LEVELS
from tilecast.tools.forecast.tiers import Rows, even_weights, rows_of
from tilecast.tools.forecast.trees import Trees, from_lightgbm

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Say = Callable[[str], None]

MONOTONE = frozenset(
    {"t_bound", "t_dram", "t_cache", "t_tensor", "t_scalar", "t_special", "t_latency", "t_in_flight", "t_spill",
    "t_host", "t_launch",
     "load_waste", "store_waste", "spills", "wasted", "imbalance", "strided_ops", "atomics"}
)  # fmt: skip
"""More of these cannot make a kernel faster, all else equal: the trees are held to it."""

CENTRE = {"n_estimators": 150, "learning_rate": 0.06, "num_leaves": 14, "min_child_samples": 25,
"colsample_bytree": 0.4,
          "subsample": 0.7, "subsample_freq": 1, "reg_lambda": 5.0, "objective": "huber", "alpha": 1.0}  # fmt: skip
RANDOM_SPLITS = {**CENTRE, "n_estimators": 150, "learning_rate": 0.1, "extra_trees": True}
"""The centre is the mean of trees with best and trees with random thresholds (Geurts et al. 2006): their errors differ."""

SPREAD = {"n_estimators": 60, "learning_rate": 0.06, "num_leaves": 6, "min_child_samples": 60, "colsample_bytree": 0.4,
          "subsample": 0.7, "subsample_freq": 1, "reg_lambda": 20.0, "objective": "regression"}  # fmt: skip
VALID = {"n_estimators": 40, "learning_rate": 0.06, "num_leaves": 4, "min_child_samples": 60, "colsample_bytree": 0.4,
         "subsample": 0.7, "subsample_freq": 1, "reg_lambda": 20.0, "objective": "binary"}  # fmt: skip
SEEDS = 3
SMALLEST_RESIDUAL = 0.05
"""Residuals below this say nothing about the spread: near the floor measurement noise is about as large."""

POWERS = (1.0, 2.0, 4.0, 8.0, 16.0)
SHARES = ((0.02, 0.05, 0.1, 0.2), (0.1, 0.2, 0.3), (0.3, 0.4, 0.5, 0.6, 0.7))
LEAST_NOISE = 0.04
"""Grid of the residual's shares (problem, family, similar); what is left is noise."""

MEAN_LOG_ABS_NORMAL = -0.635
"""Mean of ln|z| for a standard normal: turns a mean log-residual into the log of a standard deviation."""


def require_lightgbm() -> Any:
    """The training library.

    Raises:
        UsageError: if it is not installed, naming the extra.
    """
    try:
        import lightgbm
    except ImportError as error:
        raise UsageError("training needs LightGBM, which is not installed: pip install 'tilecast[train]'") from error
    return lightgbm


def _fit(names: Sequence[str], rows: Rows, target: Floats, settings: dict[str, Any]) -> Trees:
    return from_lightgbm(_boosters(names, rows, target, settings, 1))


def _fit_centre(table: Table, rows: Rows, seeds: int) -> Trees:
    kinds, target = (CENTRE, RANDOM_SPLITS), table.target[rows.index]
    return from_lightgbm([b for kind in kinds for b in _boosters(table.names, rows, target, kind, seeds)])


def _boosters(
    names: Sequence[str], rows: Rows, target: Floats, settings: dict[str, Any], seeds: int
) -> list[Mapping[str, Any]]:
    """One dumped booster a seed, for one target a row; the centre's are held to monotonicity."""
    lightgbm = require_lightgbm()
    regression = settings["objective"] != "binary"
    kind = lightgbm.LGBMRegressor if regression else lightgbm.LGBMClassifier
    constraints: dict[str, Any] = {}
    if settings["objective"] == CENTRE["objective"]:
        constraints = {"monotone_constraints": [int(n in MONOTONE) for n in names]}
    dumps: list[Mapping[str, Any]] = []
    for seed in range(seeds):
        model = kind(
            **settings, **constraints, random_state=seed, n_jobs=1, verbose=-1, deterministic=True, force_row_wise=True
        )
        model.fit(rows.features, target, sample_weight=even_weights(rows.problem))
        dumps.append(model.booster_.dump_model())
    return dumps


@dataclass(frozen=True)
class Centres:
    """Centre learners for every set of problems left out, and the rows of all examples that passed."""

    rows: Rows
    trees: Mapping[frozenset[int], Trees]
    kernel: Kernel

    def trees_for(self, excluded: frozenset[int], problem: int) -> Trees:
        """Trees that saw neither; where no pairs were fitted, those that did not see the problem."""
        return self.trees.get(excluded | {problem}) or self.trees[frozenset({problem})]

    def residuals(self, table: Table, excluded: frozenset[int]) -> Floats:
        """Of every row by learners that saw neither its problem nor ``excluded``; NaN for rows of ``excluded``."""
        found = np.full(len(self.rows.index), np.nan)
        for problem in range(len(table.keys)):
            own = self.rows.problem == problem
            if problem in excluded or not own.any():
                continue
            trees = self.trees_for(excluded, problem).predict(self.rows.features[own])
            kernel = self.kernel.predict(excluded | {problem}, own)
            centre = (1 - KERNEL_SHARE) * trees + KERNEL_SHARE * kernel
            found[own] = table.target[self.rows.index[own]] - centre
        return found


def fit_centres(table: Table, say: Say, folds: bool = True, strict: bool = True) -> Centres:
    """Learners by the set of problems that was left out: none, each one, and (for honest spreads) each pair."""
    rows, count = rows_of(table, table.passed), len(table.keys)
    held: list[tuple[int, ...]] = [(), *itertools.combinations(range(count), 1)]
    if folds and strict:
        held += list(itertools.combinations(range(count), 2))
    found: dict[frozenset[int], Trees] = {}
    for number, left_out in enumerate(held, 1):
        used = rows.take(~np.isin(rows.problem, left_out))
        found[frozenset(left_out)] = _fit_centre(table, used, SEEDS if len(left_out) < 2 else 1)
        if number % 20 == 0:
            say(f"fitted {number} of {len(held)} models")
    kernel = fit_kernel(rows.features, table.target[rows.index], rows.problem, even_weights(rows.problem))
    return Centres(rows, found, kernel)


def assemble(table: Table, centres: Centres, excluded: frozenset[int]) -> Model:
    """A whole model for one set of problems left out: spread, shape and correlation come from residuals on unseen ones."""
    every = centres.residuals(table, excluded)
    seen = ~np.isnan(every)
    rows, residual = centres.rows.take(seen), every[seen]
    size = np.log(np.maximum(np.abs(residual), SMALLEST_RESIDUAL)) - MEAN_LOG_ABS_NORMAL
    spread = _fit(table.names, rows, size, SPREAD)
    ratios = residual / np.exp(np.clip(spread.predict(rows.features), -4.0, 1.5))
    weight = even_weights(rows.problem)
    scale = float(np.sqrt(np.average(np.clip(ratios, -4, 4) ** 2, weights=weight)))
    shape = _weighted_quantiles(ratios / scale, weight)
    used = ~np.isin(table.problem, list(excluded))
    candidates = rows_of(table, used)
    valid = _fit(table.names, candidates, table.passed.astype(np.float64)[candidates.index], VALID)
    limits = np.concatenate([table.plain[used], table.informed[used]])
    low, high = (
        np.nan_to_num(f(np.where(np.isnan(limits), fill, limits), axis=0))
        for f, fill in ((np.min, 1e9), (np.max, -1e9))
    )
    # A column that training never saw filled says nothing about what is new.
    low, high = np.where(low > high, -np.inf, low), np.where(low > high, np.inf, high)
    strength, level = centres.kernel.without(excluded)
    pull = Pull(centres.kernel.anchors, level, strength)
    # The first rows are those with every figure at hand, one an example.
    standard = np.full(len(table.target), np.nan)
    standard[rows.index[::-1]] = (ratios / scale)[::-1]
    first = Correlation(0.2, 0.3, 0.3, 0.2)
    model = Model(table.names, centres.trees[excluded], pull, spread, valid, shape, scale, first, low, high, 0.0)
    shares = fit_correlation(table, standard, centres, excluded)
    return replace(model, correlation=shares, novelty_limit=_novelty_limit(model, table, table.passed & used))


def _weighted_quantiles(values: Floats, weight: Floats) -> tuple[float, ...]:
    order = np.argsort(values)
    position = (np.cumsum(weight[order]) - 0.5 * weight[order]) / weight.sum()
    return tuple(float(v) for v in np.interp(LEVELS, position, values[order]))


def _novelty_limit(model: Model, table: Table, rows: Mask) -> float:
    """Novelty that a new problem's candidates rarely exceed: 95th percentile when each problem is held out of the ranges."""
    found: list[float] = []
    for problem in range(len(table.keys)):
        own, rest = rows & (table.problem == problem), rows & (table.problem != problem)
        if own.any() and rest.any():
            others = np.concatenate([table.plain[rest], table.informed[rest]])
            low, high = np.nanmin(_filled(others, 1e9), axis=0), np.nanmax(_filled(others, -1e9), axis=0)
            alone = replace(model, low=low, high=high)
            found.extend(alone.novelty(table.informed[own]))
    return float(np.quantile(found, 0.95)) if found else 0.0


def _filled(values: Floats, fill: float) -> Floats:
    result: Floats = np.where(np.isnan(values), fill, values)
    return result


def fit_correlation(table: Table, standard: Floats, centres: Centres, excluded: frozenset[int]) -> Correlation:
    """Shares of variance by the largest summed marginal likelihood over the problems: the exponent first, then a grid.

    ``standard`` is the standardised residual of each example, NaN for those that have none.
    """
    blocks = []
    for problem in range(len(table.keys)):
        own = (table.problem == problem) & ~np.isnan(standard)
        if own.sum() < 5:
            continue
        leaves = centres.trees_for(excluded, problem).leaves(table.informed[own])
        similar = (leaves[:, None, :] == leaves[None, :, :]).mean(axis=2)
        family = table.family[own]
        blocks.append((similar, family[:, None] == family[None, :], standard[own]))

    def total(shares: Correlation) -> float:
        return sum(log_likelihood(*block, shares) for block in blocks)

    start = [Correlation(0.1, 0.2, 0.5, 0.2, power) for power in POWERS]
    power = max(start, key=total).power if blocks else start[0].power
    found = [
        Correlation(*shares, noise=1 - sum(shares), power=power)
        for shares in itertools.product(*SHARES)
        if sum(shares) <= 1 - LEAST_NOISE
    ]
    return max(found, key=total) if blocks else start[0]


def fit(
    problems: Sequence[ProblemExamples], say: Say = lambda _: None, folds: bool = True, strict: bool = True
) -> Weights:
    """Fit on all problems; with ``folds`` also keep, for each problem, the model that never saw it.

    The centre of a left-out problem's model never saw it either way. With ``strict`` neither did the models whose residuals
    its spread, shape and correlations come from (one more fit for each pair of problems).

    Raises:
        UsageError: with fewer than three problems, or without LightGBM.
    """
    table = table_of(problems)
    if len(table.keys) < 3:
        raise UsageError(
            f"{len(table.keys)} measured problem(s): at least 3 are needed to learn what carries over to another"
        )
    centres = fit_centres(table, say, folds, strict)
    models = {WHOLE: assemble(table, centres, frozenset())}
    for number, key in enumerate(table.keys if folds else ()):
        say(f"spread and correlation without problem {number + 1} of {len(table.keys)}")
        models[key] = assemble(table, centres, frozenset({number}))
    return Weights(table.names, models, card(table, problems, strict))


def card(table: Table, problems: Sequence[ProblemExamples], strict: bool) -> dict[str, Any]:
    """What the weights were made from."""
    digest = hashlib.sha256()
    for array in (table.plain, table.recorded, table.informed, table.target):
        digest.update(np.ascontiguousarray(np.nan_to_num(array, nan=-1.0)).tobytes())
    return {
        "training_sha256": digest.hexdigest(),
        "problems": {p.key: p.name for p in problems},
        "examples": len(table.target),
        "passed": int(table.passed.sum()),
        "families": int(table.family.max()) + 1,
        "gpus": sorted({p.hardware.key for p in problems}),
        "features": len(table.names),
        "strict": strict,
        "settings": {
            "centre": CENTRE,
            "random_splits": RANDOM_SPLITS,
            "spread": SPREAD,
            "valid": VALID,
            "seeds": SEEDS,
            "kernel": {"ridge": RIDGE, "share": KERNEL_SHARE},
        },
    }
