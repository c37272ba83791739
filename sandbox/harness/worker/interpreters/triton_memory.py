"""Loads, stores, atomics, block pointers and tensor descriptors of Triton's interpreter, bounds-checked.

Each ``create_…`` replaces the method of that name of ``triton.runtime.interpreter.InterpreterBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton._C.libtriton import ir as _ir
from triton.runtime import interpreter as _interpreter

from . import numerics, triton_ops
from .memory import Memory
from .scheduling import Scheduler

Array = npt.NDArray[Any]
Handle = Any
TensorHandle = _interpreter.TensorHandle


@dataclass
class State:
    """What the running launch needs to know."""

    memory: Memory = field(default_factory=Memory)
    scheduler: Scheduler | None = None

    def polled(self, addresses: Array, value: Array) -> None:
        """Note a scalar read; after many equal ones another program runs."""
        if addresses.size == 1 and self.scheduler is not None:
            self.scheduler.polled(int(addresses[0]), value.tobytes())


state = State()


def _stored(pointer: Handle) -> tuple[Any, np.dtype[Any]]:
    """Element type of a pointer handle, and how it lies in memory."""
    element = pointer.get_element_ty()
    return element, np.dtype(np.uint64) if element.is_ptr() else numerics.storage(element.name)


def _mask_of(mask: Any, shape: tuple[int, ...]) -> Array | None:
    """Flat bool array, or None where every element is on."""
    if mask is None:
        return None
    on = np.asarray(getattr(mask, "data", mask))
    if on.dtype != np.bool_:
        on = on != 0
    if on.all():
        return None
    return np.broadcast_to(on, shape).reshape(-1)


def _load(pointer: Handle, mask: Any, other: Array | None) -> Handle:
    element, stored = _stored(pointer)
    shape = pointer.data.shape
    addresses = pointer.data.reshape(-1)
    on = _mask_of(mask, shape)
    if on is None:
        values = state.memory.read(addresses, stored)
        state.polled(addresses, values)
        return TensorHandle(values.reshape(shape), element)
    values = np.zeros(addresses.size, stored)
    if other is not None:
        values[:] = np.broadcast_to(other, shape).reshape(-1)
    values[on] = state.memory.read(addresses[on], stored)
    return TensorHandle(values.reshape(shape), element)


def _store(pointer: Handle, value: Handle, mask: Any) -> None:
    _, stored = _stored(pointer)
    shape = pointer.data.shape
    addresses = pointer.data.reshape(-1)
    values = np.broadcast_to(value.data, shape).reshape(-1)
    if values.dtype != stored:
        values = values.astype(stored)
    on = _mask_of(mask, shape)
    if on is not None:
        addresses, values = addresses[on], values[on]
    state.memory.write(addresses, values)


def create_load(self: Any, ptr: Handle, *rest: Any) -> Handle:
    return _load(ptr, None, None)


def create_store(self: Any, ptr: Handle, val: Handle, *rest: Any) -> None:
    _store(ptr, val, None)


def create_masked_load(self: Any, ptrs: Handle, mask: Handle, other: Handle | None, *rest: Any, **named: Any) -> Handle:
    return _load(ptrs, mask, None if other is None else other.data)


def create_masked_store(self: Any, ptrs: Handle, value: Handle, mask: Handle, *rest: Any, **named: Any) -> None:
    _store(ptrs, value, mask)


def create_int_to_ptr(self: Any, src: Handle, dst_type: Any) -> Handle:
    """An address out of data may name any tensor that lives."""
    state.memory.admit_live_tensors()
    return TensorHandle(src.data.astype(np.uint64), dst_type.scalar)


_RMW: dict[str, Callable[[Array, Array], Any]] = {
    "ADD": np.add, "FADD": np.add, "MIN": np.fmin, "UMIN": np.minimum, "MAX": np.fmax, "UMAX": np.maximum,
    "AND": np.bitwise_and, "OR": np.bitwise_or, "XOR": np.bitwise_xor, "XCHG": lambda old, new: new,
    "INC": lambda old, limit: np.where(old >= limit, 0, old + 1),
    "DEC": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1),
}  # fmt: skip


def _atomic_name(op: Any) -> str:
    return str(op).rsplit(".", 1)[-1]


def _rmw(pointer: Handle, value: Handle, mask: Any, name: str) -> Array:
    """One element after the other, in order; old values come back (zero where masked off)."""
    element, stored = _stored(pointer)
    shape = np.broadcast_shapes(pointer.data.shape, value.data.shape)
    addresses = np.broadcast_to(pointer.data, shape).reshape(-1)
    operands = np.broadcast_to(value.data, shape).reshape(-1)
    on = _mask_of(mask, shape)
    picked = np.arange(addresses.size) if on is None else np.flatnonzero(on)
    old = np.zeros(addresses.size, stored)
    if picked.size == 0:
        return old.reshape(shape)
    combine, packed = _RMW[name], element.name if element.name in numerics.PACKED else ""

    def apply(where: Array) -> None:
        before = state.memory.read(addresses[where], stored)
        old[where] = before
        operand = operands[where].astype(stored, copy=False)
        if packed:
            after = numerics.narrow(combine(numerics.widen(before, packed), numerics.widen(operand, packed)), packed)
        else:
            after = np.asarray(combine(before, operand)).astype(stored)
        state.memory.write(addresses[where], after)

    if np.unique(addresses[picked]).size == picked.size:
        apply(picked)
    else:
        for position in picked:
            apply(np.array([position]))
    return old.reshape(shape)


def create_atomic_rmw(self: Any, op: Any, ptr: Handle, val: Handle, mask: Handle, *_: Any) -> Handle:
    """Read, combine, write; also for half-width floats, which the stock interpreter adds as integers."""
    old = _rmw(ptr, val, mask, _atomic_name(op))
    state.polled(ptr.data.reshape(-1), old)
    return TensorHandle(old, val.dtype.scalar)


def create_atomic_cas(self: Any, ptr: Handle, cmp: Handle, val: Handle, sem: Any, scope: Any) -> Handle:
    """Compare and swap, one element after the other."""
    _, stored = _stored(ptr)
    shape = np.broadcast_shapes(ptr.data.shape, cmp.data.shape, val.data.shape)
    addresses, expected, desired = (np.broadcast_to(h.data, shape).reshape(-1) for h in (ptr, cmp, val))
    old = np.zeros(addresses.size, stored)
    for position in range(addresses.size):
        where = np.array([position])
        before = state.memory.read(addresses[where], stored)
        old[position] = before[0]
        if before[0] == expected[position]:
            state.memory.write(addresses[where], desired[where].astype(stored, copy=False))
    state.polled(addresses, old)
    return TensorHandle(old.reshape(shape), cmp.dtype.scalar)


def _padding(option: Any, element: Any, stored: np.dtype[Any]) -> Array | None:
    """The bits that fill elements outside the shape."""
    if option == _ir.PADDING_OPTION.PAD_NAN:
        nan = np.array([np.nan], dtype=np.float32)
        return numerics.narrow(nan, element.name) if stored.kind != "f" else nan.astype(stored)
    return None


def _block_addresses(handle: Any, offsets: list[Handle], checked: Any) -> tuple[Handle, Array]:
    """Addresses of a block inside a strided tensor, and which of them lie inside its shape."""
    _, stored = _stored(handle.base)
    rank = len(handle.block_shape)
    addresses = np.broadcast_to(handle.base.data.reshape((1,) * rank), handle.block_shape)
    inside = np.ones(handle.block_shape, dtype=np.bool_)
    for dim, extent in enumerate(handle.block_shape):
        span = [1] * rank
        span[dim] = extent
        start, stride, limit = (int(np.asarray(h.data).reshape(-1)[0]) for h in (
            offsets[dim], handle.strides[dim], handle.shape[dim]))  # fmt: skip
        index = (start + np.arange(extent, dtype=np.int64)).reshape(span)
        addresses = addresses + (index * (stride * stored.itemsize)).astype(np.uint64)
        if dim in checked:
            inside = inside & (index >= 0) & (index < limit)
    return TensorHandle(addresses, handle.base.dtype.scalar), inside


def create_tensor_pointer_load(self: Any, ptr: Any, boundary_check: Any, padding_option: Any, *rest: Any) -> Handle:
    pointers, inside = _block_addresses(ptr, ptr.offsets, boundary_check)
    return _load(pointers, inside, _padding(padding_option, *_stored(pointers)))


def create_tensor_pointer_store(self: Any, ptr: Any, value: Handle, boundary_check: Any, *rest: Any) -> None:
    pointers, inside = _block_addresses(ptr, ptr.offsets, boundary_check)
    _store(pointers, value, inside)


def _descriptor_block(desc: Any, indices: list[Handle]) -> tuple[Handle, Array]:
    return _block_addresses(desc, indices, range(len(desc.block_shape)))


def create_descriptor_load(self: Any, desc: Any, indices: list[Handle], *rest: Any) -> Handle:
    pointers, inside = _descriptor_block(desc, indices)
    loaded = _load(pointers, inside, _padding(desc.padding, *_stored(pointers)))
    if getattr(desc, "round_f32_to_tf32", False) and loaded.dtype == tl.float32:
        return TensorHandle(numerics.to_tf32(loaded.data), loaded.dtype)
    return loaded


def create_descriptor_store(self: Any, desc: Any, value: Handle, indices: list[Handle]) -> None:
    pointers, inside = _descriptor_block(desc, indices)
    _store(pointers, TensorHandle(value.data.reshape(inside.shape), value.dtype), inside)


def create_descriptor_reduce(self: Any, kind: Any, desc: Any, value: Handle, indices: list[Handle]) -> None:
    pointers, inside = _descriptor_block(desc, indices)
    _rmw(pointers, TensorHandle(value.data.reshape(inside.shape), value.dtype), inside, _atomic_name(kind))


def create_descriptor_gather(self: Any, desc: Any, x_offsets: Handle, y_offset: Handle, *rest: Any) -> Handle:
    """Rows by number, each row one block wide."""
    rows = [
        create_descriptor_load(self, desc, [TensorHandle(np.array([x], np.int32), tl.int32), y_offset]).data.reshape(-1)
        for x in x_offsets.data.reshape(-1)
    ]
    return TensorHandle(np.stack(rows), desc.base.dtype.element_ty)


def create_descriptor_scatter(self: Any, desc: Any, value: Handle, x_offsets: Handle, y_offset: Handle) -> None:
    for row, x in zip(value.data, x_offsets.data.reshape(-1), strict=True):
        index = [TensorHandle(np.array([x], np.int32), tl.int32), y_offset]
        create_descriptor_store(self, desc, TensorHandle(row, value.dtype), index)


def validate_descriptor(self: Any) -> None:
    """What the hardware demands of a descriptor: unit last stride, other strides multiples of 16 bytes."""
    size = max(1, self.base.dtype.element_ty.primitive_bitwidth // 8)
    strides = [int(np.asarray(stride.data).reshape(-1)[0]) for stride in self.strides]
    if strides[-1] != 1:
        raise ValueError(f"a tensor descriptor's last stride must be 1, not {strides[-1]}")
    for stride in strides[:-1]:
        if stride * size % 16:
            raise ValueError(f"a tensor descriptor's strides must be multiples of 16 bytes, not {stride} x {size}")


def table() -> triton_ops.Table:
    """Every replacement by method name."""
    functions = (
        create_load, create_store, create_masked_load, create_masked_store, create_int_to_ptr, create_atomic_rmw,
        create_atomic_cas, create_tensor_pointer_load, create_tensor_pointer_store, create_descriptor_load,
        create_descriptor_store, create_descriptor_reduce, create_descriptor_gather, create_descriptor_scatter,
    )  # fmt: skip
    return {function.__name__: function for function in functions}
