"""Arithmetic of Triton's interpreter done right: bfloat16 and float8 values, NaN in min and max, shifts, casts, dot.

Each function replaces the method of the same name of ``triton.runtime.interpreter.InterpreterBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton._C.libtriton import ir as _ir
from triton.runtime import interpreter as _interpreter

from . import numerics, special
from .errors import Unsupported

Array = npt.NDArray[Any]
Handle = Any
TensorHandle = _interpreter.TensorHandle
Table = dict[str, Callable[..., Any]]

_BOOL_ARITHMETIC = (np.add, np.subtract, np.multiply)


def wide(handle: Handle) -> Array:
    """The values of a handle in a format that numpy computes with."""
    values: Array = handle.data
    name = handle.dtype.scalar.name
    if name in numerics.PACKED and values.dtype.kind in "ui":
        return numerics.widen(values, name)
    return values


def rounded(values: Any, dtype: Any) -> Handle:
    """A handle of ``dtype`` from computed values, rounded to it."""
    scalar = dtype.scalar
    out = np.asarray(values)
    expected = numerics.storage(scalar.name)
    if scalar.name in numerics.PACKED:
        out = numerics.narrow(out, scalar.name)
    elif out.dtype != expected:
        out = out.astype(expected)
    return TensorHandle(out, scalar)


def binary_op(self: Any, lhs: Handle, rhs: Handle, op: Callable[..., Any]) -> Handle:
    """Any two-operand operation; comparisons give int1."""
    left, right = wide(lhs), wide(rhs)
    if left.dtype == np.bool_ and right.dtype == np.bool_ and op in _BOOL_ARITHMETIC:
        return TensorHandle((op(left.astype(np.int8), right.astype(np.int8)) & 1).astype(np.bool_), tl.int1)
    out = op(left, right)
    if out.dtype == np.bool_:
        return TensorHandle(out, tl.int1)
    return rounded(out, lhs.dtype) if not lhs.dtype.scalar.is_ptr() else TensorHandle(out, lhs.dtype.scalar)


def unary_op(self: Any, arg: Handle, op: Callable[..., Any]) -> Handle:
    """Any one-operand operation."""
    return rounded(op(wide(arg)), arg.dtype)


def ternary_op(self: Any, lhs: Handle, rhs: Handle, other: Handle, op: Callable[..., Any]) -> Handle:
    """Any three-operand operation on floats; the result has the type of the last."""
    return rounded(op(wide(lhs), wide(rhs), wide(other)), other.dtype)


def create_select(self: Any, condition: Handle, lhs: Handle, rhs: Handle) -> Handle:
    """A choice moves bits; nothing is rounded."""
    picked = np.where(condition.data.astype(np.bool_), lhs.data, rhs.data)
    return TensorHandle(picked.astype(rhs.data.dtype, copy=False), rhs.dtype.scalar)


def create_clampf(self: Any, arg: Handle, low: Handle, high: Handle, propagate_nans: Any) -> Handle:
    """A GPU's clamp drops NaN unless it is told to keep it."""
    value = wide(arg)
    out = np.fmin(np.fmax(value, wide(low)), wide(high))
    if propagate_nans == _ir.PROPAGATE_NAN.ALL:
        out = np.where(np.isnan(value), value, out)
    return rounded(out, arg.dtype)


def create_fma(self: Any, x: Handle, y: Handle, z: Handle) -> Handle:
    """One rounding: the product is exact in float64 for float32 and narrower."""
    product = wide(x).astype(np.float64) * wide(y).astype(np.float64)
    return rounded(product + wide(z).astype(np.float64), z.dtype)


def _unsigned(op: Callable[..., Any]) -> Callable[..., Handle]:
    def apply(self: Any, lhs: Handle, rhs: Handle) -> Handle:
        kind = f"u{lhs.data.dtype.itemsize}"
        if lhs.data.dtype == np.bool_:
            return binary_op(self, lhs, rhs, op)
        out = op(lhs.data.astype(kind), rhs.data.astype(kind))
        if out.dtype == np.bool_:
            return TensorHandle(out, tl.int1)
        return TensorHandle(out.astype(lhs.data.dtype), lhs.dtype.scalar)

    return apply


def create_ashr(self: Any, lhs: Handle, rhs: Handle) -> Handle:
    """Arithmetic shift; the operands stay as they are."""
    size = lhs.data.dtype.itemsize
    out = np.right_shift(lhs.data.view(f"i{size}"), rhs.data.astype(f"i{size}"))
    return TensorHandle(out.astype(lhs.data.dtype), lhs.dtype.scalar)


def create_idiv(self: Any, lhs: Handle, rhs: Handle) -> Handle:
    """Integer division toward zero; by zero it is all ones, as on a GPU, instead of an exception."""
    left, right = lhs.data, rhs.data
    zero = right == 0
    safe = np.where(zero, right.dtype.type(1), right)
    quotient = (left - np.fmod(left, safe)) // safe
    return TensorHandle(np.where(zero, ~np.zeros_like(quotient), quotient).astype(left.dtype), lhs.dtype.scalar)


def create_irem(self: Any, lhs: Handle, rhs: Handle) -> Handle:
    """Remainder with the sign of the dividend."""
    safe = np.where(rhs.data == 0, rhs.data.dtype.type(1), rhs.data)
    return TensorHandle(np.fmod(lhs.data, safe).astype(lhs.data.dtype), lhs.dtype.scalar)


def create_umulhi(self: Any, lhs: Handle, rhs: Handle) -> Handle:
    """High half of the unsigned product."""
    kind = f"u{lhs.data.dtype.itemsize}"
    high = special.mulhi(lhs.data.astype(kind), rhs.data.astype(kind))
    return TensorHandle(high.astype(lhs.data.dtype), lhs.dtype.scalar)


def create_fabs(self: Any, arg: Handle) -> Handle:
    """Clear the sign bit, in any float format."""
    unsigned = arg.data.view(f"u{arg.data.dtype.itemsize}")
    keep = unsigned.dtype.type((1 << (arg.data.dtype.itemsize * 8 - 1)) - 1)
    return TensorHandle((unsigned & keep).view(arg.data.dtype), arg.dtype.scalar)


def cast(self: Any, src: Handle, dst_type: Any) -> Handle:
    """Value conversion between any two scalar types."""
    source, target = src.dtype.scalar, dst_type.scalar
    values = src.data
    if source.name not in numerics.FLOATS and source.name in numerics.NATIVE:
        values = values.astype(numerics.NATIVE[source.name], copy=False)
    return TensorHandle(numerics.convert(values, source.name, target.name), target)


def create_fp_to_fp(self: Any, src: Handle, dst_type: Any, rounding_mode: Any) -> Handle:
    """Float to float with a rounding mode."""
    source, target = src.dtype.scalar, dst_type.scalar
    toward_zero = rounding_mode == _ir.ROUNDING_MODE.RTZ
    return TensorHandle(numerics.convert(src.data, source.name, target.name, toward_zero), target)


def create_int_cast(self: Any, src: Handle, dst_type: Any, is_signed: bool) -> Handle:
    """Between integers: keep the low bits, extend by the source's sign."""
    return cast(self, src, dst_type)


def create_bitcast(self: Any, src: Handle, dst_type: Any) -> Handle:
    """Same bits, other type."""
    target = dst_type.scalar
    stored = np.dtype(np.uint64) if target.is_ptr() else numerics.storage(target.name)
    values = np.ascontiguousarray(src.data) if not src.data.flags.c_contiguous else src.data
    return TensorHandle(values.reshape(src.data.shape).view(stored), target)


def create_dot(self: Any, a: Handle, b: Handle, d: Handle, input_precision: Any, max_num_imprecise_acc: Any) -> Handle:
    """Products and sums in float32 (int32 for int8, float64 for float64); float32 operands as the precision says."""
    left, right = wide(a), wide(b)
    if left.dtype.kind in "iu":
        # Sums of at most 2^16 products below 2^14 are exact in float64, which is far faster than integers in numpy.
        product: Array = np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.int64)
        return rounded(product + d.data, d.dtype)
    if left.dtype == np.float32 and a.dtype.scalar == tl.float32 and input_precision == _ir.INPUT_PRECISION.TF32:
        left, right = numerics.to_tf32(left), numerics.to_tf32(right)
    if left.dtype != np.float64:
        left, right = left.astype(np.float32), right.astype(np.float32)
    product = np.matmul(left, right)
    return rounded(product + wide(d).astype(product.dtype), d.dtype)


def create_extern_elementwise(self: Any, *operands: Any) -> Handle:
    """libdevice functions by symbol.

    Raises:
        Unsupported: for a symbol that has no counterpart here.
    """
    _, _, symbol, args, ret_type, _ = operands
    function = special.libdevice(symbol)
    if function is None:
        raise Unsupported(f"the extern function {symbol!r}")
    return rounded(function(*(wide(arg) for arg in args)), ret_type)


def create_histogram(self: Any, values: Handle, bins: int, mask: Handle | None) -> Handle:
    """Counts of the values 0 … bins-1; others and masked ones are dropped."""
    keep = (values.data >= 0) & (values.data < bins)
    if mask is not None:
        keep &= mask.data.astype(np.bool_)
    return TensorHandle(np.bincount(values.data[keep].astype(np.int64), minlength=bins).astype(np.int32), tl.int32)


def get_all_ones_value(self: Any, dtype: Any) -> Handle:
    """All bits set, in any integer type."""
    stored = numerics.storage(dtype.scalar.name)
    return TensorHandle(np.full(1, True) if stored == np.bool_ else ~np.zeros(1, stored), dtype.scalar)


def _of_binary(op: Callable[..., Any]) -> Callable[..., Handle]:
    return lambda self, lhs, rhs: binary_op(self, lhs, rhs, op)


def _of_unary(op: Callable[..., Any]) -> Callable[..., Handle]:
    return lambda self, arg: unary_op(self, arg, op)


def table() -> Table:
    """Every replacement by method name."""
    repairs: Table = {
        "binary_op": binary_op, "unary_op": unary_op, "ternary_op": ternary_op, "cast_impl": cast,
        "create_minnumf": _of_binary(np.fmin), "create_maxnumf": _of_binary(np.fmax),
        "create_lshr": _unsigned(np.right_shift), "create_udiv": _unsigned_idiv, "create_urem": _unsigned_irem,
        "create_sdiv": create_idiv, "create_srem": create_irem,
        "create_minui": _unsigned(np.minimum), "create_maxui": _unsigned(np.maximum),
        "create_icmpULE": _unsigned(np.less_equal), "create_icmpULT": _unsigned(np.less),
        "create_icmpUGE": _unsigned(np.greater_equal), "create_icmpUGT": _unsigned(np.greater),
        "create_erf": _of_unary(special.erf), "create_rsqrt": _of_unary(special.rsqrt), "create_fneg": _of_unary(np.negative),
        "create_int_to_ptr": create_bitcast, "create_ptr_to_int": create_bitcast, "get_bf16": get_bf16,
        "create_approx_divf": _of_binary(np.divide),
    }  # fmt: skip
    for function in (
        create_select, create_clampf, create_fma, create_ashr, create_idiv, create_umulhi, create_fabs, create_fp_to_fp,
        create_int_cast, create_bitcast, create_dot, create_extern_elementwise, create_histogram, get_all_ones_value,
    ):  # fmt: skip
        repairs[function.__name__] = function
    for name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc"):
        repairs[f"create_{name}"] = cast
    return repairs


def get_bf16(self: Any, value: float) -> Handle:
    """A bfloat16 constant."""
    return TensorHandle(numerics.f32_to_bf16(np.array([value], np.float32)), tl.bfloat16)


def _as_unsigned(handle: Handle) -> Handle:
    return TensorHandle(handle.data.astype(f"u{handle.data.dtype.itemsize}"), handle.dtype)


def _unsigned_idiv(self: Any, lhs: Handle, rhs: Handle) -> Handle:
    out = create_idiv(self, _as_unsigned(lhs), _as_unsigned(rhs))
    return TensorHandle(out.data.astype(lhs.data.dtype), lhs.dtype.scalar)


def _unsigned_irem(self: Any, lhs: Handle, rhs: Handle) -> Handle:
    out = create_irem(self, _as_unsigned(lhs), _as_unsigned(rhs))
    return TensorHandle(out.data.astype(lhs.data.dtype), lhs.dtype.scalar)
