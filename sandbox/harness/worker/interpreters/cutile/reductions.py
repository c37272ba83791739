"""Reductions and scans of the cuTile stand-in, by halves and rounded at every step.

What has no docstring does what cuda-tile 1.7.0 documents under the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import folding
from . import types as ct
from .arithmetic import ARITHMETIC
from .tile import Tile, as_tile, narrowed, wide


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    return tuple(int(a) % rank for a in (axis if isinstance(axis, tuple | list) else (axis,)))


def _stepper(name: str, dtype: ct.DType) -> folding.Step:
    operation = ARITHMETIC[name]

    def step(left: folding.Columns, right: folding.Columns) -> folding.Columns:
        return (narrowed(operation(wide(left[0], dtype), wide(right[0], dtype)), dtype),)

    return step


def _fold_axes(x: Any, axis: Any, keepdims: bool, name: str) -> Tile:
    tile = as_tile(x)
    axes = _axes(axis, tile.ndim)
    rest = tuple(a for a in range(tile.ndim) if a not in axes)
    count = int(np.prod([tile.shape[a] for a in axes], dtype=np.int64))
    column = tile.buffer.transpose((*axes, *rest)).reshape((count, *(tile.shape[a] for a in rest)))
    out = folding.fold((column,), _stepper(name, tile.dtype))[0][0]
    kept = tuple(1 if a in axes else n for a, n in enumerate(tile.shape))
    return Tile(out.reshape(kept) if keepdims else out, tile.dtype)


def sum(x: Any, /, axis: Any = None, *, keepdims: bool = False, **_: Any) -> Tile:
    return _fold_axes(x, axis, keepdims, "add")


def prod(x: Any, /, axis: Any = None, *, keepdims: bool = False, **_: Any) -> Tile:
    return _fold_axes(x, axis, keepdims, "mul")


def max(x: Any, /, axis: Any = None, *, keepdims: bool = False, propagate_nan: bool = False, **_: Any) -> Tile:
    return _fold_axes(x, axis, keepdims, "max_nan" if propagate_nan else "max")


def min(x: Any, /, axis: Any = None, *, keepdims: bool = False, propagate_nan: bool = False, **_: Any) -> Tile:
    return _fold_axes(x, axis, keepdims, "min_nan" if propagate_nan else "min")


def _arg(x: Any, axis: Any, keepdims: bool, function: Callable[..., Any]) -> Tile:
    tile = as_tile(x)
    values = tile.values()
    out = function(
        values.reshape(-1) if axis is None else values, axis=0 if axis is None else int(axis), keepdims=keepdims
    )
    if axis is None and keepdims:
        out = np.asarray(out).reshape((1,) * tile.ndim)
    return Tile(np.asarray(out).astype(np.int32), ct.int32)


def argmax(x: Any, /, axis: Any = None, *, keepdims: bool = False, **_: Any) -> Tile:
    return _arg(x, axis, keepdims, np.argmax)


def argmin(x: Any, /, axis: Any = None, *, keepdims: bool = False, **_: Any) -> Tile:
    return _arg(x, axis, keepdims, np.argmin)


def _custom(x: Any, axis: int, func: Callable[..., Any]) -> tuple[list[Tile], folding.Columns, folding.Step]:
    """Operands, columns and step of a reduction with the kernel's own function, called on whole tiles."""
    tiles = [as_tile(t) for t in (x if isinstance(x, tuple | list) else (x,))]
    shape = np.broadcast_shapes(*(t.shape for t in tiles))
    columns = tuple(np.moveaxis(np.broadcast_to(t.buffer, shape), int(axis), 0) for t in tiles)

    def step(left: folding.Columns, right: folding.Columns) -> folding.Columns:
        arguments = [Tile(part, t.dtype) for side in (left, right) for part, t in zip(side, tiles, strict=True)]
        out = func(*arguments)
        many = out if isinstance(out, tuple | list) else (out,)
        return tuple(
            np.broadcast_to(as_tile(o).astype(t.dtype).buffer, left[0].shape) for o, t in zip(many, tiles, strict=True)
        )

    return tiles, columns, step


def reduce(x: Any, /, axis: int, func: Callable[..., Any], identity: Any, *, keepdims: bool = False) -> Any:
    tiles, columns, step = _custom(x, axis, func)
    folded = folding.fold(columns, step)
    out = [
        Tile(np.moveaxis(c, 0, int(axis)) if keepdims else c[0], t.dtype) for c, t in zip(folded, tiles, strict=True)
    ]
    return tuple(out) if isinstance(x, tuple | list) else out[0]


def scan(x: Any, /, axis: int, func: Callable[..., Any], identity: Any, *, reverse: bool = False) -> Any:
    tiles, columns, step = _custom(x, axis, func)
    scanned = folding.scan(columns, step, bool(reverse))
    out = [Tile(np.moveaxis(c, 0, int(axis)), t.dtype) for c, t in zip(scanned, tiles, strict=True)]
    return tuple(out) if isinstance(x, tuple | list) else out[0]


def _cumulative(x: Any, axis: int, reverse: bool, name: str) -> Tile:
    tile = as_tile(x)
    columns = (np.moveaxis(tile.buffer, int(axis), 0),)
    return Tile(
        np.moveaxis(folding.scan(columns, _stepper(name, tile.dtype), bool(reverse))[0], 0, int(axis)), tile.dtype
    )


def cumsum(x: Any, /, axis: int = 0, *, reverse: bool = False, **_: Any) -> Tile:
    return _cumulative(x, axis, reverse, "add")


def cumprod(x: Any, /, axis: int = 0, *, reverse: bool = False, **_: Any) -> Tile:
    return _cumulative(x, axis, reverse, "mul")


def names() -> dict[str, Any]:
    """Reductions and scans by their public names."""
    return {f.__name__: f for f in (sum, prod, max, min, argmax, argmin, reduce, scan, cumsum, cumprod)}
