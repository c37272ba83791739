"""Fitting the kernel learner: one factorisation gives the coefficients for every set of problems left out.

Leaving out rows S of a kernel ridge fit needs no new fit: with M the inverse of the regularised kernel, the coefficients
without S are ``a - M[:, S] M[S, S]^-1 a[S]`` (Rasmussen & Williams 2006, eq. 5.12, for blocks).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilecast.tools.forecast.anchors import Anchors, Floats, scaling_of

Labels = npt.NDArray[np.int64]
RIDGE = 0.5
"""Variance of what the kernel cannot know, of which every problem's candidates together have the same share."""
MOST_ANCHORS = 8000
"""Fitting takes the cube of this; more measurements than that leave some to the trees alone."""
_SAMPLED_PAIRS = 200_000


@dataclass(frozen=True)
class Kernel:
    """A fitted kernel over rows of all problems (at most :data:`MOST_ANCHORS`), from which any problem can be left out."""

    anchors: Anchors
    problem: Labels
    """Of each anchor, as the arrays below."""
    target: Floats
    weight: Floats
    inverse: Floats
    gram: npt.NDArray[np.float32]
    """Closeness of every row to every anchor."""

    def without(self, excluded: Collection[int]) -> tuple[Floats, float]:
        """Coefficient of each anchor (0 for those of ``excluded`` problems) and the level they are added to."""
        out = np.isin(self.problem, list(excluded))
        level = float(np.average(self.target[~out], weights=self.weight[~out]))
        pull: Floats = self.inverse @ (self.target - level)
        if out.any():
            pull = pull - self.inverse[:, out] @ np.linalg.solve(self.inverse[np.ix_(out, out)], pull[out])
            pull[out] = 0.0
        return pull, level

    def predict(self, excluded: Collection[int], rows: npt.NDArray[np.bool_]) -> Floats:
        """What a fit without ``excluded`` problems says of some of the rows."""
        pull, level = self.without(excluded)
        result: Floats = level + self.gram[rows].astype(np.float64) @ pull
        return result


def fit_kernel(features: Floats, target: Floats, problem: Labels, weight: Floats) -> Kernel:
    """Fit on all rows, or on a random part of very many. The width is the median distance, so nothing is tuned on outcomes."""
    rng = np.random.default_rng(0)
    kept = np.sort(rng.permutation(len(features))[:MOST_ANCHORS])
    scaling = scaling_of(features)
    points = scaling.points(features)
    distance = _distances(points, points[kept])
    own = distance[kept]
    some = rng.integers(0, len(kept), (2, _SAMPLED_PAIRS))
    width = max(float(np.median(own[some[0], some[1]][some[0] != some[1]])), 1e-3) if len(kept) > 1 else 1.0
    gram = np.exp(-distance / width)
    inverse = np.linalg.inv(gram[kept].astype(np.float64) + np.diag(RIDGE / weight[kept]))
    return Kernel(Anchors(scaling, points[kept], width), problem[kept], target[kept], weight[kept], inverse, gram)


def _distances(points: npt.NDArray[np.float32], others: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Sums of absolute differences of each to each."""
    found = np.empty((len(points), len(others)), dtype=np.float32)
    for line, point in enumerate(points):
        found[line] = np.abs(others - point).sum(axis=1)
    return found
