"""Feature rows to learn from: each measured example as it looks with and without compile-time figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilecast.tools.forecast.dataset import Table

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def even_weights(problem: npt.NDArray[np.int64]) -> Floats:
    """Every problem counts the same, however many variants it has."""
    counts = np.bincount(problem)
    weight = 1.0 / counts[problem]
    result: Floats = weight / weight.mean()
    return result


@dataclass(frozen=True)
class Rows:
    """Feature rows to learn from: several tiers of one example below one another, so that one model serves them all."""

    features: Floats
    index: npt.NDArray[np.int64]
    """The example of each row."""
    problem: npt.NDArray[np.int64]

    def take(self, chosen: Mask) -> Rows:
        """Some of them."""
        return Rows(self.features[chosen], self.index[chosen], self.problem[chosen])


def rows_of(table: Table, chosen: Mask) -> Rows:
    """All tiers of some examples: with every figure at hand first (in the examples' order), then those that know less."""
    full = np.nan_to_num(table.informed[chosen], nan=-1e9)
    same = (np.nan_to_num(table.plain[chosen], nan=-1e9) == full).all(axis=1)
    middle = (np.nan_to_num(table.recorded[chosen], nan=-1e9) == full).all(axis=1)
    at = np.flatnonzero(chosen)
    features = np.concatenate([table.informed[chosen], table.plain[chosen][~same], table.recorded[chosen][~middle]])
    index = np.concatenate([at, at[~same], at[~middle]])
    return Rows(features, index, table.problem[index])
