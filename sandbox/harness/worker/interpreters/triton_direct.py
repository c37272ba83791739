"""The operations that kernels are made of, straight to numpy where their operands are plain.

Triton's frontend spends tens of microseconds on the types of every ``a + b``. Here operands of one dtype, or a tensor with
a Python number that does not change its dtype, go to numpy at once; every other case goes the long way. The rules for what
is plain are those of ``TritonSemantic.computation_type_impl``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter as _interpreter

from . import numerics, triton_memory, triton_ops

Array = npt.NDArray[Any]
Operation = Callable[..., Any]
TensorHandle = _interpreter.TensorHandle
Tensor = tl.core.tensor

_SIGNED_PAIR = {"int32", "int64"}
_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
_INTEGERS = {name: (np.iinfo(t), t.type) for name, t in numerics.NATIVE.items() if t.kind in "iu"}
_like: dict[tuple[str, tuple[int, ...]], tuple[Any, Any, Any]] = {}


def tensor_of(data: Array, dtype: Any, block: bool) -> Any:
    """A tensor of storage values; not ``block`` means a scalar, kept as an array of one element."""
    if not block:
        return Tensor(TensorHandle(data, dtype), dtype)
    key = (dtype.name, data.shape)
    known = _like.get(key)
    if known is None:
        first = Tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)))
        _like[key] = (first.type, first.shape, first.numel)
        return first
    out = Tensor.__new__(Tensor)
    out.handle, out.dtype = TensorHandle(data, dtype), dtype
    out.type, out.shape, out.numel = known
    return out


def _constant(value: Any, name: str) -> Any:
    """A Python number in a tensor's own dtype, or None where it would change that dtype or does not fit."""
    if isinstance(value, bool):
        return None
    if name in _FLOATS and isinstance(value, int | float):
        return _FLOATS[name](value) if name != "fp16" or abs(value) < 65504 or value in (np.inf, -np.inf) else None
    known = _INTEGERS.get(name)
    if known is not None and isinstance(value, int) and known[0].min <= value <= known[0].max:
        return known[1](value)
    return None


def _operands(self: Any, other: Any) -> tuple[Any, Any, bool, Any] | None:
    """Both operands for numpy, whether the result is a block, and its dtype; None for the long way."""
    dtype = self.dtype
    if type(other) is Tensor:
        theirs = other.dtype
        if theirs is not dtype:
            if {theirs.name, dtype.name} != _SIGNED_PAIR:
                return None
            dtype = tl.int64
        return self.handle.data, other.handle.data, self.type.is_block() or other.type.is_block(), dtype
    constant = _constant(other, dtype.name)
    return None if constant is None else (self.handle.data, constant, self.type.is_block(), dtype)


def _plain_kinds(kinds: str) -> frozenset[str]:
    return frozenset(name for name, t in numerics.NATIVE.items() if t.kind in kinds)


def _arithmetic(long_way: Operation, ufunc: Operation, names: frozenset[str], reflected: bool = False) -> Operation:
    def operate(self: Any, other: Any) -> Any:
        if self.dtype.name in names:
            plain = _operands(self, other)
            if plain is not None:
                left, right, block, dtype = plain
                return tensor_of(ufunc(right, left) if reflected else ufunc(left, right), dtype, block)
        return long_way(self, other)

    return operate


def _comparison(long_way: Operation, ufunc: Operation) -> Operation:
    names = _plain_kinds("iuf")

    def operate(self: Any, other: Any) -> Any:
        if self.dtype.name in names:
            plain = _operands(self, other)
            if plain is not None:
                return tensor_of(ufunc(plain[0], plain[1]), tl.int1, plain[2])
        return long_way(self, other)

    return operate


def _addition(long_way: Operation, number: Operation) -> Operation:
    """``+`` also moves pointers by whole elements."""

    def operate(self: Any, other: Any) -> Any:
        if not (self.dtype.is_ptr() and type(other) is Tensor and other.dtype.name in ("int32", "int64")):
            return number(self, other)
        size = np.uint64(max(1, self.dtype.element_ty.primitive_bitwidth // 8))
        step = other.handle.data.astype(np.int64).view(np.uint64) * size
        out = self.handle.data + step
        return tensor_of(out, self.dtype, self.type.is_block() or other.type.is_block())

    return operate


def _whole_number(operation: Operation) -> Operation:
    """Integer division or remainder of operands whose widths may differ."""

    def apply(left: Any, right: Any) -> Array:
        common = np.result_type(left, right)
        wide = [TensorHandle(np.asarray(side, dtype=common), tl.int64) for side in (left, right)]
        return np.asarray(operation(None, *wide).data)

    return apply


def _getitem(long_way: Operation) -> Operation:
    whole = slice(None)

    def operate(self: Any, index: Any) -> Any:
        parts = index if type(index) is tuple else (index,)
        plain = self.type.is_block() and all(p is None or (type(p) is slice and p == whole) for p in parts)
        if plain and sum(p is not None for p in parts) == self.handle.data.ndim:
            return tensor_of(self.handle.data[parts], self.dtype, True)
        return long_way(self, index)

    return operate


def _to(long_way: Operation) -> Operation:
    def operate(self: Any, dtype: Any, *rest: Any, **named: Any) -> Any:
        dtype = getattr(dtype, "value", dtype)
        source = self.dtype
        if rest or named or not isinstance(dtype, tl.dtype) or dtype.is_ptr() or source.is_ptr() or dtype.is_block():
            return long_way(self, dtype, *rest, **named)
        if dtype is source:
            return self
        if dtype.name not in numerics.NATIVE and dtype.name != "bf16":
            return long_way(self, dtype)
        return tensor_of(triton_ops.cast(None, self.handle, dtype).data, dtype, self.type.is_block())

    return operate


def _plain_pointer(pointer: Any) -> bool:
    known = type(pointer) is Tensor and type(pointer.handle) is TensorHandle and pointer.dtype.is_ptr()
    return known and pointer.dtype.element_ty.name in _LOADABLE


_LOADABLE = frozenset(numerics.NATIVE) - {"int1"} | numerics.PACKED


def _plain_mask(pointer: Any, mask: Any) -> bool:
    if mask is None:
        return True
    shape = pointer.handle.data.shape
    return (
        type(mask) is Tensor and mask.dtype is tl.int1 and (not mask.type.is_block() or mask.handle.data.shape == shape)
    )


def _load(long_way: Operation) -> Operation:
    def operate(pointer: Any, mask: Any = None, other: Any = None, *rest: Any, **named: Any) -> Any:
        mask, other = getattr(mask, "value", mask), getattr(other, "value", other)
        special = rest or named.get("boundary_check") or named.get("padding_option")
        number = isinstance(other, int | float) and not isinstance(other, bool)
        plain = not special and _plain_pointer(pointer) and _plain_mask(pointer, mask)
        if not plain or not (other is None or (number and mask is not None)):
            return long_way(pointer, mask, other, *rest, **named)
        element = pointer.dtype.element_ty
        fill = None
        if other:
            fill = numerics.convert(np.array([other], np.float64), "fp64", element.name)
        loaded = triton_memory._load(pointer.handle, None if mask is None else mask.handle, fill)
        return tensor_of(loaded.data, element, pointer.type.is_block())

    return operate


def _store(long_way: Operation) -> Operation:
    def operate(pointer: Any, value: Any, mask: Any = None, *rest: Any, **named: Any) -> Any:
        mask = getattr(mask, "value", mask)
        plain = not (rest or named.get("boundary_check")) and _plain_pointer(pointer) and _plain_mask(pointer, mask)
        if not plain or type(value) is not Tensor or value.dtype.is_ptr():
            return long_way(pointer, value, mask, *rest, **named)
        if value.type.is_block() and value.handle.data.shape != pointer.handle.data.shape:
            return long_way(pointer, value, mask, *rest, **named)
        converted = triton_ops.cast(None, value.handle, pointer.dtype.element_ty)
        triton_memory._store(pointer.handle, converted, None if mask is None else mask.handle)
        return None

    return operate


def install() -> None:
    """Replace members of Triton's tensor and the two memory functions; after the stock patches, once."""
    numbers, integers = _plain_kinds("iuf"), _plain_kinds("iu")
    wide_floats = frozenset(("fp32", "fp64"))
    signed = frozenset(name for name in integers if name.startswith("int"))
    table: dict[str, tuple[Operation, frozenset[str]]] = {
        "sub": (np.subtract, numbers), "mul": (np.multiply, numbers), "add": (np.add, numbers),
        "truediv": (np.divide, wide_floats), "floordiv": (_whole_number(triton_ops.create_idiv), signed),
        "mod": (_whole_number(triton_ops.create_irem), signed),
        "and": (np.bitwise_and, integers | {"int1"}), "or": (np.bitwise_or, integers | {"int1"}),
        "xor": (np.bitwise_xor, integers | {"int1"}),
    }  # fmt: skip
    for name, (ufunc, names) in table.items():
        for spelled, reflected in ((f"__{name}__", False), (f"__r{name}__", True)):
            setattr(Tensor, spelled, _arithmetic(getattr(Tensor, spelled), ufunc, names, reflected))
    Tensor.__add__ = _addition(Tensor.__add__, Tensor.__add__)
    comparisons = {
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "eq": np.equal,
        "ne": np.not_equal,
    }
    for name, ufunc in comparisons.items():
        setattr(Tensor, f"__{name}__", _comparison(getattr(Tensor, f"__{name}__"), ufunc))
    Tensor.__getitem__ = _getitem(Tensor.__getitem__)
    Tensor.to = _to(Tensor.to)
    load, store = _load(tl.core.load), _store(tl.core.store)
    for module in (tl, tl.core):
        module.load, module.store = load, store
