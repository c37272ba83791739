"""What torch operations return and cost, by shape: bytes moved, floating-point operations, and which library serves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilecast.tools.forecast.trace.values import (
    ITEM_BYTES,
    UNKNOWN,
    Instance,
    Ref,
    Tensor,
    Unknown,
    broadcast_shape,
    contiguous_strides,
    dtype_of,
    promote,
)


@dataclass
class HostOp:
    """One torch operation: ``kind`` is ``elementwise``, ``reduce``, ``native``, ``library``, ``gather``, ``scan``, ``fill`` or ``fused``."""

    kind: str
    name: str
    bytes: float
    flops: float = 0.0
    reads: tuple[int, ...] = ()
    dtype: str = "float32"
    strided: bool = False
    """Whether an operand is not contiguous."""


Result = tuple[Any, list[HostOp]]
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
MAKERS = frozenset(
    {
        "empty",
        "zeros",
        "ones",
        "full",
        "arange",
        "tensor",
        "rand",
        "randn",
        "randint",
        "randperm",
        "eye",
        "empty_strided",
        "linspace",
        "as_tensor",
    }
)
LIKE = frozenset(
    {
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
        "rand_like",
        "randn_like",
        "new_empty",
        "new_zeros",
        "new_ones",
        "new_full",
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


def size_args(args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> tuple[int, ...] | None:
    """Sizes given as separate numbers or as one sequence."""
    given = (kwargs or {}).get("size", args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else tuple(args))
    items = given if isinstance(given, tuple | list) else (given,)
    numbers = [n for n in items if isinstance(n, int) and not isinstance(n, bool)]
    return tuple(numbers) if len(numbers) == len(items) else None


def made(name: str, args: list[Any], kwargs: dict[str, Any]) -> Result:
    """A new tensor."""
    dtype = dtype_of(kwargs["dtype"].path) if isinstance(kwargs.get("dtype"), Ref) else None
    high = None
    if name == "randint":
        ints = [a for a in args if isinstance(a, int)]
        high = ints[0] if len(ints) == 1 else ints[1] if ints else kwargs.get("high")
        shape = size_args([a for a in args if isinstance(a, tuple | list)][:1], kwargs)
        dtype = dtype or "int64"
    elif name in ("arange", "randperm", "linspace"):
        ints = [a for a in args if isinstance(a, int)]
        count = ints[0] if len(ints) == 1 else ints[1] - ints[0] if len(ints) > 1 else kwargs.get("end", 1)
        shape, dtype = (max(int(count), 1),) if isinstance(count, int) else None, dtype or "int64"
    elif name in ("tensor", "as_tensor"):
        shape = (len(args[0]),) if args and isinstance(args[0], tuple | list) else ()
    elif name in ("full", "empty_strided"):
        shape = size_args(args[:1], kwargs)
    elif name == "eye":
        shape = (args[0], args[0]) if args and isinstance(args[0], int) else None
    else:
        shape = size_args([a for a in args if isinstance(a, int | tuple | list)], kwargs)
    if shape is None:
        return UNKNOWN, []
    tensor = Tensor(shape, dtype or "float32", high=high if isinstance(high, int) else None)
    return tensor, [] if name.startswith("empty") else [HostOp("fill", name, tensor.nbytes)]


def like(name: str, args: list[Any], kwargs: dict[str, Any]) -> Result:
    """A new tensor shaped or typed after another."""
    source = args[0]
    shape = source.shape if name.endswith("_like") else size_args(args[1:], kwargs)
    if shape is None:
        return UNKNOWN, []
    dtype = dtype_of(kwargs["dtype"].path) if isinstance(kwargs.get("dtype"), Ref) else None
    tensor = Tensor(shape, dtype or source.dtype)
    return tensor, [] if "empty" in name else [HostOp("fill", name, tensor.nbytes)]


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


def index(value: Tensor, key: Any) -> tuple[Any, HostOp | None]:
    """Slices and new axes are views; tensors as indices gather."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [p for p in parts if not isinstance(p, Tensor)]:
        at = next(i for i, p in enumerate(parts) if p is Ellipsis)
        used = sum(p is not None for p in parts) - 1
        parts[at : at + 1] = [slice(None)] * max(len(value.shape) - used, 0)
    shape, strides, axis, gathered = [], [], 0, []
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
        start, end = (ints + [0, -1])[0] if ints else 0, ints[1] if len(ints) > 1 else -1
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
    pad, stride = (_each(kwargs.get(key), spatial, default) for key, default in (("padding", 0), ("stride", 1)))
    out = [
        max((n + 2 * p - k) // max(s, 1) + 1, 1)
        for n, k, p, s in zip(x.shape[-spatial:], w.shape[2:], pad, stride, strict=False)
    ]
    result = Tensor((x.shape[0], w.shape[0], *out), x.dtype)
    return result, [library("conv", [x, w], result, 2.0 * result.numel * math.prod(w.shape[1:]))]


def _each(value: Any, count: int, default: int) -> list[int]:
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
        "numel": lambda: value.numel, "nelement": lambda: value.numel, "dim": lambda: len(value.shape), "ndimension": lambda: len(value.shape),
        "element_size": lambda: ITEM_BYTES[value.dtype], "is_contiguous": lambda: value.contiguous, "data_ptr": lambda: value.storage * 4096,
        "size": lambda: value.shape[args[1]] if len(args) > 1 and isinstance(args[1], int) else value.shape,
        "stride": lambda: value.strides[args[1]] if len(args) > 1 and isinstance(args[1], int) else value.strides,
        "__len__": lambda: value.shape[0], "len": lambda: value.shape[0], "get_device": lambda: 0, "is_floating_point": lambda: value.dtype.startswith(("f", "b")),
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
    if name in (
        "embedding",
        "embedding_bag",
        "index_select",
        "gather",
        "take",
        "take_along_dim",
        "scatter_add",
        "scatter_add_",
        "index_add",
        "index_add_",
        "scatter",
        "scatter_reduce",
        "index_put_",
        "index_copy_",
    ):
        return gathered(name, tensors, rest)
    if name in ("maximum", "minimum") or (name in ("max", "min") and len(tensors) > 1):
        return elementwise(name, tensors, kwargs)
    if name in REDUCE:
        return reduced(name, value, rest, kwargs)
    if name in ("cat", "concat", "stack", "hstack", "vstack"):
        return joined(name, tensors, kwargs)
    if name == "nonzero":
        found = Tensor((value.numel, max(len(value.shape), 1)), "int64", high=max(value.shape, default=1))
        return found, [HostOp("scan", name, value.nbytes + found.nbytes, value.numel, (value.storage,), value.dtype)]
    if name in SCAN:
        result = Tensor(value.shape, value.dtype)
        op = HostOp(
            "scan", name, value.nbytes + result.nbytes, value.numel, (value.storage,), value.dtype, not value.contiguous
        )
        return ((result, Tensor(value.shape, "int64")) if name in ("sort", "topk", "cummax") else result), [op]
    if name in NATIVE:
        result = (
            Tensor((), "float32") if "loss" in name or name == "cross_entropy" else Tensor(value.shape, value.dtype)
        )
        op = HostOp(
            "native",
            name,
            sum({t.storage: t.nbytes for t in tensors}.values()) + result.nbytes,
            5 * value.numel,
            (value.storage,),
            value.dtype,
            not value.contiguous,
        )
        return result, [op]
    if name == "pad" and len(args) > 1 and isinstance(args[1], tuple | list):
        return padded(value, args[1])
    return elementwise(name, tensors, kwargs)


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


def layer(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A ``torch.nn`` layer with the parameters it owns; a Parameter is its tensor."""
    if name == "Parameter":
        return args[0] if args else kwargs.get("data", UNKNOWN)
    dtype = (dtype_of(kwargs["dtype"].path) if isinstance(kwargs.get("dtype"), Ref) else None) or "float32"
    ints = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    made_with: dict[str, Any] = {"eps": kwargs.get("eps", 1e-5)}
    if (name == "LayerNorm" and args) or (name in ("RMSNorm",) and args):
        shape = tuple(args[0]) if isinstance(args[0], tuple | list) else (args[0],)
        if all(isinstance(n, int) for n in shape):
            made_with |= {"weight": Tensor(shape, dtype), "bias": Tensor(shape, dtype), "normalized_shape": shape}
    elif name == "Linear" and len(ints) > 1:
        made_with |= {"weight": Tensor((ints[1], ints[0]), dtype), "in_features": ints[0], "out_features": ints[1]}
        made_with["bias"] = Tensor((ints[1],), dtype) if kwargs.get("bias", True) is not False else None
    elif name.startswith("Conv") and len(ints) > 1:
        k = kwargs.get("kernel_size", args[2] if len(args) > 2 else 1)
        made_with |= {
            "weight": Tensor((ints[1], ints[0], *_each(k, int(name[4]) if name[4:5].isdigit() else 2, 1)), dtype)
        }
        made_with |= {
            key: kwargs.get(key, args[at] if len(args) > at else default)
            for key, at, default in (("stride", 3, 1), ("padding", 4, 0))
        }
        made_with["bias"] = Tensor((ints[1],), dtype) if kwargs.get("bias", True) is not False else None
    elif name in ("GroupNorm", "BatchNorm1d", "BatchNorm2d", "InstanceNorm2d") and ints:
        made_with |= {"weight": Tensor((ints[-1],), dtype), "bias": Tensor((ints[-1],), dtype), "num_groups": ints[0]}
    elif name in ("Embedding", "EmbeddingBag") and len(ints) > 1:
        made_with |= {"weight": Tensor((ints[0], ints[1]), dtype)}
    elif name in ("Sequential", "ModuleList"):
        made_with["items"] = list(args[0]) if args and isinstance(args[0], list) else list(args)
    return Instance(name, made_with)


LAYER_FUNCTION = {
    "Linear": "linear",
    "LayerNorm": "layer_norm",
    "RMSNorm": "rms_norm",
    "GroupNorm": "group_norm",
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "CrossEntropyLoss": "cross_entropy",
    "Embedding": "embedding",
    "EmbeddingBag": "embedding_bag",
    "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm",
}


def layer_call(target: Instance, args: list[Any]) -> tuple[str, list[Any], dict[str, Any]]:
    """The functional form of ``layer(x)``."""
    own = [v for k in ("weight", "bias") if isinstance(v := target.attributes.get(k), Tensor)]
    name = LAYER_FUNCTION.get(target.kind) or ("conv" if target.kind.startswith("Conv") else target.kind.lower())
    extra = {k: target.attributes[k] for k in ("stride", "padding") if k in target.attributes}
    return name, [*args, *own], extra if name == "conv" else {}


def fuse(events: list[Any], args: Sequence[Any], result: Any) -> list[Any]:
    """What a compiler leaves of a function: library calls and scans as they are, all else as one pass over its ends."""
    kept = [e for e in events if not isinstance(e, HostOp) or e.kind in ("library", "scan")]
    rest = [e for e in events if isinstance(e, HostOp) and e.kind not in ("library", "scan")]
    if not rest:
        return kept
    ends = [a for a in [*args, *(result if isinstance(result, tuple | list) else [result])] if isinstance(a, Tensor)]
    moved: float = sum({t.storage: t.nbytes for t in ends}.values())
    gathers = sum(e.bytes / 2 for e in rest if e.kind == "gather")
    if gathers:
        touched = {s for e in rest if e.kind == "gather" for s in e.reads}
        moved = gathers + sum({t.storage: t.nbytes for t in ends if t.storage not in touched}.values())
    reads = tuple(t.storage for t in ends)
    passes = 1 + 0.5 * sum(e.kind in ("reduce", "native") for e in rest)
    return [
        *kept,
        HostOp(
            "fused",
            "fused",
            min(moved * min(passes, 2.0), sum(e.bytes for e in rest) or moved),
            sum(e.flops for e in rest),
            reads,
            rest[0].dtype,
        ),
    ]


def unknown(value: Any) -> bool:
    """Whether a value could not be found out."""
    return isinstance(value, Unknown)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a fresh tensor."""
    return contiguous_strides(shape)
