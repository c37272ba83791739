"""Elementwise arithmetic of the cuTile stand-in: cuTile's promotions, each result rounded to its dtype.

What has no docstring does what cuda-tile 1.7.0 documents under the same name.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import special
from . import types as ct
from .tile import Tile, as_tile, narrowed, wide

Buffer = npt.NDArray[Any]


class Scalar(int):
    """A run-time int32: block numbers, extents, loop counters, integer arguments. With floats it makes float32 tiles."""

    def __truediv__(self, other: Any) -> Any:
        return binary("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return binary("truediv", other, self)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        return Scalar(int(self) ** other) if type(other) in (int, Scalar) and other >= 0 else binary("pow", self, other)


def _scalar_method(name: str) -> Callable[..., Any]:
    plain = getattr(int, f"__{name}__")

    def method(self: Scalar, *others: Any) -> Any:
        if others and isinstance(others[0], float):
            reflected = name.startswith("r") and name != "rshift"
            return binary(name[1:] if reflected else name, *((others[0], self) if reflected else (self, others[0])))
        out = plain(self, *others)
        return Scalar(out) if type(out) is int else out

    return method


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "and", "or", "xor", "lshift",
              "rshift", "neg", "abs", "invert"):  # fmt: skip
    setattr(Scalar, f"__{_name}__", _scalar_method(_name))


def _is_loose(item: Any) -> bool:
    return type(item) in (bool, int, float)


def common(x: Any, y: Any, force_float: bool = False) -> tuple[Buffer, Buffer, ct.DType]:
    """Both operands' values in their common dtype, ready to compute with."""
    if _is_loose(x) and not _is_loose(y):
        dtype = ct.promote_constant(as_tile(y).dtype, x)
    elif _is_loose(y):
        dtype = ct.promote_constant(as_tile(x).dtype, y)
    else:
        dtype = ct.promote(as_tile(x).dtype, as_tile(y).dtype)
    if force_float and dtype.kind != "f":
        dtype = ct.float32
    return _operand(x, dtype), _operand(y, dtype), dtype


def _operand(item: Any, dtype: ct.DType) -> Buffer:
    if _is_loose(item):
        return wide(narrowed(np.asarray(item), dtype), dtype)
    tile = as_tile(item)
    return tile.values() if tile.dtype is dtype else tile.astype(dtype).values()


def _floor_divide(x: Buffer, y: Buffer) -> Buffer:
    return np.asarray(
        np.floor_divide(x, np.where(y == 0, y.dtype.type(1), y)) if x.dtype.kind in "iu" else np.floor(x / y)
    )


def _modulo(x: Buffer, y: Buffer) -> Buffer:
    return np.asarray(np.mod(x, np.where(y == 0, y.dtype.type(1), y)) if x.dtype.kind in "iu" else np.mod(x, y))


def _power(x: Buffer, y: Buffer) -> Buffer:
    if x.dtype.kind in "iu":
        return np.asarray(np.power(x.astype(np.float64), y).astype(x.dtype))
    return np.asarray(np.power(x, y))


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": _floor_divide, "mod": _modulo,
    "pow": _power, "min": np.fmin, "max": np.fmax, "min_nan": np.minimum, "max_nan": np.maximum, "atan2": np.arctan2,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., Any]] = {
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_PYTHON: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift")
    },
    **{name: getattr(operator, name) for name in COMPARISONS},
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
    "atan2": math.atan2,
}


def binary(name: str, x: Any, y: Any) -> Any:
    """An elementwise operation; two Python constants give a Python constant."""
    if _is_loose(x) and _is_loose(y):
        return _PYTHON[name.removesuffix("_nan")](x, y)
    left, right, dtype = common(x, y, force_float=name == "truediv")
    if name in COMPARISONS:
        return Tile(np.asarray(COMPARISONS[name](left, right)), ct.bool_)
    return Tile(narrowed(ARITHMETIC[name](left, right), dtype), dtype)


def unary(function: Callable[..., Any], x: Any) -> Tile:
    """An elementwise function of one operand; integers become float32."""
    tile = as_tile(x)
    if tile.dtype.kind != "f":
        tile = tile.astype(ct.float32)
    return Tile(narrowed(function(tile.values()), tile.dtype), tile.dtype)


def negative(x: Any) -> Any:
    if _is_loose(x):
        return -x
    tile = as_tile(x)
    return Tile(narrowed(-tile.values(), tile.dtype), tile.dtype)


def absolute(x: Any) -> Any:
    if _is_loose(x):
        return builtins.abs(x)
    tile = as_tile(x)
    return Tile(narrowed(np.abs(tile.values()), tile.dtype), tile.dtype)


def bitwise_not(x: Any) -> Any:
    tile = as_tile(x)
    return Tile(~tile.buffer, tile.dtype)


_FUNCTIONS = (
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "floor",
    "ceil",
)
UNARY: dict[str, Callable[..., Any]] = {name: special.PLAIN[name] for name in _FUNCTIONS}


def _install_operators() -> None:
    def forward(name: str) -> Callable[..., Any]:
        return lambda self, other: (
            binary(name, self, other) if isinstance(other, Tile | int | float) else NotImplemented
        )

    def backward(name: str) -> Callable[..., Any]:
        return lambda self, other: binary(name, other, self) if isinstance(other, int | float) else NotImplemented

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
        setattr(Tile, f"__{name}__", forward(name))
        setattr(Tile, f"__r{name}__", backward(name))
    for name in COMPARISONS:
        setattr(Tile, f"__{name}__", forward(name))
    members: dict[str, Any] = {
        "__neg__": negative,
        "__abs__": absolute,
        "__invert__": bitwise_not,
        "__pos__": lambda self: self,
        "__divmod__": lambda self, other: (binary("floordiv", self, other), binary("mod", self, other)),
        "__rdivmod__": lambda self, other: (binary("floordiv", other, self), binary("mod", other, self)),
    }
    for name, member in members.items():
        setattr(Tile, name, member)


_install_operators()
