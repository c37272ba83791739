"""Tiles and scalars of the cuTile stand-in: values with cuTile's dtype rules, rounded at every operation.

What has no docstring does what cuda-tile 1.7.0 documents under the same name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import numerics
from ..errors import Unsupported
from . import types as ct

Buffer = npt.NDArray[Any]


def wide(buffer: Buffer, dtype: ct.DType) -> Buffer:
    """Values to compute with."""
    if not dtype.form:
        raise Unsupported(f"cuda.tile.{dtype.name}")
    return numerics.widen(buffer, dtype.form)


def narrowed(values: Any, dtype: ct.DType, toward_zero: bool = False) -> Buffer:
    """Computed values in a dtype's storage."""
    if not dtype.form:
        raise Unsupported(f"cuda.tile.{dtype.name}")
    out = np.asarray(values)
    if dtype.form not in numerics.FLOATS:
        return out.astype(numerics.storage(dtype.form), copy=False)
    out = numerics.narrow(out if out.dtype.kind == "f" else out.astype(np.float64), dtype.form, toward_zero)
    return numerics.to_tf32(out) if dtype is ct.tfloat32 else out


class Tile:
    """An immutable block of values."""

    __slots__ = ("_dtype", "buffer")
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None
    buffer: Buffer

    def __init__(self, buffer: Buffer, dtype: ct.DType) -> None:
        self.buffer, self._dtype = buffer, dtype

    @property
    def dtype(self) -> ct.DType:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.buffer.shape

    @property
    def ndim(self) -> int:
        return self.buffer.ndim

    def values(self) -> Buffer:
        """Values to compute with."""
        return wide(self.buffer, self._dtype)

    def item(self) -> Tile:
        if self.buffer.size != 1:
            raise ct.TileTypeError(f"item() needs a tile with one element, not shape {self.shape}")
        return Tile(self.buffer.reshape(()), self._dtype)

    def astype(self, dtype: ct.DType, *, rounding_mode: Any = None) -> Tile:
        if dtype is self._dtype:
            return self
        if not (dtype.form and self._dtype.form):
            raise Unsupported(f"cuda.tile.{(self._dtype if dtype.form else dtype).name}")
        out = numerics.convert(self.buffer, self._dtype.form, dtype.form, rounding_mode is ct.RoundingMode.RZ)
        return Tile(numerics.to_tf32(out) if dtype is ct.tfloat32 else out, dtype)

    def reshape(self, shape: Any) -> Tile:
        return Tile(self.buffer.reshape(shape), self._dtype)

    def permute(self, axes: Any) -> Tile:
        return Tile(self.buffer.transpose(axes), self._dtype)

    def transpose(self, axis0: int | None = None, axis1: int | None = None) -> Tile:
        if axis0 is None or axis1 is None:
            if self.ndim != 2:
                raise ct.TileTypeError("transpose() of a tile with other than two dimensions needs both axes")
            axis0, axis1 = 0, 1
        return Tile(self.buffer.swapaxes(axis0, axis1), self._dtype)

    def extract(self, index: Any, shape: Any) -> Tile:
        from .ops import extract

        return extract(self, index, shape)

    def insert(self, index: Any, value: Any) -> Tile:
        from .ops import insert

        return insert(self, index, value)

    def __getitem__(self, index: Any) -> Tile:
        parts = index if isinstance(index, tuple) else (index,)
        if any(not (part is None or part is Ellipsis or part == slice(None)) for part in parts):
            raise ct.TileTypeError("a tile is indexed with None, ':' and '...' only; use ct.extract")
        return Tile(self.buffer[index], self._dtype)

    def _python(self) -> Any:
        if self.buffer.size != 1:
            raise ct.TileTypeError(f"a tile of shape {self.shape} cannot be used as a scalar")
        return self.values().item()

    def __index__(self) -> int:
        return operator.index(self._python())

    def __int__(self) -> int:
        return int(self._python())

    def __float__(self) -> float:
        return float(self._python())

    def __bool__(self) -> bool:
        return bool(self._python())

    def __format__(self, spec: str) -> str:
        return self._text(lambda value: format(value, spec))

    def __str__(self) -> str:
        return self._text(str)

    __repr__ = __str__

    def _text(self, show: Callable[[Any], str]) -> str:
        def nested(values: Any) -> str:
            return "[" + ", ".join(map(nested, values)) + "]" if isinstance(values, list) else show(values)

        return nested(self.values().tolist())


def as_tile(item: Any) -> Tile:
    """A tile of any operand; Python constants get their default dtypes."""
    if isinstance(item, Tile):
        return item
    if isinstance(item, bool | np.bool_):
        return Tile(np.asarray(item, np.bool_), ct.bool_)
    if isinstance(item, int | np.integer):
        fits = -(2**31) <= item < 2**31
        return Tile(np.asarray(int(item), np.int32 if fits else np.int64), ct.int32 if fits else ct.int64)
    if isinstance(item, float | np.floating):
        return Tile(np.asarray(item, np.float32), ct.float32)
    raise ct.TileTypeError(f"a tile or scalar was expected, not {type(item).__name__}")
