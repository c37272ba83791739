"""New tensors."""

from __future__ import annotations

from typing import Any

from tilecast.tools.forecast.trace.host_op import HostOp, Result, size_args
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Ref,
    Tensor,
    dtype_of,
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
