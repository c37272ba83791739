"""How many terms an operator adds up: the length that rounding errors grow with."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

_PRODUCTS = ("aten.mm", "aten.bmm", "aten.matmul", "aten._scaled_mm", "aten.dot", "aten.mv", "aten.linear")
_BIASED_PRODUCTS = ("aten.addmm", "aten.baddbmm", "aten.addmv", "aten.addbmm")
_SEQUENCES = ("aten._softmax", "aten._log_softmax", "aten.cumsum", "aten.cumprod", "aten.logcumsumexp")
_REDUCTIONS = (
    "aten.sum",
    "aten.mean",
    "aten.var",
    "aten.std",
    "aten.linalg_vector_norm",
    "aten.norm",
    "aten.prod",
    "aten.logsumexp",
    "aten.nansum",
    "aten.nll_loss",
    "aten.mse_loss",
    "aten.index_add",
    "aten.scatter_add",
    "aten._embedding_bag",
)


def is_product(name: str) -> bool:
    """True for matrix products, convolutions and fused attention."""
    return name.startswith(_PRODUCTS + _BIASED_PRODUCTS) or "conv" in name or "scaled_dot_product" in name


def reduction_length(name: str, args: tuple[Any, ...]) -> int:
    """Terms per output of the operator ``name`` (as ``str(func)``) on ``args``; 1 for those that add nothing up."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors:
        return 1
    first = tensors[0]
    if name.startswith(_PRODUCTS):
        return _last(first)
    if name.startswith(_BIASED_PRODUCTS):
        return _last(tensors[1]) if len(tensors) > 1 else 1
    if name.startswith("aten.convolution") or "conv" in name:
        return max(1, tensors[1].numel() // max(1, tensors[1].shape[0])) if len(tensors) > 1 else 1
    if "scaled_dot_product" in name:
        return max(_last(first), tensors[1].shape[-2]) if len(tensors) > 1 and tensors[1].ndim > 1 else _last(first)
    if "layer_norm" in name or "rms_norm" in name:
        shape = next((a for a in args if isinstance(a, list | tuple)), ())
        return max(1, math.prod(int(s) for s in shape))
    if "group_norm" in name or "batch_norm" in name:
        return max(1, first.numel() // max(1, first.shape[1] if first.ndim > 1 else 1))
    if name.startswith(_SEQUENCES):
        return _axis(first, args[1] if len(args) > 1 and isinstance(args[1], int) else -1)
    if name.startswith(_REDUCTIONS):
        return _reduced(first, args)
    return 1


def _last(tensor: Tensor) -> int:
    return max(1, tensor.shape[-1]) if tensor.ndim else 1


def _axis(tensor: Tensor, axis: int) -> int:
    return max(1, tensor.shape[axis]) if tensor.ndim else 1


def _reduced(tensor: Tensor, args: tuple[Any, ...]) -> int:
    """Product of the named axes; the whole tensor where none is named."""
    axes = next((a for a in args[1:] if isinstance(a, list | tuple) and all(isinstance(x, int) for x in a)), None)
    if axes:
        return max(1, math.prod(tensor.shape[a] for a in axes))
    return max(1, tensor.numel())
