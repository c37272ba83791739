"""Tiled views and raw memory of arrays of the cuTile stand-in.

What has no docstring does what cuda-tile 1.7.0 documents under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import atomics
from . import types as ct
from .arithmetic import Scalar
from .memory import Array, as_tuple, check_inside, gather, placed, read_window, scatter, window
from .tile import Tile


@dataclass
class TiledView:
    """An array seen as a grid of tiles, which may overlap or leave gaps."""

    array: Array
    tile_shape: tuple[int, ...]
    padding_mode: ct.PaddingMode
    traversal_steps: tuple[int, ...]

    @property
    def dtype(self) -> ct.DType:
        return self.array.dtype

    def num_tiles(self, axis: int) -> Scalar:
        return Scalar(-(-self.array.view.shape[axis] // self.traversal_steps[axis]))

    def _starts(self, index: Any) -> tuple[int, ...]:
        return tuple(i * step for i, step in zip(as_tuple(index), self.traversal_steps, strict=True))

    def load(self, index: Any, *, check_bounds: bool = True, **_: Any) -> Tile:
        if not check_bounds:
            check_inside(self.array.view, self._starts(index), self.tile_shape, self.array.name, "load")
        return read_window(self.array.view, self.array, self._starts(index), self.tile_shape, self.padding_mode)

    def store(self, index: Any, tile: Any, *, check_bounds: bool = True, **_: Any) -> None:
        if not check_bounds:
            check_inside(self.array.view, self._starts(index), self.tile_shape, self.array.name, "store")
        outer, inner = window(self.array.view, self._starts(index), self.tile_shape)
        self.array.view[outer] = placed(tile, self.tile_shape, self.dtype)[inner]

    def __getattr__(self, name: str) -> Any:
        operation = {"add": "add", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor"}.get(name[13:])
        if not name.startswith("atomic_store_") or operation is None:
            raise AttributeError(name)

        def update(index: Any, tile: Any, /) -> None:
            outer, inner = window(self.array.view, self._starts(index), self.tile_shape)
            new = placed(tile, self.tile_shape, self.dtype)[inner]
            self.array.view[outer] = atomics.combining(operation, self.dtype)(self.array.view[outer], new)

        return update


class RawArrayMemory:
    """Elements by offset from the array's first, whatever its shape; outside the storage is an error."""

    def __init__(self, array: Array) -> None:
        flat = array.flat
        self._array = Array(flat, array.dtype, array.name, flat)
        self.dtype = array.dtype

    def load_offset(self, offset: Any, /, *, mask: Any = None, padding_value: Any = 0, **_: Any) -> Tile:
        return gather(self._array, (offset,), mask=mask, padding_value=padding_value, check_bounds=False)

    def store_offset(self, offset: Any, value: Any, /, *, mask: Any = None, **_: Any) -> None:
        scatter(self._array, (offset,), value, mask=mask, check_bounds=False)

    def __getattr__(self, name: str) -> Any:
        function = atomics.names().get(name.removesuffix("_offset")) if name.startswith("atomic_") else None
        if function is None:
            raise AttributeError(name)
        return lambda offset, *operands, mask=None, **_: function(
            self._array, (offset,), *operands, mask=mask, check_bounds=False
        )
