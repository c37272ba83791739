"""What torch operations return and cost, by shape: bytes moved, floating-point operations, and which library serves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilecast.tools.forecast.trace.host_op import HostOp, Result
from tilecast.tools.forecast.trace.making import LIKE, MAKERS, like, made
from tilecast.tools.forecast.trace.products import MATMUL, attention, convolved, multiplied
from tilecast.tools.forecast.trace.values import (
    ITEM_BYTES,
    UNKNOWN,
    Ref,
    Tensor,
    broadcast_shape,
    dtype_of,
    promote,
)
from tilecast.tools.forecast.trace.views import copied, view_op

REDUCE = frozenset(
    {
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "var",
        "std",
        "norm",
        "logsumexp",
        "argmax",
        "argmin",
        "all",
        "any",
        "prod",
        "var_mean",
        "std_mean",
        "vector_norm",
        "count_nonzero",
        "nansum",
        "median",
    }
)
SCAN = frozenset(
    {
        "cumsum",
        "cumprod",
        "sort",
        "argsort",
        "topk",
        "cummax",
        "unique",
        "nonzero",
        "searchsorted",
        "bincount",
        "histc",
        "msort",
        "logcumsumexp",
    }
)
NATIVE = frozenset(
    {
        "softmax",
        "log_softmax",
        "layer_norm",
        "group_norm",
        "rms_norm",
        "batch_norm",
        "instance_norm",
        "cross_entropy",
        "nll_loss",
        "normalize",
    }
)
CASTS = {
    "float": "float32",
    "half": "float16",
    "bfloat16": "bfloat16",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "bool": "bool",
}
SAME = frozenset(
    {
        "detach",
        "cuda",
        "cpu",
        "requires_grad_",
        "clone_",
        "eval",
        "train",
        "data_ptr_",
        "as_subclass",
        "refine_names",
        "set_",
        "is_contiguous_",
    }
)
FREE = frozenset(
    {
        "synchronize",
        "manual_seed",
        "no_grad",
        "inference_mode",
        "current_stream",
        "set_allocator",
        "record_function",
        "device",
        "_dynamo",
        "mark_dynamic",
    }
)


def reduced(name: str, value: Tensor, args: list[Any], kwargs: dict[str, Any]) -> Result:
    """A reduction over some axes."""
    dim = kwargs.get("dim", kwargs.get("axis", args[0] if args else None))
    keep = kwargs.get("keepdim", kwargs.get("keepdims", False)) is True or (len(args) > 1 and args[1] is True)
    dims = [d for d in (dim if isinstance(dim, tuple | list) else [dim]) if isinstance(d, int)]
    n = len(value.shape)
    axes = {d % n for d in dims} if dims and n else set(range(n))
    shape = [1 if i in axes else size for i, size in enumerate(value.shape) if keep or i not in axes]
    dtype = dtype_of(kwargs["dtype"].path) if isinstance(kwargs.get("dtype"), Ref) else None
    result = Tensor(shape, "int64" if name.startswith("arg") or name == "count_nonzero" else dtype or value.dtype)
    op = HostOp(
        "reduce", name, value.nbytes + result.nbytes, value.numel, (value.storage,), value.dtype, not value.contiguous
    )
    pair = name in ("var_mean", "std_mean") or (name in ("max", "min", "median") and dims)
    return (result, Tensor(shape, value.dtype)) if pair else result, [op]


def elementwise(name: str, tensors: list[Tensor], kwargs: dict[str, Any]) -> Result:
    """Anything else: each element of the broadcast shape once."""
    shape = broadcast_shape(*(t.shape for t in tensors))
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = dtype if not tensor.shape and tensors[0].shape else promote(dtype, tensor.dtype)
    if name in ("compare", "isnan", "isinf", "logical_not", "eq", "ne", "lt", "gt"):
        dtype = "bool"
    result = tensors[0] if name.endswith("_") else Tensor(shape, dtype)
    moved = sum({t.storage: t.nbytes for t in tensors}.values()) + math.prod(shape) * ITEM_BYTES[dtype]
    strided = any(not t.contiguous for t in tensors if t.numel > 1)
    return result, [
        HostOp("elementwise", name, moved, math.prod(shape), tuple(t.storage for t in tensors), dtype, strided)
    ]


GATHERS = frozenset(
    {"embedding", "embedding_bag", "index_select", "gather", "take", "take_along_dim", "scatter_add", "scatter_add_",
     "index_add", "index_add_", "scatter", "scatter_reduce", "index_put_", "index_copy_"}
)  # fmt: skip


def apply(name: str, args: list[Any], kwargs: dict[str, Any]) -> Result:
    """Result and cost of a torch function or method (then the tensor is the first argument)."""
    if name in MAKERS:
        return made(name, args, kwargs)
    flat = [x for a in [*args, *kwargs.values()] for x in (a if isinstance(a, list | tuple) else [a])]
    tensors = [a for a in flat if isinstance(a, Tensor)]
    if not tensors or name in FREE:
        return UNKNOWN, []
    value = tensors[0]
    if name in LIKE:
        return like(name, args, kwargs)
    facts: dict[str, Callable[[], Any]] = {
        "numel": lambda: value.numel, "nelement": lambda: value.numel, "dim": lambda: len(value.shape),
        "ndimension": lambda: len(value.shape),
        "element_size": lambda: ITEM_BYTES[value.dtype], "is_contiguous": lambda: value.contiguous,
        "data_ptr": lambda: value.storage * 4096,
        "size": lambda: value.shape[args[1]] if len(args) > 1 and isinstance(args[1], int) else value.shape,
        "stride": lambda: value.strides[args[1]] if len(args) > 1 and isinstance(args[1], int) else value.strides,
        "__len__": lambda: value.shape[0], "len": lambda: value.shape[0], "get_device": lambda: 0,
        "is_floating_point": lambda: value.dtype.startswith(("f", "b")),
    }  # fmt: skip
    if name in facts:
        try:
            return facts[name](), []
        except IndexError:
            return UNKNOWN, []
    if name in SAME or name == "Parameter":
        return value, []
    return _compute(name, value, tensors, args, kwargs)


def _compute(name: str, value: Tensor, tensors: list[Tensor], args: list[Any], kwargs: dict[str, Any]) -> Result:
    rest = args[1:] if args and args[0] is value else args
    if name == "contiguous" or name == "clone":
        channels_last = isinstance(kwargs.get("memory_format"), Ref)
        return (value, []) if name == "contiguous" and value.contiguous and not channels_last else copied(value, name)
    if name in CASTS or name in ("to", "type", "type_as"):
        named = next(
            (dtype_of(a.path) for a in [*rest, *kwargs.values()] if isinstance(a, Ref) and dtype_of(a.path)), None
        )
        dtype = CASTS.get(name) or (tensors[1].dtype if name == "type_as" and len(tensors) > 1 else named)
        return (value, []) if dtype is None or dtype == value.dtype else copied(value, "cast", dtype)
    viewed = view_op(name, value, rest, kwargs)
    if viewed is not None:
        return viewed
    if name in MATMUL:
        return multiplied(name, tensors, args)
    if name.startswith("conv"):
        return convolved(tensors, args, kwargs)
    if name == "scaled_dot_product_attention":
        return attention(tensors, kwargs)
    if name in GATHERS:
        return gathered(name, tensors, rest)
    if name in ("maximum", "minimum") or (name in ("max", "min") and len(tensors) > 1):
        return elementwise(name, tensors, kwargs)
    if name in REDUCE:
        return reduced(name, value, rest, kwargs)
    if name in ("cat", "concat", "stack", "hstack", "vstack"):
        return joined(name, tensors, kwargs)
    if name == "nonzero" or name in SCAN or name in NATIVE:
        return whole_pass(name, value, tensors)
    if name == "pad" and len(args) > 1 and isinstance(args[1], tuple | list):
        return padded(value, args[1])
    return elementwise(name, tensors, kwargs)


def whole_pass(name: str, value: Tensor, tensors: list[Tensor]) -> Result:
    """Scans, sorts and normalisations: one native kernel over the whole tensor."""
    if name == "nonzero":
        found = Tensor((value.numel, max(len(value.shape), 1)), "int64", high=max(value.shape, default=1))
        return found, [HostOp("scan", name, value.nbytes + found.nbytes, value.numel, (value.storage,), value.dtype)]
    if name in SCAN:
        result = Tensor(value.shape, value.dtype)
        op = HostOp(
            "scan", name, value.nbytes + result.nbytes, value.numel, (value.storage,), value.dtype, not value.contiguous
        )
        return ((result, Tensor(value.shape, "int64")) if name in ("sort", "topk", "cummax") else result), [op]
    loss = "loss" in name or name == "cross_entropy"
    result = Tensor((), "float32") if loss else Tensor(value.shape, value.dtype)
    moved = sum({t.storage: t.nbytes for t in tensors}.values()) + result.nbytes
    strided = not value.contiguous
    return result, [HostOp("native", name, moved, 5 * value.numel, (value.storage,), value.dtype, strided)]


def padded(value: Tensor, widths: Sequence[Any]) -> Result:
    """``F.pad``: pairs from the last axis on."""
    shape = list(value.shape)
    for i in range(len(widths) // 2):
        low, high = widths[2 * i], widths[2 * i + 1]
        if isinstance(low, int) and isinstance(high, int) and i < len(shape):
            shape[-1 - i] += low + high
    result = Tensor(shape, value.dtype)
    return result, [HostOp("elementwise", "pad", value.nbytes + result.nbytes, 0, (value.storage,), value.dtype)]


def gathered(name: str, tensors: list[Tensor], args: list[Any]) -> Result:
    """Reads or writes at indices: the rows touched, not the table."""
    indices = next((t for t in tensors if t.dtype.startswith("int")), None)
    table = next((t for t in tensors if not t.dtype.startswith("int")), tensors[0])
    if indices is None:
        return elementwise(name, tensors, {})
    width = table.shape[-1] if len(table.shape) > 1 else 1
    rows = indices.numel
    if name in ("gather", "take_along_dim", "scatter_add", "scatter_add_", "scatter", "take", "scatter_reduce"):
        width = 1
    moved = rows * width * ITEM_BYTES[table.dtype] * 2 + indices.nbytes
    if name == "embedding_bag":
        result = Tensor((indices.shape[0], width), table.dtype)
        moved = rows * width * ITEM_BYTES[table.dtype] + indices.nbytes + result.nbytes
    elif "scatter" in name or ("index_" in name and "select" not in name):
        result = table
    else:
        result = Tensor((*indices.shape, width) if name == "embedding" else indices.shape, table.dtype)
    return result, [HostOp("gather", name, moved, 0, (table.storage,), table.dtype)]


def joined(name: str, tensors: list[Tensor], kwargs: dict[str, Any]) -> Result:
    """``cat`` and ``stack``."""
    first = tensors[0]
    shape = list(first.shape)
    dim = kwargs.get("dim", 0)
    if name == "stack":
        shape.insert(dim if isinstance(dim, int) and dim >= 0 else len(shape), len(tensors))
    elif shape and isinstance(dim, int):
        at = dim % len(shape)
        shape[at] = sum(t.shape[at] if len(t.shape) > at else 1 for t in tensors)
    result = Tensor(shape, first.dtype)
    return result, [HostOp("elementwise", name, 2 * result.nbytes, 0, tuple(t.storage for t in tensors), first.dtype)]
