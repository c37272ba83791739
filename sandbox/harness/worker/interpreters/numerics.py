"""Number formats that numpy lacks (bfloat16, float8), stored as integers, and the rounding that a GPU applies.

Formats go by Triton's names (``bf16``, ``fp8e4nv``, …). Rounding is to nearest even unless said otherwise; conversions
to float8 saturate to the largest finite value as ``cvt.rn.satfinite`` does (PTX ISA 8.x, section cvt).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# name: (exponent bits, mantissa bits, bias, kind of special values)
FLOAT8: dict[str, tuple[int, int, int, str]] = {
    "fp8e5": (5, 2, 15, "ieee"),
    "fp8e4nv": (4, 3, 7, "fn"),
    "fp8e4b8": (4, 3, 8, "fnuz"),
    "fp8e5b16": (5, 2, 16, "fnuz"),
    "fp8e4b15": (4, 3, 15, "none"),
}
NATIVE: dict[str, np.dtype[Any]] = {
    "int1": np.dtype(np.bool_),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
}
PACKED = frozenset(("bf16", *FLOAT8))
"""Formats stored as unsigned integers."""
FLOATS = PACKED | {"fp16", "fp32", "fp64"}


def storage(name: str) -> np.dtype[Any]:
    """The numpy dtype that holds values of a format."""
    if name == "bf16":
        return np.dtype(np.uint16)
    return np.dtype(np.uint8) if name in FLOAT8 else NATIVE[name]


def bf16_to_f32(bits: Array) -> Array:
    """Exact."""
    wide: Array = np.asarray(bits).view(np.uint16).astype(np.uint32)
    return (wide << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: Array, toward_zero: bool = False) -> Array:
    """Bits of the nearest bfloat16; NaN becomes the GPU's quiet 0x7fff."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(np.shape(values))
    if toward_zero:
        rounded = bits >> np.uint32(16)
    else:
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, np.uint32(0x7FFF), rounded).astype(np.uint16)


@lru_cache(maxsize=8)
def _decode_table(name: str) -> Array:
    exponent_bits, mantissa_bits, bias, kind = FLOAT8[name]
    code = np.arange(256)
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    fraction = np.where(exponent == 0, mantissa, mantissa + (1 << mantissa_bits)) / (1 << mantissa_bits)
    value = fraction * np.exp2(np.maximum(exponent, 1) - bias)
    if kind == "ieee":
        top = exponent == (1 << exponent_bits) - 1
        value = np.where(top, np.where(mantissa == 0, np.inf, np.nan), value)
    elif kind == "fn":
        value = np.where((code & 0x7F) == 0x7F, np.nan, value)
    value = np.where(code >= 128, -value, value)
    if kind == "fnuz":
        value[0x80] = np.nan
    narrow: np.ndarray[Any, np.dtype[Any]] = value.astype(np.float32)
    return narrow


@lru_cache(maxsize=8)
def _encode_table(name: str) -> tuple[Array, Array]:
    """Finite positive values in order, and the midpoints between neighbours, both float64."""
    positive = _decode_table(name)[:128].astype(np.float64)
    positive = positive[np.isfinite(positive)]
    return positive, (positive[1:] + positive[:-1]) / 2


def float8_to_f32(codes: Array, name: str) -> Array:
    """Exact, by table."""
    return np.asarray(_decode_table(name)[np.asarray(codes).view(np.uint8)])


def to_float8(values: Array, name: str, toward_zero: bool = False) -> Array:
    """Codes of the nearest value, ties to the even code, saturating; NaN stays NaN."""
    positive, middle = _encode_table(name)
    magnitude = np.abs(np.asarray(values, dtype=np.float64))
    if toward_zero:
        code = np.maximum(np.searchsorted(positive, magnitude, side="right") - 1, 0)
    else:
        code = np.searchsorted(middle, magnitude, side="left")
        tie = (code < len(middle)) & (magnitude == middle[np.minimum(code, len(middle) - 1)])
        code = code + (tie & (code % 2 == 1))
    code = np.minimum(code, len(positive) - 1)
    kind = FLOAT8[name][3]
    negative = np.signbit(values) & ((code > 0) | (kind != "fnuz"))
    code = np.where(negative, code | 0x80, code)
    return np.where(np.isnan(values), 0x80 if kind == "fnuz" else 0x7F, code).astype(np.uint8)


def to_tf32(values: Array) -> Array:
    """float32 rounded to the 10 mantissa bits that tensor cores read for tf32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(
        np.float32
    )
    return np.where(np.isfinite(values), rounded, values).reshape(np.shape(values))


def widen(values: Array, name: str) -> Array:
    """Values to compute with: packed formats become float32, others stay."""
    if name == "bf16":
        return bf16_to_f32(values)
    return float8_to_f32(values, name) if name in FLOAT8 else values


def narrow(values: Array, name: str, toward_zero: bool = False) -> Array:
    """Round computed float values to a format's storage."""
    if name == "bf16":
        return f32_to_bf16(values, toward_zero)
    if name in FLOAT8:
        return to_float8(values, name, toward_zero)
    out = values.astype(storage(name))
    if toward_zero and out.dtype.itemsize < values.dtype.itemsize:
        away = np.abs(out.astype(np.float64)) > np.abs(values.astype(np.float64))
        out = np.where(away, np.nextafter(out, np.zeros_like(out)), out)
    return out


def _float_to_int(values: Array, name: str) -> Array:
    """Toward zero, saturating, NaN to 0: what ``cvt.rzi`` does."""
    target = NATIVE[name]
    compute = target if target.itemsize >= 4 else np.dtype(np.uint32 if target.kind == "u" else np.int32)
    limits = np.iinfo(compute)
    wide = np.trunc(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    out = np.clip(wide, float(limits.min), float(limits.max))
    whole = np.where(wide >= float(limits.max), limits.max, np.where(wide <= float(limits.min), limits.min, 0))
    inside = (wide < float(limits.max)) & (wide > float(limits.min))
    return np.where(inside, np.where(inside, out, 0).astype(compute), whole.astype(compute)).astype(target)


def convert(values: Array, source: str, target: str, toward_zero: bool = False) -> Array:
    """Values of one format as another, as a GPU's conversion instructions give them."""
    if source == target:
        return values
    wide = widen(values, source)
    if target == "int1":
        return np.asarray(wide != 0)
    if target in FLOATS:
        if target in PACKED and wide.dtype.kind != "f":
            wide = wide.astype(np.float32)
        return narrow(wide, target, toward_zero)
    if wide.dtype.kind == "f":
        return _float_to_int(wide, target)
    return wide.astype(NATIVE[target])
