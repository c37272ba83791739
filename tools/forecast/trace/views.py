"""Torch operations that only look at memory in another way, and the copies they sometimes need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilecast.tools.forecast.trace.host_op import HostOp, Result, size_args
from tilecast.tools.forecast.trace.values import (
    ITEM_BYTES,
    UNKNOWN,
    Ref,
    Tensor,
    contiguous_strides,
    dtype_of,
)


def transposed(value: Tensor, first: int = -2, second: int = -1) -> Tensor:
    """Two axes swapped, no copy."""
    if len(value.shape) < 2:
        return value
    shape, strides, n = list(value.shape), list(value.strides), len(value.shape)
    a, b = first % n, second % n
    shape[a], shape[b] = shape[b], shape[a]
    strides[a], strides[b] = strides[b], strides[a]
    return value.view(shape, strides)


def copied(value: Tensor, name: str, dtype: str | None = None) -> Result:
    """A contiguous copy, perhaps in another dtype."""
    result = Tensor(value.shape, dtype or value.dtype)
    return result, [
        HostOp(
            "elementwise", name, value.nbytes + result.nbytes, 0, (value.storage,), result.dtype, not value.contiguous
        )
    ]


def reshape(value: Tensor, shape: Sequence[int], name: str) -> Result:
    """A view where the memory allows, else a copy."""
    sizes = list(shape)
    if -1 in sizes:
        known = math.prod(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = value.numel // max(known, 1)
    if math.prod(sizes) != value.numel:
        return UNKNOWN, []
    if math.prod(s for s, n in zip(value.strides, value.shape, strict=True) if n > 1) == 0 and value.numel > 1:
        return copied(value.view(value.shape, contiguous_strides(value.shape)), name)[0].view(sizes), copied(
            value, name
        )[1]
    if value.contiguous:
        return value.view(sizes), []
    squeezed = [(n, s) for n, s in zip(value.shape, value.strides, strict=True) if n > 1]
    if [n for n in sizes if n > 1] == [n for n, _ in squeezed]:
        strides = iter(s for _, s in squeezed)
        return value.view(sizes, [next(strides) if n > 1 else 1 for n in sizes]), []
    result, ops = copied(value, name)
    return result.view(sizes), ops


def take_index(value: Tensor, key: Any) -> tuple[Any, HostOp | None]:
    """Slices and new axes are views; tensors as indices gather."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [p for p in parts if not isinstance(p, Tensor)]:
        at = next(i for i, p in enumerate(parts) if p is Ellipsis)
        used = sum(p is not None for p in parts) - 1
        parts[at : at + 1] = [slice(None)] * max(len(value.shape) - used, 0)
    shape: list[int] = []
    strides: list[int] = []
    gathered: list[Tensor] = []
    axis = 0
    for part in parts:
        if part is None:
            shape.append(1)
            strides.append(0)
            continue
        if axis >= len(value.shape):
            return UNKNOWN, None
        n, s = value.shape[axis], value.strides[axis]
        axis += 1
        if isinstance(part, slice):
            try:
                span = range(n)[part]
            except TypeError:
                span = range(n)
            shape.append(len(span))
            strides.append(s * (span.step if len(span) else 1))
        elif isinstance(part, Tensor):
            if not gathered:
                shape.extend(part.shape)
                strides.extend([1] * len(part.shape))
            gathered.append(part)
    shape.extend(value.shape[axis:])
    strides.extend(value.strides[axis:])
    if not gathered:
        return value.view(shape, strides), None
    result = Tensor(shape, value.dtype)
    moved = 2 * result.nbytes + sum(t.nbytes for t in gathered)
    return result, HostOp("gather", "index", moved, 0, (value.storage,), value.dtype)


def reinterpreted(value: Tensor, dtype: str) -> Tensor:
    """``x.view(dtype)``: the same bytes, the last axis longer or shorter."""
    old, new = ITEM_BYTES[value.dtype], ITEM_BYTES[dtype]
    if not value.shape or value.strides[-1] != 1:
        return Tensor(value.shape, dtype, value.strides, value.storage)
    shape = (*value.shape[:-1], value.shape[-1] * old // new)
    strides = (*(s * old // new for s in value.strides[:-1]), 1)
    return Tensor(shape, dtype, strides, value.storage)


def view_op(name: str, value: Tensor, args: list[Any], kwargs: dict[str, Any]) -> Result | None:
    """Operations that make no copy (or only a needed one); None if ``name`` is none of them."""
    ints = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    if name in ("view", "reshape", "view_as", "reshape_as"):
        if args and isinstance(args[0], Tensor):
            return reshape(value, args[0].shape, name)
        dtype = dtype_of(args[0].path) if args and isinstance(args[0], Ref) else None
        if dtype is not None:
            return reinterpreted(value, dtype), []
        shape = size_args(args, kwargs)
        return (UNKNOWN, []) if shape is None else reshape(value, shape, name)
    if name in ("t", "transpose", "swapaxes", "swapdims", "adjoint"):
        return (transposed(value, *ints[:2]) if len(ints) > 1 else transposed(value)), []
    if name in ("permute", "movedim"):
        order = size_args(args, kwargs)
        if order is None or sorted(a % len(value.shape) for a in order) != list(range(len(value.shape))):
            return UNKNOWN, []
        return value.view([value.shape[a] for a in order], [value.strides[a] for a in order]), []
    if name == "unsqueeze":
        at = (ints or [kwargs.get("dim", 0)])[0] % (len(value.shape) + 1)
        return value.view((*value.shape[:at], 1, *value.shape[at:]), (*value.strides[:at], 0, *value.strides[at:])), []
    if name == "squeeze":
        keep = [i for i, n in enumerate(value.shape) if n != 1 or (ints and i != ints[0] % len(value.shape))]
        return value.view([value.shape[i] for i in keep], [value.strides[i] for i in keep]), []
    if name in ("expand", "expand_as", "broadcast_to"):
        shape = args[0].shape if args and isinstance(args[0], Tensor) else size_args(args, kwargs)
        if shape is None:
            return UNKNOWN, []
        pad = len(shape) - len(value.shape)
        old = (1,) * pad + value.shape
        sizes = [o if n == -1 else n for n, o in zip(shape, old, strict=True)] if pad >= 0 else list(shape)
        strides = [0 if o == 1 else s for o, s in zip(old, (0,) * pad + value.strides, strict=True)]
        return value.view(sizes, strides), []
    return _cut(name, value, ints, args, kwargs)


def _cut(name: str, value: Tensor, ints: list[int], args: list[Any], kwargs: dict[str, Any]) -> Result | None:
    """Flattening, and pieces of a tensor."""
    dim = kwargs.get("dim", ints[1] if len(ints) > 1 else 0)
    dim = dim % max(len(value.shape), 1) if isinstance(dim, int) else 0
    if name == "as_strided" and args and isinstance(args[0], tuple | list):
        shape = size_args([args[0]])
        strides = size_args([args[1]]) if len(args) > 1 else None
        return (
            (UNKNOWN, [])
            if shape is None or (strides and len(strides) != len(shape))
            else (value.view(shape, strides), [])
        )
    if name == "flatten":
        start, end = ([*ints, 0, -1])[0] if ints else 0, ints[1] if len(ints) > 1 else -1
        start, end = start % max(len(value.shape), 1), end % max(len(value.shape), 1)
        return reshape(
            value, (*value.shape[:start], math.prod(value.shape[start : end + 1]), *value.shape[end + 1 :]), name
        )
    if name == "unflatten" and len(args) > 1 and isinstance(args[1], tuple | list) and isinstance(args[0], int):
        at = args[0] % len(value.shape)
        sizes = [n if isinstance(n, int) else 1 for n in args[1]]
        return reshape(value, (*value.shape[:at], *_fill(sizes, value.shape[at]), *value.shape[at + 1 :]), name)
    if name in ("chunk", "split", "unbind", "tensor_split"):
        n = value.shape[dim]
        count = (
            ints[0]
            if name in ("chunk", "tensor_split") and ints
            else n
            if name == "unbind"
            else -(-n // max(ints[0], 1))
            if ints
            else 1
        )
        size = list(value.shape)
        size[dim] = max(n // max(count, 1), 1)
        part = value.view(size, value.strides)
        return tuple(part for _ in range(min(count, 64))), []
    if name in ("narrow", "select"):
        size = list(value.shape)
        if name == "narrow" and len(ints) > 2:
            size[ints[0] % len(size)] = ints[2]
            return value.view(size, value.strides), []
        if ints:
            size.pop(ints[0] % len(size))
        return value.view(size), []
    return None


def _fill(sizes: list[int], total: int) -> list[int]:
    if -1 in sizes:
        sizes[sizes.index(-1)] = total // max(math.prod(n for n in sizes if n != -1), 1)
    return sizes
