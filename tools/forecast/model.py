"""The trained forecaster as numbers: trees and a kernel for the centre, trees for spread and validity, the residual's shape.

Weights are one ``.npz`` read without pickle, so that loading executes nothing. Beside the model of all training problems it
holds one a problem that never saw it, chosen by the problem's hash.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilecast.sandbox.errors import UsageError
from tilecast.tools.forecast.anchors import Anchors, anchors_from
from tilecast.tools.forecast.predictive import LEVELS, Predictive
from tilecast.tools.forecast.trees import Trees, from_arrays

Floats = npt.NDArray[np.float64]
FORMAT = 3
SHIPPED = "weights.npz"
WHOLE = "all"
KERNEL_SHARE = 0.5
"""Of the centre; the trees have the rest. The two err about equally much and differently."""


@dataclass(frozen=True)
class Correlation:
    """Shares of the standardised residual's variance; they sum to 1. See :mod:`tilecast.tools.forecast.posterior`."""

    problem: float
    family: float
    similar: float
    noise: float
    power: float = 4.0
    """Exponent of the leaf overlap: the larger, the closer two candidates must be to speak for one another."""


@dataclass(frozen=True)
class Pull:
    """What a model's kernel says: a level, and what each anchor adds to it by closeness (0 where the model never saw it)."""

    anchors: Anchors
    level: float
    strength: Floats

    def at(self, rows: Floats) -> Floats:
        """On the learned scale, one a row."""
        result: Floats = self.level + self.anchors.closeness(rows) @ self.strength
        return result


@dataclass(frozen=True)
class Model:
    """One fitted model. ``shape`` are residual quantiles, standardised, at :data:`predictive.LEVELS`."""

    names: tuple[str, ...]
    centre: Trees
    pull: Pull
    spread: Trees
    valid: Trees
    shape: tuple[float, ...]
    scale: float
    """Factor on the predicted spread that makes the standardised residuals' variance 1."""
    correlation: Correlation
    low: Floats
    high: Floats
    """Range of each feature in training, NaN-free."""
    novelty_limit: float

    def centres(self, rows: Floats) -> Floats:
        """Expected excess over the floor on the learned scale (:mod:`tilecast.tools.forecast.excess`), one a row."""
        return (1 - KERNEL_SHARE) * self.centre.predict(rows) + KERNEL_SHARE * self.pull.at(rows)

    def spreads(self, rows: Floats) -> Floats:
        """Standard deviation of the residual, on the learned scale."""
        result: Floats = self.scale * np.exp(np.clip(self.spread.predict(rows), -4.0, 1.5))
        return result

    def validity(self, rows: Floats) -> Floats:
        """Probability that a candidate passes."""
        result: Floats = 1 / (1 + np.exp(-self.valid.predict(rows)))
        return result

    def novelty(self, rows: Floats) -> Floats:
        """How many features lie outside the training range widened by a tenth, each counted by how far, at most 1."""
        width = np.maximum(self.high - self.low, 1e-3)
        with np.errstate(invalid="ignore"):
            beyond = np.maximum(self.low - rows, rows - self.high) / width - 0.1
        result: Floats = np.nansum(np.clip(np.nan_to_num(beyond, nan=0.0) * 2, 0.0, 1.0), axis=1)
        return result

    def similarity(self, rows: Floats, others: Floats) -> Floats:
        """Share of trees in which two candidates fall into the same leaf: (n, m), 1 for equal rows."""
        a, b = self.centre.leaves(rows), self.centre.leaves(others)
        result: Floats = (a[:, None, :] == b[None, :, :]).mean(axis=2)
        return result

    def predictive(self, centre: float, spread: float, floor_ms: float) -> Predictive:
        """The distribution of log-milliseconds."""
        return Predictive(centre, spread, self.shape, float(np.log(floor_ms)))

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """All fields but the names, for one archive."""
        c = self.correlation
        numbers = np.array([self.scale, c.problem, c.family, c.similar, c.noise, c.power, self.novelty_limit])
        found: dict[str, npt.NDArray[Any]] = {
            f"{prefix}numbers": numbers,
            f"{prefix}shape": np.array(self.shape),
            f"{prefix}low": self.low.astype(np.float32),
            f"{prefix}high": self.high.astype(np.float32),
            f"{prefix}level": np.array([self.pull.level]),
            f"{prefix}strength": self.pull.strength.astype(np.float32),
        }
        for part in ("centre", "spread", "valid"):
            found |= getattr(self, part).arrays(f"{prefix}{part}/")
        return found


@dataclass(frozen=True)
class Weights:
    """Models by what they left out: ``all``, or a problem's key."""

    names: tuple[str, ...]
    models: Mapping[str, Model]
    card: Mapping[str, Any] = field(default_factory=dict)
    """Training data's hash, problems, counts, versions, settings."""

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Keys of the problems that the whole model has seen."""
        return tuple(self.card.get("problems", {}))

    def for_problem(self, key: str) -> Model | None:
        """The model that never saw this problem; None if the whole one has and no other was kept."""
        return self.models.get(key if key in self.trained_on else WHOLE)


def save(weights: Weights, file: Path) -> None:
    """Write one compressed archive."""
    arrays: dict[str, Any] = {}
    for name, model in weights.models.items():
        arrays |= model.arrays(f"{name}/")
    arrays |= weights.models[WHOLE].pull.anchors.arrays("anchors/")
    header = {"format": FORMAT, "names": weights.names, "models": list(weights.models), "card": dict(weights.card)}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **arrays)


def load(file: str | Path | None = None) -> Weights:
    """Read weights; without a file, those shipped with the package.

    Raises:
        UsageError: if the file is missing, no such archive, or of another format.
    """
    if file is not None:
        return _load(Path(file))
    return _shipped()


@lru_cache(maxsize=1)
def _shipped() -> Weights:
    with as_file(files("tilecast.tools.forecast").joinpath(SHIPPED)) as path:
        return _load(path)


def _load(path: Path) -> Weights:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays["header"].tobytes())
        if header.get("format") != FORMAT:
            raise UsageError(
                f"{path}: weights of format {header.get('format')}, this version reads {FORMAT}: fit again"
            )
        names = tuple(header["names"])
        anchors = anchors_from(arrays, "anchors/", len(names))
        models = {name: _model(arrays, f"{name}/", names, anchors) for name in header["models"]}
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        hint = "fit again with `tilecast forecaster fit`"
        raise UsageError(f"{path}: cannot be read as forecaster weights ({error}); {hint}") from error
    return Weights(names, models, header["card"])


def _model(arrays: Mapping[str, npt.NDArray[Any]], prefix: str, names: tuple[str, ...], anchors: Anchors) -> Model:
    scale, problem, family, similar, noise, power, limit = (float(v) for v in arrays[f"{prefix}numbers"])
    shape = tuple(float(v) for v in arrays[f"{prefix}shape"])
    if len(shape) != len(LEVELS):
        raise ValueError(f"{len(shape)} quantiles where {len(LEVELS)} belong")
    trees = {part: from_arrays(arrays, f"{prefix}{part}/") for part in ("centre", "spread", "valid")}
    for part, forest in trees.items():
        if len(forest.feature) and int(forest.feature.max()) >= len(names):
            raise ValueError(f"{part} asks for feature {int(forest.feature.max())} of {len(names)}")
    strength = np.asarray(arrays[f"{prefix}strength"], dtype=np.float64)
    if strength.shape != (len(anchors.points),):
        raise ValueError(f"{strength.shape} strengths for {len(anchors.points)} anchors")
    return Model(
        names=names,
        **trees,
        pull=Pull(anchors, float(arrays[f"{prefix}level"][0]), strength),
        shape=shape,
        scale=scale,
        correlation=Correlation(problem, family, similar, noise, power),
        low=np.asarray(arrays[f"{prefix}low"], dtype=np.float64),
        high=np.asarray(arrays[f"{prefix}high"], dtype=np.float64),
        novelty_limit=limit,
    )
