"""Matrix products, convolutions and attention: what vendor libraries serve."""

from __future__ import annotations

import math
from typing import Any

from tilecast.tools.forecast.trace.host_op import HostOp, Result
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Tensor,
    broadcast_shape,
)
from tilecast.tools.forecast.trace.views import transposed

MATMUL = frozenset(
    {
        "matmul",
        "mm",
        "bmm",
        "linear",
        "addmm",
        "baddbmm",
        "mv",
        "einsum",
        "_int_mm",
        "_addmm_activation",
        "dot",
        "_scaled_mm",
        "addmv",
        "addbmm",
        "tensordot",
    }
)


def multiplied(name: str, tensors: list[Tensor], args: list[Any]) -> Result:
    """Matrix products, by the last two axes."""
    if name == "einsum":
        return einsum(args, tensors)
    operands = tensors[-2:] if name in ("addmm", "baddbmm", "_addmm_activation", "addmv", "addbmm") else tensors[:2]
    if len(operands) < 2:
        return UNKNOWN, []
    a, b = operands
    if name == "linear":
        b = transposed(b) if len(b.shape) > 1 else b
    if not a.shape or not b.shape:
        return UNKNOWN, []
    k = a.shape[-1]
    m_shape = a.shape[:-1]
    n = b.shape[-1] if len(b.shape) > 1 else 1
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    shape = (
        (*batch, m_shape[-1], n)
        if len(a.shape) > 1 and len(b.shape) > 1
        else (*m_shape,)
        if len(b.shape) == 1
        else (*batch, n)
    )
    if len(a.shape) > 2 and len(b.shape) == 2:
        shape = (*m_shape, n)
    result = Tensor(shape, "int32" if name == "_int_mm" else a.dtype)
    return result, [library(name, [*tensors], result, 2.0 * result.numel * k)]


def library(name: str, inputs: list[Tensor], result: Tensor, flops: float) -> HostOp:
    """An operation that a vendor library serves."""
    moved = sum({t.storage: t.nbytes for t in inputs}.values()) + result.nbytes
    return HostOp(
        "library", name, moved, flops, tuple(t.storage for t in inputs), inputs[0].dtype if inputs else "float32"
    )


def einsum(args: list[Any], tensors: list[Tensor]) -> Result:
    """``torch.einsum``: sizes by letter; flops of one contraction."""
    if not args or not isinstance(args[0], str) or "->" not in args[0]:
        return UNKNOWN, []
    left, right = args[0].replace(" ", "").split("->")
    sizes: dict[str, int] = {}
    for letters, tensor in zip(left.split(","), tensors, strict=False):
        sizes.update(dict(zip(letters, tensor.shape, strict=False)))
    result = Tensor([sizes.get(c, 1) for c in right], tensors[0].dtype if tensors else "float32")
    return result, [library("einsum", tensors, result, 2.0 * math.prod(sizes.values()))]


def convolved(tensors: list[Tensor], args: list[Any], kwargs: dict[str, Any]) -> Result:
    """``conv1d`` to ``conv3d``."""
    if len(tensors) < 2 or len(tensors[1].shape) < 3:
        return UNKNOWN, []
    x, w = tensors[:2]
    spatial = len(w.shape) - 2
    pad, stride = (each_of(kwargs.get(key), spatial, default) for key, default in (("padding", 0), ("stride", 1)))
    out = [
        max((n + 2 * p - k) // max(s, 1) + 1, 1)
        for n, k, p, s in zip(x.shape[-spatial:], w.shape[2:], pad, stride, strict=False)
    ]
    result = Tensor((x.shape[0], w.shape[0], *out), x.dtype)
    return result, [library("conv", [x, w], result, 2.0 * result.numel * math.prod(w.shape[1:]))]


def each_of(value: Any, count: int, default: int) -> list[int]:
    items = list(value) if isinstance(value, tuple | list) else [value] * count
    return [n if isinstance(n, int) else default for n in items]


def attention(tensors: list[Tensor], kwargs: dict[str, Any]) -> Result:
    """``scaled_dot_product_attention``; a causal one does half the products."""
    if len(tensors) < 3 or len(tensors[0].shape) < 2:
        return UNKNOWN, []
    q, k, v = tensors[:3]
    result = Tensor((*q.shape[:-1], v.shape[-1]), q.dtype)
    flops = 2.0 * math.prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])
    return result, [library("attention", [q, k, v], result, flops / (2 if kwargs.get("is_causal") is True else 1))]
