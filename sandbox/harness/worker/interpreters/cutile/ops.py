"""Operations of the cuTile stand-in that make, reshape, reduce and multiply tiles.

What has no docstring does what cuda-tile 1.7.0 documents under the same name.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import numerics
from ..errors import Unsupported
from . import types as ct
from .arithmetic import UNARY, absolute, binary, bitwise_not, common, negative, unary
from .tile import Tile, as_tile, narrowed

Buffer = npt.NDArray[Any]


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in shape) if isinstance(shape, tuple | list) else (int(shape),)


def _check_power_of_two(shape: tuple[int, ...]) -> None:
    for extent in shape:
        if extent < 1 or extent & (extent - 1):
            raise ct.TileTypeError(f"each dimension of a tile must be a power of two, not {extent} in shape {shape}")


def full(shape: Any, fill_value: Any, dtype: ct.DType) -> Tile:
    extent = _shape(shape)
    _check_power_of_two(extent)
    value = as_tile(fill_value).astype(dtype).buffer
    return Tile(np.broadcast_to(value, extent), dtype)


def zeros(shape: Any, dtype: ct.DType) -> Tile:
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: ct.DType) -> Tile:
    return full(shape, 1, dtype)


def arange(size: int, /, *, dtype: ct.DType, start: Any = 0, step: Any = 1) -> Tile:
    _check_power_of_two((int(size),))
    first, stride = as_tile(start).values(), as_tile(step).values()
    return Tile(narrowed(first + stride * np.arange(int(size), dtype=np.int64), dtype), dtype)


def astile(value: Any, /, *, dtype: ct.DType) -> Tile:
    def leaves(item: Any) -> Any:
        return [leaves(part) for part in item] if isinstance(item, tuple | list) else as_tile(item).values().item()

    return Tile(narrowed(np.asarray(leaves(value)), dtype), dtype)


def astype(x: Any, dtype: ct.DType, /, *, rounding_mode: Any = None) -> Tile:
    return as_tile(x).astype(dtype, rounding_mode=rounding_mode)


def bitcast(x: Any, /, dtype: ct.DType) -> Tile:
    tile = as_tile(x)
    if dtype.bitwidth != tile.dtype.bitwidth or not dtype.form:
        raise ct.TileTypeError(f"bitcast from {tile.dtype} to {dtype}: the widths differ")
    return Tile(np.ascontiguousarray(tile.buffer).reshape(tile.shape).view(numerics.storage(dtype.form)), dtype)


def pack_to_bytes(x: Any, /) -> Tile:
    return Tile(np.ascontiguousarray(as_tile(x).buffer).reshape(-1).view(np.uint8), ct.uint8)


def unpack_from_bytes(x: Any, /, dtype: ct.DType) -> Tile:
    return Tile(np.ascontiguousarray(as_tile(x).buffer).view(numerics.storage(dtype.form)), dtype)


def reshape(x: Any, /, shape: Any) -> Tile:
    return as_tile(x).reshape(_shape(shape))


def permute(x: Any, /, axes: Any) -> Tile:
    return as_tile(x).permute(_shape(axes))


def transpose(x: Any, /, axis0: int | None = None, axis1: int | None = None) -> Tile:
    return as_tile(x).transpose(axis0, axis1)


def expand_dims(x: Any, /, axis: int) -> Tile:
    tile = as_tile(x)
    return Tile(np.expand_dims(tile.buffer, axis), tile.dtype)


def broadcast_to(x: Any, /, shape: Any) -> Tile:
    tile = as_tile(x)
    return Tile(np.broadcast_to(tile.buffer, _shape(shape)), tile.dtype)


def cat(tiles: Any, /, axis: int) -> Tile:
    parts = [as_tile(t) for t in tiles]
    return Tile(np.concatenate([p.buffer for p in parts], axis=axis), parts[0].dtype)


def _box(index: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    numbers = index if isinstance(index, tuple | list) else (index,)
    return tuple(slice(int(i) * n, (int(i) + 1) * n) for i, n in zip(numbers, shape, strict=True))


def extract(x: Any, /, index: Any, shape: Any) -> Tile:
    tile = as_tile(x)
    return Tile(tile.buffer[_box(index, _shape(shape))], tile.dtype)


def insert(x: Any, /, index: Any, value: Any) -> Tile:
    tile, part = as_tile(x), as_tile(value).astype(as_tile(x).dtype)
    out = tile.buffer.copy()
    piece = part.buffer if part.ndim else part.buffer.reshape((1,) * tile.ndim)
    out[_box(index, piece.shape)] = piece
    return Tile(out, tile.dtype)


def where(cond: Any, x: Any, y: Any, /) -> Tile:
    left, right, dtype = common(x, y) if not _both_constants(x, y) else common(as_tile(x), as_tile(y))
    return Tile(narrowed(np.where(as_tile(cond).values() != 0, left, right), dtype), dtype)


def _both_constants(x: Any, y: Any) -> bool:
    return type(x) in (bool, int, float) and type(y) in (bool, int, float)


def _product(x: Tile, y: Tile) -> Buffer:
    """x @ y, accumulated in float32 (exactly for integers, in float64 for float64)."""
    left, right = x.values(), y.values()
    if left.dtype.kind in "iu":
        return np.asarray(np.matmul(left.astype(np.float64), right.astype(np.float64)))
    if left.dtype != np.float64:
        left, right = left.astype(np.float32), right.astype(np.float32)
    return np.asarray(np.matmul(left, right))


def mma(x: Tile, y: Tile, /, acc: Tile, *, use_fast_acc: bool = False) -> Tile:
    """``x @ y + acc`` in the accumulator's dtype.

    Raises:
        TileTypeError: for operands of different dtypes.
    """
    eight = (ct.int8, ct.uint8)
    if x.dtype is not y.dtype and not (x.dtype in eight and y.dtype in eight):
        raise ct.TileTypeError(f"x and y must have the same dtype unless they are int8/uint8, got {x.dtype} {y.dtype}")
    total = _product(x, y) + acc.values()
    return Tile(narrowed(total, acc.dtype), acc.dtype)


def matmul(x: Any, y: Any, /) -> Tile:
    left, right = as_tile(x), as_tile(y)
    dtype = left.dtype if left.dtype is right.dtype else ct.promote(left.dtype, right.dtype)
    result = {ct.tfloat32: ct.float32, ct.float8_e4m3fn: ct.float16, ct.float8_e5m2: ct.float16}.get(dtype, dtype)
    result = ct.int32 if dtype in (ct.int8, ct.uint8) else result
    return Tile(narrowed(_product(left.astype(dtype), right.astype(dtype)), result), result)


def mma_scaled(*_: Any, **__: Any) -> Any:
    raise Unsupported("cuda.tile.mma_scaled")


def minimum(x: Any, y: Any, /, *, propagate_nan: bool = False, **_: Any) -> Any:
    return binary("min_nan" if propagate_nan else "min", x, y)


def maximum(x: Any, y: Any, /, *, propagate_nan: bool = False, **_: Any) -> Any:
    return binary("max_nan" if propagate_nan else "max", x, y)


def cdiv(x: Any, y: Any, /) -> Any:
    return -((-x) // y)


def isnan(x: Any, /) -> Tile:
    return Tile(np.isnan(as_tile(x).values()), ct.bool_)


def divmod(x: Any, y: Any, /) -> tuple[Any, Any]:
    return binary("floordiv", x, y), binary("mod", x, y)


def _two(name: str) -> Callable[..., Any]:
    return lambda x, y, /, **_: binary(name, x, y)


def _one(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, /, **_: unary(function, x)


def kernel_min(*items: Any, **keywords: Any) -> Any:
    """``min`` as kernels spell it: elementwise where a tile is among two operands."""
    return (
        minimum(*items)
        if len(items) == 2 and any(isinstance(i, Tile) for i in items)
        else builtins.min(*items, **keywords)
    )


def kernel_max(*items: Any, **keywords: Any) -> Any:
    """``max`` as kernels spell it."""
    return (
        maximum(*items)
        if len(items) == 2 and any(isinstance(i, Tile) for i in items)
        else builtins.max(*items, **keywords)
    )


def names() -> dict[str, Any]:
    """The operations by their public names."""
    aliases = {
        "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "floordiv": "floordiv", "mod": "mod", "pow": "pow",
        "atan2": "atan2", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_lshift": "lshift",
        "bitwise_rshift": "rshift", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
        "equal": "eq", "not_equal": "ne",
    }  # fmt: skip
    plain = (
        full, zeros, ones, arange, astile, astype, bitcast, pack_to_bytes, unpack_from_bytes, reshape, permute, transpose,
        expand_dims, broadcast_to, cat, extract, insert, where, mma, matmul, mma_scaled,
        minimum, maximum, cdiv, isnan, divmod, negative, bitwise_not,
    )  # fmt: skip
    return {
        **{name: _two(operation) for name, operation in aliases.items()},
        **{name: _one(function) for name, function in UNARY.items()},
        **{function.__name__: function for function in plain},
        "abs": absolute,
    }
