"""Operations on tiles that Triton and cuTile share: shapes, memory and matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilecast.tools.forecast.trace.arithmetic import MAX_KNOWN, ArithmeticEvaluator
from tilecast.tools.forecast.trace.values import (
    ITEM_BYTES,
    UNKNOWN,
    Ints,
    Ref,
    Tensor,
    Tile,
    broadcast_shape,
    dtype_of,
    is_float,
)
from tilecast.tools.forecast.trace.work import pattern


class KernelEvaluator(ArithmeticEvaluator):
    """Walks a kernel's body for one program. Methods called ``any_…`` are functions that both languages have under one name."""

    def any_where(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.where(args)

    def any_minimum(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.extreme("minimum", args)

    def any_maximum(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.extreme("maximum", args)

    # Shapes.
    def reduce(self, value: Any, axis: Any, keep: bool, name: str) -> Any:
        """A reduction over one axis or all."""
        if not isinstance(value, Tile):
            return value
        self.work.reduced += self.work.weight * value.size
        self.work.reductions += self.work.weight
        axes = set(range(len(value.shape))) if axis is None else {a % max(len(value.shape), 1) for a in _axes(axis)}
        shape = tuple(1 if i in axes else n for i, n in enumerate(value.shape) if keep or i not in axes)
        if name.startswith("arg") or not is_float(value.dtype):
            return self.reduced_ints(value, tuple(sorted(axes)), shape, name)
        return Tile(shape, value.dtype)

    def reduced_ints(self, value: Tile, axes: tuple[int, ...], shape: tuple[int, ...], name: str) -> Any:
        """Integers stay known through a reduction where they are; else some integer stands for them."""
        reducers: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}
        function = reducers.get(name)
        ints: Ints | None = None
        if value.ints is not None and function is not None and value.size <= MAX_KNOWN and value.size:
            ints = np.asarray(function(np.broadcast_to(value.ints, value.shape), axis=axes)).reshape(shape)
        elif not name.startswith("arg") and value.dtype == "bool":
            return Tile(shape, "int32")
        else:
            ints = np.asarray(int(self.random.integers(0, 1 << 20)))
        return int(ints) if not shape else Tile(shape, "int32" if name.startswith("arg") else value.dtype, ints)

    def reshaped(self, value: Any, shape: Any) -> Any:
        """The same elements in another shape; ``-1`` is worked out."""
        if not isinstance(value, Tile):
            return value
        wanted = _shape(shape)
        if wanted is None:
            return Tile(value.shape, value.dtype, None, value.base)
        if -1 in wanted:
            rest = -math.prod(wanted)
            wanted = tuple(value.size // rest if n == -1 and rest else n for n in wanted)
        ints = value.ints
        if ints is not None and ints.size > 1:
            full = np.broadcast_to(ints, value.shape)
            ints = full.reshape(wanted) if full.size == math.prod(wanted) else None
        return Tile(wanted, value.dtype, ints, value.base)

    def permuted(self, value: Any, order: Sequence[int] | None) -> Any:
        """Axes in another order (reversed by default); a float tile has to cross threads for it."""
        if not isinstance(value, Tile):
            return value
        axes = (
            tuple(order)
            if order is not None
            else (*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2)
        )
        if sorted(axes) != list(range(len(value.shape))):
            return value
        ints = value.ints
        if ints is not None and ints.ndim == len(axes):
            ints = ints.transpose(axes)
        self.work.shuffles += self.work.weight * value.size
        return Tile([value.shape[a] for a in axes], value.dtype, ints, value.base)

    def indexed(self, value: Tile, index: Any) -> Any:
        """``x[:, None]`` and kin: new axes; other subscripts of tiles are not known."""
        parts = index if isinstance(index, tuple) else (index,)
        shape: list[int] = []
        slots: list[slice | None] = []
        axis = 0
        for part in parts:
            if part is None:
                shape.append(1)
                slots.append(np.newaxis)
            elif isinstance(part, slice) and axis < len(value.shape):
                shape.append(value.shape[axis])
                slots.append(slice(None))
                axis += 1
            else:
                return UNKNOWN
        shape.extend(value.shape[axis:])
        ints = value.ints
        if ints is not None:
            ints = ints.reshape((1,) * (len(value.shape) - ints.ndim) + ints.shape)[tuple(slots)]
        return Tile(shape, value.dtype, ints, value.base)

    # Memory.
    def load_tile(self, pointer: Any, mask: Any = None, bulk: bool = False) -> Any:
        """Read through a tile of pointers. Integer contents are drawn at random below the tensor's bound."""
        tile = self.as_tile(pointer)
        if tile is None or tile.base is None:
            return UNKNOWN
        guard = self.as_tile(mask) if mask is not None else None
        shape = broadcast_shape(tile.shape, guard.shape) if guard is not None else tile.shape
        access = pattern(tile.ints, shape, ITEM_BYTES[tile.base.dtype], guard.ints if guard is not None else None)
        gathered = access.run * ITEM_BYTES[tile.base.dtype] < 32 and access.lanes > 1
        self.work.load(tile.base, access, bulk, gathered)
        self.work.note_tile(math.prod(shape), tile.base.dtype)
        return self.contents(shape, tile)

    def contents(self, shape: Sequence[int], pointer: Tile) -> Any:
        """What a load gives: a float tile, or plausible integers to index with, the same ones at the same address."""
        base = pointer.base
        assert base is not None
        if is_float(base.dtype) or base.dtype in ("int8", "uint8", "bool"):
            return Tile(shape, base.dtype)
        offsets = pointer.ints if pointer.ints is not None else np.asarray(self.random.integers(0, 1 << 20))
        ints = (offsets * 2654435761 + 12345) % (1 << 31) % max(base.high or 1 << 20, 1)
        return int(ints) if not shape and ints.size == 1 else Tile(shape, base.dtype, np.asarray(ints))

    def store_tile(self, pointer: Any, mask: Any = None, bulk: bool = False) -> None:
        """Write through a tile of pointers."""
        tile = self.as_tile(pointer)
        if tile is None or tile.base is None:
            return
        guard = self.as_tile(mask) if mask is not None else None
        shape = broadcast_shape(tile.shape, guard.shape) if guard is not None else tile.shape
        access = pattern(tile.ints, shape, ITEM_BYTES[tile.base.dtype], guard.ints if guard is not None else None)
        self.work.store(tile.base, access, bulk)

    def product(self, left: Any, right: Any, accumulator: Any = None) -> Any:
        """A tile matrix product on the last two axes."""
        if not isinstance(left, Tile) or not isinstance(right, Tile) or len(left.shape) < 2 or len(right.shape) < 2:
            return accumulator if isinstance(accumulator, Tile) else UNKNOWN
        m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
        batch = math.prod(broadcast_shape(left.shape[:-2], right.shape[:-2]))
        dtype = left.dtype if ITEM_BYTES[left.dtype] >= ITEM_BYTES[right.dtype] else right.dtype
        self.work.dot(m, n, k, dtype, batch)
        self.work.note_tile(batch * m * n, "float32")
        shape = (*broadcast_shape(left.shape[:-2], right.shape[:-2]), m, n)
        return Tile(shape, accumulator.dtype if isinstance(accumulator, Tile) else "float32")

    def blocked(
        self, base: Tensor, origin: int, extent: Sequence[int], strides: Sequence[int], place: tuple[Any, Sequence[int]]
    ) -> tuple[Tile, Tile]:
        """Pointers and mask of a block ``place = (start offsets, block shape)`` in an array of this extent."""
        starts, block = place
        offsets: Ints = np.asarray(origin, dtype=np.int64)
        inside: Ints = np.ones((), dtype=np.int64)
        for axis, (size, limit, stride) in enumerate(zip(block, extent, strides, strict=False)):
            start = starts[axis] if axis < len(starts) and isinstance(starts[axis], int) else 0
            line = (start + np.arange(size)).reshape((1,) * axis + (size,) + (1,) * (len(block) - axis - 1))
            offsets = (
                offsets + line * stride
                if offsets.size * size <= MAX_KNOWN
                else offsets + line.take([0], axis=axis) * stride
            )
            inside = inside * (line < limit) if inside.size * size <= MAX_KNOWN else inside
        return Tile(block, base.dtype, offsets, base), Tile(block, "bool", inside)


def _axes(axis: Any) -> tuple[int, ...]:
    return tuple(a for a in (axis if isinstance(axis, tuple | list) else (axis,)) if isinstance(a, int)) or (0,)


def _shape(value: Any) -> tuple[int, ...] | None:
    items = value if isinstance(value, tuple | list) else (value,)
    return tuple(items) if all(isinstance(n, int) for n in items) else None


def shape_of(value: Any) -> tuple[int, ...] | None:
    """A shape given as a tuple, list or single number; None where it is not known."""
    return _shape(value)


def dtype_name(value: Any, default: str = "float32") -> str:
    """dtype named by a library reference, or the default."""
    found = dtype_of(value.path) if isinstance(value, Ref) else None
    return found or default
