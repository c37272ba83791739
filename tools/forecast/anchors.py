"""The second learner of the centre: a kernel over training candidates, whose say falls off with their distance in features.

Trees see thresholds, a kernel sees nearness; their errors differ, so the centre is the mean of both. Kernel ridge regression with
a Laplacian kernel (Rasmussen & Williams 2006, ch. 2), evaluated in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
BEYOND = 4.0
"""Standard deviations at which a feature is cut: one that is far out on one axis must not be far from everything."""


@dataclass(frozen=True)
class Scaling:
    """How features become coordinates: cut to their usual range, missing ones filled in and marked. Knows no outcome."""

    fill: Floats
    low: Floats
    high: Floats
    mean: Floats
    deviation: Floats
    marked: npt.NDArray[np.bool_]
    """Features that may be missing: each has a coordinate of its own that says so."""

    def points(self, rows: Floats) -> npt.NDArray[np.float32]:
        """Coordinates of feature rows: (n, features) to (n, coordinates)."""
        missing = np.isnan(rows)
        filled = np.clip(np.where(missing, self.fill, rows), self.low, self.high)
        standard = np.clip((filled - self.mean) / self.deviation, -BEYOND, BEYOND)
        both = np.concatenate([standard, missing[:, self.marked]], axis=1)
        # As stored: what is compared in training and later is rounded alike.
        return both.astype(np.float16).astype(np.float32)


def scaling_of(rows: Floats) -> Scaling:
    """The scaling that the training candidates' features suggest: medians, the central 98 %, deviations."""
    missing = np.isnan(rows)
    present = [column[~gone] if not gone.all() else np.zeros(1) for column, gone in zip(rows.T, missing.T, strict=True)]
    fill, low, high = (np.array([np.quantile(c, q) for c in present]) for q in (0.5, 0.01, 0.99))
    filled = np.where(missing, fill, rows)
    marked: npt.NDArray[np.bool_] = np.array([bool(gone.any()) for gone in missing.T])
    return Scaling(fill, low, high, filled.mean(axis=0), filled.std(axis=0) + 1e-3, marked)


@dataclass(frozen=True)
class Anchors:
    """Training candidates as points, the same for all models of one archive. ``width`` is the distance of an e-fold."""

    scaling: Scaling
    points: npt.NDArray[np.float32]
    width: float

    def closeness(self, rows: Floats) -> Floats:
        """``exp(-distance / width)`` of each row to each anchor, by the sum of absolute differences: (n, anchors)."""
        found = np.empty((len(rows), len(self.points)))
        for line, point in enumerate(self.scaling.points(rows)):
            found[line] = np.abs(self.points - point).sum(axis=1)
        result: Floats = np.exp(-found / self.width)
        return result

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Everything for one archive."""
        scaling = {f"{prefix}{name}": getattr(self.scaling, name) for name in Scaling.__dataclass_fields__}
        return {
            **scaling,
            f"{prefix}points": self.points.astype(np.float16),
            f"{prefix}width": np.array([self.width]),
        }


def anchors_from(archive: Mapping[str, npt.NDArray[Any]], prefix: str, features: int) -> Anchors:
    """The reverse of :meth:`Anchors.arrays`.

    Raises:
        KeyError: if a field is missing.
        ValueError: if the fields do not fit one another.
    """
    scaling = Scaling(**{name: np.asarray(archive[prefix + name]) for name in Scaling.__dataclass_fields__})
    points = np.asarray(archive[prefix + "points"], dtype=np.float32)
    if any(len(getattr(scaling, name)) != features for name in Scaling.__dataclass_fields__):
        raise ValueError(f"the scaling of the anchors is not one of {features} features")
    if points.ndim != 2 or points.shape[1] != features + int(scaling.marked.sum()):
        raise ValueError("the anchors have other coordinates than their scaling makes")
    return Anchors(scaling, points, float(archive[prefix + "width"][0]))
