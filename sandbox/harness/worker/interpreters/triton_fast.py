"""Shortcuts through Triton's frontend, which builds and compares shape objects at every operation.

Nothing changes in what is computed: each shortcut answers the common case from a table and leaves the rest to Triton.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as _interpreter

from . import numerics

_block_shapes: dict[tuple[str, tuple[int, ...]], tuple[Any, int, str]] = {}
_tensor_shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}
_plain: dict[str, Any] = {}


def _block_type_init(self: Any, element_ty: Any, shape: Any) -> None:
    key = (element_ty.name, tuple(getattr(s, "value", s) for s in shape))
    known = _block_shapes.get(key)
    if known is None:
        _plain["block_type"](self, element_ty, shape)
        _block_shapes[key] = (self.shape, self.numel, self.name)
        return
    self.element_ty = element_ty
    self.shape, self.numel, self.name = known


def _tensor_init(self: Any, handle: Any, dtype: Any) -> None:
    key = tuple(dtype.shape) if dtype.is_block() else ()
    known = _tensor_shapes.get(key)
    if known is None:
        _plain["tensor"](self, handle, dtype)
        _tensor_shapes[key] = (self.shape, self.numel)
        return
    self.handle, self.type, self.dtype = handle, dtype, dtype.scalar
    self.shape, self.numel = known


def _splat(scalar: Any, like: Any) -> Any:
    shape = tuple(like.shape)
    data = np.broadcast_to(scalar.handle.data.reshape((1,) * len(shape)), shape)
    kind = scalar.handle.dtype.scalar
    return tl.core.tensor(_interpreter.TensorHandle(data, kind), tl.block_type(scalar.dtype, list(shape)))


def _broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    left, right = lhs.type, rhs.type
    left_block, right_block = left.is_block(), right.is_block()
    if not (left_block or right_block):
        return lhs, rhs
    if left_block and right_block:
        if left.shape is right.shape:
            return lhs, rhs
        return _plain["broadcast"](self, lhs, rhs)
    return (lhs, _splat(rhs, left)) if left_block else (_splat(lhs, right), rhs)


def _cast(self: Any, input: Any, dst_ty: Any, fp_downcast_rounding: Any = None) -> Any:
    if fp_downcast_rounding is None and getattr(dst_ty, "scalar", None) is input.dtype:
        return input
    return _plain["cast"](self, input, dst_ty, fp_downcast_rounding)


def _np_dtype(dtype: Any) -> Any:
    scalar = dtype.scalar
    return np.dtype(np.uint64) if scalar.is_ptr() else numerics.storage(scalar.name)


def _unchecked(self: Any) -> None:
    """Handles are made with storage of the right size by construction."""


def install() -> None:
    """Put the shortcuts in place, once."""
    _plain["block_type"] = tl.block_type.__init__
    _plain["tensor"] = tl.core.tensor.__init__
    _plain["broadcast"] = TritonSemantic.broadcast_impl_value
    _plain["cast"] = TritonSemantic.cast
    tl.block_type.__init__ = _block_type_init
    tl.core.tensor.__init__ = _tensor_init
    TritonSemantic.broadcast_impl_value = _broadcast
    TritonSemantic.cast = _cast
    _interpreter._get_np_dtype = _np_dtype
    _interpreter.TensorHandle.__post_init__ = _unchecked
