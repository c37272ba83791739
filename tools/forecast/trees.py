"""Boosted trees as arrays, evaluated in numpy: no training library is needed to forecast, and loading executes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LEAF = -1


@dataclass(frozen=True)
class Trees:
    """A sum of trees. Nodes of all trees lie in one table; ``roots`` says where each tree starts.

    ``feature`` is :data:`LEAF` at leaves, whose ``value`` counts; else go on if ``x <= value`` (the left child follows its
    parent) or to ``parent + right`` otherwise; a missing value goes left where ``missing_left`` says so.
    """

    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int16]
    value: npt.NDArray[np.float32]
    right: npt.NDArray[np.int32]
    missing_left: npt.NDArray[np.bool_]

    def leaves(self, rows: Floats) -> npt.NDArray[np.int64]:
        """The leaf of each row in each tree, as (n, trees). ``rows`` is (n, features), compared as float32 as in training."""
        table = np.asarray(rows, dtype=np.float32)
        node = np.broadcast_to(self.roots.astype(np.int64), (len(table), len(self.roots))).copy()
        line = np.arange(len(table))[:, None]
        while True:
            feature = self.feature[node]
            inner = feature != LEAF
            if not inner.any():
                return node
            x = table[line, np.where(inner, feature, 0)]
            go_left = np.where(np.isnan(x), self.missing_left[node], x <= self.value[node])
            node = np.where(inner, np.where(go_left, node + 1, node + self.right[node]), node)

    def predict(self, rows: Floats) -> Floats:
        """Sum of leaf values, one a row."""
        return self.total(self.leaves(rows))

    def total(self, leaves: npt.NDArray[np.int64]) -> Floats:
        """Sum of the values at the leaves that :meth:`leaves` found."""
        result: Floats = self.value[leaves].sum(axis=1, dtype=np.float64)
        return result

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """The fields by name, for one archive."""
        return {f"{prefix}{name}": getattr(self, name) for name in self.__dataclass_fields__}


def from_arrays(archive: Mapping[str, npt.NDArray[Any]], prefix: str) -> Trees:
    """The reverse of :meth:`Trees.arrays`.

    Raises:
        KeyError: if a field is missing.
        ValueError: if the table is not a forest (a child outside the table, or one that points backwards, could loop).
    """
    trees = Trees(**{name: np.asarray(archive[prefix + name]) for name in Trees.__dataclass_fields__})
    size = len(trees.feature)
    here = np.flatnonzero(trees.feature != LEAF)
    if any(len(column) != size for column in (trees.value, trees.right, trees.missing_left)):
        raise ValueError("the weights hold no valid trees: columns differ in length")
    if (trees.right[here] < 2).any() or (here + trees.right[here] >= size).any():
        raise ValueError("the weights hold no valid trees: a child does not come after its parent, inside the table")
    if len(trees.roots) and (trees.roots.min() < 0 or trees.roots.max() >= size):
        raise ValueError("the weights hold no valid trees: a root lies outside the table")
    return trees


def from_lightgbm(models: Sequence[Mapping[str, Any]]) -> Trees:
    """From ``Booster.dump_model()`` of several boosters, whose outputs are averaged."""
    table: list[tuple[int, float, int, bool]] = []
    roots = []
    for model in models:
        for info in model["tree_info"]:
            roots.append(len(table))
            _flatten(info["tree_structure"], table, 1.0 / len(models))
    columns = list(zip(*table, strict=True)) if table else [(), (), (), ()]
    return Trees(
        roots=np.array(roots, dtype=np.int32),
        feature=np.array(columns[0], dtype=np.int16),
        value=np.array(columns[1], dtype=np.float32),
        right=np.array(columns[2], dtype=np.int32),
        missing_left=np.array(columns[3], dtype=np.bool_),
    )


def _flatten(node: Mapping[str, Any], table: list[tuple[int, float, int, bool]], scale: float) -> int:
    """Append a subtree, parents first; returns its index."""
    index = len(table)
    if "leaf_value" in node:
        table.append((LEAF, scale * float(node["leaf_value"]), 0, False))
        return index
    table.append((0, 0.0, 0, False))
    with np.errstate(over="ignore"):
        threshold = np.float32(node["threshold"])
    if float(threshold) > float(node["threshold"]):
        threshold = np.nextafter(threshold, np.float32(-np.inf))
    missing_left = bool(node["default_left"]) if node["missing_type"] == "NaN" else float(node["threshold"]) >= 0.0
    _flatten(node["left_child"], table, scale)
    right = _flatten(node["right_child"], table, scale)
    table[index] = (int(node["split_feature"]), float(threshold), right - index, missing_left)
    return index
