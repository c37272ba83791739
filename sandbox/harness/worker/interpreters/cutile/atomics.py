"""Atomic operations of the cuTile stand-in: one element after another, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from . import types as ct
from .arithmetic import ARITHMETIC
from .memory import Array, placed, positions_of, state
from .tile import Tile, narrowed, wide

Buffer = npt.NDArray[Any]


def _atomic(
    array: Array, indices: Any, operands: tuple[Any, ...], update: Callable[..., Buffer], options: dict[str, Any]
) -> Tile:
    """Element after element, in order; the old values come back."""
    numbers, on = positions_of(
        array, indices, options.get("mask"), options.get("check_bounds", True), "atomic operation"
    )
    given = [placed(o, on.shape, array.dtype) for o in operands]
    old = np.array(given[0])
    for position in zip(*np.nonzero(on), strict=True) if on.ndim else ([()] if on else []):
        where = tuple(int(n[position]) for n in numbers)
        old[position] = array.view[where]
        before = np.asarray(array.view[where])
        array.view[where] = update(before, *(np.asarray(p[position]) for p in given))
    state.polled(array, old)
    return Tile(old, array.dtype)


def combining(name: str, dtype: ct.DType) -> Callable[..., Buffer]:
    operation = ARITHMETIC[name]
    return lambda before, operand: narrowed(operation(wide(before, dtype), wide(operand, dtype)), dtype)


def _rmw(name: str) -> Callable[..., Tile]:
    def call(array: Array, indices: Any, update: Any, /, **options: Any) -> Tile:
        return _atomic(array, indices, (update,), combining(name, array.dtype), options)

    return call


def atomic_xchg(array: Array, indices: Any, update: Any, /, **options: Any) -> Tile:
    return _atomic(array, indices, (update,), lambda before, new: new, options)


def atomic_cas(array: Array, indices: Any, expected: Any, desired: Any, /, **options: Any) -> Tile:
    return _atomic(array, indices, (expected, desired), lambda old, want, new: new if old == want else old, options)


def names() -> dict[str, Any]:
    """Atomic operations by their public names."""
    return {
        "atomic_xchg": atomic_xchg,
        "atomic_cas": atomic_cas,
        **{f"atomic_{name}": _rmw(name) for name in ("add", "max", "min", "and", "or", "xor")},
    }
