"""Reductions and scans by halves, for any combine function, on numpy arrays with the axis in front."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Columns = tuple[Array, ...]
Step = Callable[[Columns, Columns], Columns]


def fold(columns: Columns, step: Step) -> Columns:
    """Combine neighbours along axis 0 until one is left (kept as an axis of size 1); the order of elements is kept."""
    while columns[0].shape[0] > 1:
        size = columns[0].shape[0]
        paired = step(tuple(c[0 : size - 1 : 2] for c in columns), tuple(c[1:size:2] for c in columns))
        if size % 2:
            paired = tuple(np.concatenate([p, c[-1:]]) for p, c in zip(paired, columns, strict=True))
        columns = paired
    return columns


def scan(columns: Columns, step: Step, reverse: bool = False) -> Columns:
    """Inclusive prefixes along axis 0 in log2(n) steps (Hillis and Steele, 1986)."""
    if reverse:
        columns = tuple(c[::-1] for c in columns)
    distance = 1
    while distance < columns[0].shape[0]:
        # Whole columns go in, since a combine function may insist on sizes that are powers of two; the head is kept.
        earlier = tuple(np.concatenate([c[:distance], c[:-distance]]) for c in columns)
        combined = step(earlier, columns)
        columns = tuple(
            np.concatenate([c[:distance], part[distance:]]) for c, part in zip(columns, combined, strict=True)
        )
        distance *= 2
    return tuple(c[::-1] for c in columns) if reverse else columns
