"""What each PTX instruction computes, as numpy functions of whole registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from . import numerics, special
from .errors import Unsupported

Array = npt.NDArray[Any]

TYPES = {
    **{f"{k}{bits}": f"{'int' if k == 's' else 'uint'}{bits}" for k in "sub" for bits in (8, 16, 32, 64)},
    "f16": "fp16", "f32": "fp32", "f64": "fp64", "bf16": "bf16", "e4m3": "fp8e4nv", "e5m2": "fp8e5", "pred": "int1", "tf32": "fp32",
}  # fmt: skip


def compare(test: str, left: Array, right: Array, opcode: str) -> Array:
    """``setp``: ordered, unordered (``…u``), ``num`` and ``nan`` tests."""
    tests: dict[str, Callable[[Array, Array], Array]] = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    }  # fmt: skip
    unordered = test.removesuffix("u")
    if test == "num":
        return np.asarray(~(np.isnan(left) | np.isnan(right)))
    if test == "nan":
        return np.asarray(np.isnan(left) | np.isnan(right))
    if test in tests:
        return tests[test](left, right)
    if unordered in tests:
        return np.asarray(tests[unordered](left, right) | np.isnan(left) | np.isnan(right))
    raise Unsupported(f"the inline asm instruction {opcode!r}")


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def apply(x: Array, amount: Array) -> Array:
        bits = x.dtype.itemsize * 8
        count = (
            amount.view(f"u{amount.dtype.itemsize}").astype(np.int64)
            if amount.dtype.kind != "u"
            else amount.astype(np.int64)
        )
        inside = np.minimum(count, bits - 1).astype(x.dtype)
        out = np.left_shift(x, inside) if left else np.right_shift(x, inside)
        gone = (count >= bits) & (left | (x.dtype.kind == "u"))
        shifted: np.ndarray[Any, np.dtype[Any]] = np.where(gone, x.dtype.type(0), out)
        return shifted

    return apply


def _lop3(suffixes: list[str]) -> Callable[..., Array]:
    def apply(a: Array, b: Array, c: Array, table: Array) -> Array:
        lookup = int(table.reshape(-1)[0])
        out: Any = 0
        for row in range(8):
            if lookup >> row & 1:
                out = out | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
        return np.asarray(out, dtype=a.dtype) if not isinstance(out, int) else np.zeros_like(a)

    return apply


def _integer_product(suffixes: list[str], more: bool) -> Callable[..., Array]:
    def apply(x: Array, y: Array, *z: Array) -> Array:
        if "hi" in suffixes:
            out = special.mulhi(x, y)
        elif "wide" in suffixes:
            wide = np.dtype(f"{x.dtype.kind}{x.dtype.itemsize * 2}")
            out = x.astype(wide) * y.astype(wide)
        else:
            out = x * y
        return np.asarray(out + z[0].astype(out.dtype)) if more else out

    return apply


def _float_only(name: str) -> Callable[..., Any] | None:
    aliases = {"ex2": "exp2", "lg2": "log2", "tanh": "tanh", "sin": "sin", "cos": "cos", "rsqrt": "rsqrt", "rcp": "rcp"}
    return special.PLAIN.get(aliases.get(name, ""))


def _funnel(left: bool) -> Callable[[Array, Array, Array], Array]:
    """``shf``: a shift of a 64-bit pair."""

    def apply(low: Array, high: Array, count: Array) -> Array:
        pair = low.view(np.uint32).astype(np.uint64) | (high.view(np.uint32).astype(np.uint64) << np.uint64(32))
        step = count.view(np.uint32).astype(np.uint64) & np.uint64(31)
        return np.asarray((pair << step >> np.uint64(32)) if left else (pair >> step)).astype(np.uint32)

    return apply


def _bit_field(x: Array, position: Array, length: Array) -> Array:
    return np.asarray((x >> position) & ((x.dtype.type(1) << length) - x.dtype.type(1)))


_ONE_TO_ONE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "copysign": lambda sign, size: np.copysign(size, sign),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": _shift(True),
    "shr": _shift(False),
    "popc": special.PLAIN["popc"],
    "clz": special.clz,
    "brev": special.brev,
    "rem": np.fmod,
    "fma": special.PLAIN["fma"],
    "bfe": _bit_field,
}


def function_of(name: str, suffixes: list[str]) -> Callable[..., Any] | None:
    """The numpy function of an instruction, or None."""
    floats = any(s in ("f16", "f32", "f64", "bf16") for s in suffixes)
    if name in ("min", "max"):
        keep_nan = "NaN" in suffixes or not floats
        lowest, highest = (np.minimum, np.maximum) if keep_nan else (np.fmin, np.fmax)
        return lowest if name == "min" else highest
    if name == "lop3":
        return _lop3(suffixes)
    if name == "shf":
        return _funnel("l" in suffixes)
    if name == "mul":
        return np.multiply if floats else _integer_product(suffixes, more=False)
    if name == "mad":
        return special.PLAIN["fma"] if floats else _integer_product(suffixes, more=True)
    if name == "div":
        return np.divide if floats else lambda x, y: (x - np.fmod(x, y)) // y
    return _ONE_TO_ONE.get(name) or _float_only(name)


def result_of(name: str, suffixes: list[str], kind: str, values: Any) -> Array:
    """Round to the instruction's type; wide products and counts keep their own."""
    out = np.asarray(values)
    if name in ("popc", "clz"):
        return out.astype(np.uint32)
    if "wide" in suffixes:
        return out
    if "sat" in suffixes and out.dtype.kind == "f":
        out = np.clip(np.nan_to_num(out), 0, 1)
    if "relu" in suffixes:
        out = np.fmax(out, 0)
    target = TYPES[kind]
    return (
        numerics.narrow(out, target) if target in numerics.FLOATS else out.astype(numerics.storage(target), copy=False)
    )
