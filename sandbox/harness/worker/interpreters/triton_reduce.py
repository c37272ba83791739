"""Reductions and scans of Triton's interpreter: by halves, with the kernel's own combine function on whole tensors.

The stock interpreter calls the combine function once an element, and sums bfloat16 as integers. By halves is also closer
to a GPU, which combines pairs of lanes: for n elements log2(n) roundings deep instead of n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter as _interpreter

from . import folding, numerics, triton_ops

Array = npt.NDArray[Any]
Columns = tuple[Array, ...]
Tensor = Any
TensorHandle = _interpreter.TensorHandle


def tensor_of(values: Array, dtype: Any) -> Tensor:
    """A Triton tensor from numpy values in storage format; no dimensions means a scalar."""
    if values.shape == ():
        return tl.core.tensor(TensorHandle(values.reshape(1), dtype.scalar), dtype.scalar)
    return tl.core.tensor(TensorHandle(values, dtype.scalar), tl.block_type(dtype.scalar, list(values.shape)))


def _call(combine: Any, left: tuple[Array, ...], right: tuple[Array, ...], dtypes: list[Any]) -> tuple[Array, ...]:
    arguments = [tensor_of(a, t) for a, t in zip((*left, *right), (*dtypes, *dtypes), strict=True)]
    out = combine.fn(*arguments) if not callable(combine) else combine(*arguments)
    out = out if isinstance(out, tuple) else (out,)
    return tuple(_as_array(value, dtype, a.shape) for value, dtype, a in zip(out, dtypes, left, strict=True))


def _as_array(value: Any, dtype: Any, shape: tuple[int, ...]) -> Array:
    if isinstance(value, tl.core.tensor):
        data, source = value.handle.data, value.dtype.scalar
        converted = numerics.convert(data, source.name, dtype.scalar.name)
    else:
        converted = np.asarray(value).astype(numerics.storage(dtype.scalar.name))
    return np.broadcast_to(converted, shape)


def _known(combine: Any) -> Any:
    """numpy's form of the standard combine functions, which keeps the common cases fast."""
    standard = tl.standard
    table = {
        "_sum_combine": np.add, "_elementwise_max": np.fmax, "_elementwise_min": np.fmin,
        "_prod_combine": np.multiply, "_xor_combine": np.bitwise_xor, "_or_combine": np.bitwise_or,
    }  # fmt: skip
    for name, ufunc in table.items():
        if combine is getattr(standard, name, None):
            return ufunc
    return None


def _combiner(combine: Any, dtypes: list[Any]) -> Callable[[tuple[Array, ...], tuple[Array, ...]], tuple[Array, ...]]:
    ufunc = _known(combine) if len(dtypes) == 1 else None
    if ufunc is None:
        return lambda left, right: _call(combine, left, right, dtypes)
    name, stored = dtypes[0].scalar.name, numerics.storage(dtypes[0].scalar.name)

    def quick(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
        out = ufunc(numerics.widen(left[0], name), numerics.widen(right[0], name))
        return (numerics.narrow(out, name) if name in numerics.PACKED else out.astype(stored, copy=False),)

    return quick


def _at_once(columns: Columns, combine: Any, dtypes: list[Any]) -> Columns | None:
    """Reductions that numpy does in one call and to the same quality: exact ones, and float sums along rows."""
    ufunc = _known(combine) if len(dtypes) == 1 else None
    name = dtypes[0].scalar.name
    if ufunc is None or name in numerics.PACKED or name == "int1":
        return None
    values = columns[0]
    exact = values.dtype.kind in "iu" or ufunc in (np.fmax, np.fmin)
    # numpy sums pairwise where the axis is contiguous in memory, one by one where it is not.
    rows = ufunc is np.add and values.dtype.itemsize >= 4 and values.strides[0] == values.dtype.itemsize
    if not (exact or rows):
        return None
    return (np.asarray(ufunc.reduce(values, axis=0, dtype=values.dtype))[None],)


def _quick_index(columns: tuple[Array, ...], combine: Any, dtypes: list[Any]) -> tuple[Array, ...] | None:
    """argmax and argmin with plain positions and no NaN, by numpy."""
    standard = tl.standard
    largest = {getattr(standard, f"_argmax_combine_tie_break_{kind}", None) for kind in ("left", "fast")}
    smallest = {getattr(standard, f"_argmin_combine_tie_break_{kind}", None) for kind in ("left", "fast")}
    if len(columns) != 2 or combine not in largest | smallest:
        return None
    values = numerics.widen(columns[0], dtypes[0].scalar.name)
    positions = np.arange(values.shape[0]).reshape((-1,) + (1,) * (values.ndim - 1))
    if (values.dtype.kind == "f" and np.isnan(values).any()) or not (columns[1] == positions).all():
        return None
    index = (np.argmax if combine in largest else np.argmin)(values, axis=0)[None]
    return np.take_along_axis(columns[0], index, axis=0), index.astype(columns[1].dtype)


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    """``tl.reduce`` of one tensor or a tuple of them."""
    many = isinstance(input, tuple | tl.core.tuple) if hasattr(tl.core, "tuple") else isinstance(input, tuple)
    tensors = list(input) if many else [input]
    axis, keep_dims = (getattr(v, "value", v) for v in (axis, keep_dims))
    arrays = [t.handle.data for t in tensors]
    rank = arrays[0].ndim
    if axis is None:
        arrays = [a.reshape(-1) for a in arrays]
    elif not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for a tensor with {rank} dimensions")
    dtypes = [t.dtype for t in tensors]
    columns = tuple(np.moveaxis(a, 0 if axis is None else axis, 0) for a in arrays)
    folded = _at_once(columns, combine_fn, dtypes) or _quick_index(columns, combine_fn, dtypes)
    folded = folded or folding.fold(columns, _combiner(combine_fn, dtypes))
    out = []
    for column, dtype in zip(folded, dtypes, strict=True):
        value = np.asarray(column[0])
        if keep_dims:
            value = value.reshape((1,) * rank) if axis is None else np.expand_dims(value, axis)
        out.append(tensor_of(value, dtype))
    return tuple(out) if many else out[0]


def scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
    """``tl.associative_scan`` of one tensor or a tuple of them."""
    many = not isinstance(input, tl.core.tensor)
    tensors = list(input) if many else [input]
    axis, reverse = (getattr(v, "value", v) for v in (axis, reverse))
    dtypes = [t.dtype for t in tensors]
    columns = tuple(np.moveaxis(t.handle.data, axis, 0) for t in tensors)
    columns = folding.scan(columns, _combiner(combine_fn, dtypes), bool(reverse))
    out = [tensor_of(np.ascontiguousarray(np.moveaxis(c, 0, axis)), t) for c, t in zip(columns, dtypes, strict=True)]
    return tuple(out) if many else out[0]


def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1, **_: Any) -> Any:
    """``tl.map_elementwise``: the function may branch on its scalars, so it is called once an element (or ``pack``)."""
    pack = getattr(pack, "value", pack)
    shape = np.broadcast_shapes(*(a.handle.data.shape for a in args))
    flat = [np.broadcast_to(a.handle.data, shape).reshape(-1) for a in args]
    results: list[list[Any]] = []
    for start in range(0, flat[0].size, pack):
        lanes = [
            tensor_of(np.asarray(f[i]), a.dtype)
            for f, a in zip(flat, args, strict=True)
            for i in range(start, start + pack)
        ]
        out = scalar_fn(*lanes)
        results.append(list(out) if isinstance(out, tuple) else [out])
    count = len(results[0]) // pack
    packed = []
    for j in range(count):
        lanes = [group[j * pack + i] for group in results for i in range(pack)]
        values = np.concatenate([lane.handle.data.reshape(-1) for lane in lanes]).reshape(shape)
        packed.append(tensor_of(values, lanes[0].dtype))
    return tuple(packed) if count > 1 else packed[0]


def table() -> triton_ops.Table:
    """What replaces functions of ``triton.language`` and ``triton.language.core``."""
    return {"reduce": reduce, "associative_scan": scan, "map_elementwise": map_elementwise}
