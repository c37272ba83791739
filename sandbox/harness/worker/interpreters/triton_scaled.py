"""``tl.dot_scaled`` for versions whose interpreter lacks it: microscaling formats by the OCP MX specification 1.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton._C.libtriton import ir as _ir
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as _interpreter

from . import numerics

Array = npt.NDArray[Any]
_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)


def unpack_e2m1(octets: Array, axis: int) -> Array:
    """Two 4-bit floats a byte, low nibble first, along ``axis``."""
    moved = np.moveaxis(octets.view(np.uint8), axis, -1)
    codes = np.stack([moved & 15, moved >> 4], axis=-1).reshape(*moved.shape[:-1], -1)
    values = np.where(codes & 8, -_E2M1[codes & 7], _E2M1[codes & 7])
    return np.moveaxis(values, -1, axis)


def e8m0_to_f32(codes: Array) -> Array:
    """A power of two; 255 is NaN."""
    exponent = codes.view(np.uint8).astype(np.float32) - 127
    return np.where(codes.view(np.uint8) == 255, np.float32(np.nan), np.exp2(exponent)).astype(np.float32)


def _operand(handle: Any, scale: Any, kind: Any, k_pack: bool, k_axis: int) -> Array:
    if kind == _ir.ScaleDotElemTypeTY.E2M1:
        values = unpack_e2m1(handle.data, k_axis if k_pack else -3 - k_axis)
    else:
        values = numerics.widen(handle.data, handle.dtype.scalar.name).astype(np.float32)
    if scale is None:
        return values
    if scale.dtype.scalar.is_int():
        factors = e8m0_to_f32(scale.data)
    else:
        factors = numerics.widen(scale.data, scale.dtype.scalar.name).astype(np.float32)
    factors = np.repeat(factors, values.shape[k_axis] // factors.shape[-1], axis=-1)
    return values * (factors if k_axis == -1 else np.swapaxes(factors, -1, -2))


def create_dot_scaled(self: Any, *operands: Any) -> Any:
    """Scaled operands in float32, then the product."""
    lhs, lhs_scale, lhs_format, rhs, rhs_scale, rhs_format, _, lhs_k_pack, rhs_k_pack, accumulator = operands
    left = _operand(lhs, lhs_scale, lhs_format, lhs_k_pack, -1)
    right = _operand(rhs, rhs_scale, rhs_format, rhs_k_pack, -2)
    product = np.matmul(left, right) + accumulator.data
    return _interpreter.TensorHandle(product.astype(accumulator.data.dtype), accumulator.dtype.scalar)


def install(builder: Any) -> None:
    """Give the builder the operation, and its frontend the compile-time strings that it expects of a compiler."""
    plain = TritonSemantic.dot_scaled

    def dot_scaled(self: Any, *operands: Any) -> Any:
        return plain(self, *(tl.constexpr(item) if isinstance(item, str) else item for item in operands))

    builder.create_dot_scaled = create_dot_scaled
    TritonSemantic.dot_scaled = dot_scaled
