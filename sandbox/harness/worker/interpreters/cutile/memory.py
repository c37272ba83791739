"""Arrays of the cuTile stand-in: views of torch storages, loaded and stored by tiles or by indices.

What has no docstring does what cuda-tile 1.7.0 documents under the same name.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .. import numerics
from ..errors import OutOfBounds, Unsupported
from ..scheduling import Scheduler
from . import types as ct
from .arithmetic import Scalar
from .tile import Tile, as_tile, narrowed

Buffer = npt.NDArray[Any]

_TORCH = {
    torch.bool: ct.bool_, torch.uint8: ct.uint8, torch.int8: ct.int8, torch.int16: ct.int16, torch.int32: ct.int32,
    torch.int64: ct.int64, torch.float16: ct.float16, torch.bfloat16: ct.bfloat16, torch.float32: ct.float32,
    torch.float64: ct.float64, torch.float8_e4m3fn: ct.float8_e4m3fn, torch.float8_e5m2: ct.float8_e5m2,
    torch.uint16: ct.uint16, torch.uint32: ct.uint32, torch.uint64: ct.uint64,
}  # fmt: skip


@dataclass
class State:
    """The launch that is running."""

    scheduler: Scheduler | None = None
    kernel: str = ""

    def where(self) -> str:
        program = self.scheduler.program if self.scheduler else ()
        return f"kernel {self.kernel}, block {program}"

    def polled(self, array: Array, values: Buffer) -> None:
        """Note a scalar read; after many equal ones another block runs."""
        if values.size == 1 and self.scheduler is not None:
            self.scheduler.polled(id(array), values.tobytes())


state = State()


@dataclass
class Array:
    """A global array: ``view`` is a strided numpy view of the tensor's memory, in storage format."""

    view: Buffer
    dtype: ct.DType
    name: str
    flat: Buffer = field(repr=False)
    """The storage from the array's first element on."""

    @property
    def shape(self) -> tuple[Scalar, ...]:
        return tuple(Scalar(n) for n in self.view.shape)

    @property
    def strides(self) -> tuple[Scalar, ...]:
        return tuple(Scalar(s // self.view.itemsize) for s in self.view.strides)

    @property
    def ndim(self) -> int:
        return self.view.ndim

    def slice(self, axis: int, start: Any, stop: Any) -> Array:
        index: list[Any] = [slice(None)] * self.ndim
        first, last = int(start), int(stop)
        if not 0 <= first <= last <= self.view.shape[axis]:
            extent = self.view.shape[axis]
            raise OutOfBounds(
                f"{state.where()}: slice {first}:{last} of {self.name} along axis {axis}, which has {extent}"
            )
        index[axis] = slice(first, last)
        offset = first * (self.view.strides[axis] // self.view.itemsize)
        return Array(self.view[tuple(index)], self.dtype, self.name, self.flat[offset:])

    def tiled_view(
        self,
        tile_shape: Any,
        *,
        padding_mode: ct.PaddingMode = ct.PaddingMode.UNDETERMINED,
        traversal_steps: Any = None,
    ) -> Any:
        from .views import TiledView

        shape = as_tuple(tile_shape) or (1,) * self.ndim
        return TiledView(self, shape, padding_mode, shape if traversal_steps is None else as_tuple(traversal_steps))

    def get_raw_memory(self) -> Any:
        from .views import RawArrayMemory

        return RawArrayMemory(self)

    @property
    def foreign_pointer(self) -> Any:
        raise Unsupported("cuda.tile.Array.foreign_pointer")


def array_of(tensor: torch.Tensor, name: str) -> Array:
    """The array that a kernel sees for a tensor argument; its memory is the tensor's own.

    Raises:
        Unsupported: for a dtype that cuTile has no counterpart of here.
    """
    dtype = _TORCH.get(tensor.dtype)
    if dtype is None:
        raise Unsupported(f"cuda.tile arrays of dtype {tensor.dtype}")
    stored, held = numerics.storage(dtype.form), tensor.untyped_storage()
    size, start = held.nbytes(), held.data_ptr()
    octets = (ctypes.c_uint8 * max(size, 1)).from_address(start) if start and size else (ctypes.c_uint8 * 16)()
    offset = tensor.storage_offset() * stored.itemsize
    strides = [s * stored.itemsize for s in tensor.stride()]
    shape = tuple(tensor.shape)
    view: Buffer = np.ndarray(shape, stored, memoryview(octets), offset if size else 0, strides)
    flat = np.frombuffer(memoryview(octets), np.uint8)[
        offset : offset + (size - offset) // stored.itemsize * stored.itemsize
    ].view(stored)
    return Array(view, dtype, name, flat)


def as_tuple(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in shape) if isinstance(shape, tuple | list) else (int(shape),)


def _ordered(array: Array, order: Any) -> Buffer:
    if order == "C":
        return array.view
    axes = tuple(reversed(range(array.ndim))) if order == "F" else as_tuple(order)
    return array.view.transpose(axes)


def window(
    view: Buffer, starts: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of the array that a tile covers, and where in the tile it lies."""
    outer, inner = [], []
    for start, extent, limit in zip(starts, shape, view.shape, strict=True):
        low, high = min(max(start, 0), limit), min(max(start + extent, 0), limit)
        outer.append(slice(low, high))
        inner.append(slice(low - start, low - start + max(high - low, 0)))
    return tuple(outer), tuple(inner)


def check_inside(view: Buffer, starts: tuple[int, ...], shape: tuple[int, ...], name: str, kind: str) -> None:
    for start, extent, limit in zip(starts, shape, view.shape, strict=True):
        if start < 0 or start + extent > limit:
            span = f"{start}:{start + extent}"
            raise OutOfBounds(f"{state.where()}: {kind} with check_bounds=False of {span} of {name}, which has {limit}")


def read_window(
    view: Buffer, array: Array, starts: tuple[int, ...], shape: tuple[int, ...], padding: ct.PaddingMode
) -> Tile:
    outer, inner = window(view, starts, shape)
    part = view[outer]
    if part.shape == shape:
        out = part.copy()
    else:
        fill = ct.PADDING[padding]
        value = narrowed(np.asarray(fill), array.dtype) if array.dtype.kind in "fr" else np.zeros((), view.dtype)
        out = np.full(shape, value, view.dtype)
        out[inner] = part
    state.polled(array, out)
    return Tile(out, array.dtype)


def placed(tile: Any, shape: tuple[int, ...], dtype: ct.DType) -> Buffer:
    return np.broadcast_to(as_tile(tile).astype(dtype).buffer, shape)


def load(
    array: Array, /, index: Any, shape: Any, *, order: Any = "C", padding_mode: ct.PaddingMode = ct.PaddingMode.UNDETERMINED,
    check_bounds: bool = True, **_: Any,
) -> Tile:  # fmt: skip
    """The tile at ``index`` of the array's tile space; elements outside the array are padding."""
    view, wanted = _ordered(array, order), as_tuple(shape)
    extent = wanted or (1,) * view.ndim
    starts = tuple(i * n for i, n in zip(as_tuple(index), extent, strict=True))
    if not check_bounds:
        check_inside(view, starts, extent, array.name, "load")
    return read_window(view, array, starts, extent, padding_mode).reshape(wanted)


def store(array: Array, /, index: Any, tile: Any, *, order: Any = "C", check_bounds: bool = True, **_: Any) -> None:
    """Write a tile; elements outside the array are dropped."""
    view, piece = _ordered(array, order), as_tile(tile)
    extent = piece.shape if piece.ndim == view.ndim else (1,) * (view.ndim - piece.ndim) + piece.shape
    starts = tuple(i * n for i, n in zip(as_tuple(index), extent, strict=True))
    if not check_bounds:
        check_inside(view, starts, extent, array.name, "store")
    outer, inner = window(view, starts, extent)
    view[outer] = placed(piece, extent, array.dtype)[inner]


def num_tiles(array: Array, /, axis: int, shape: Any, order: Any = "C") -> Scalar:
    return Scalar(-(-_ordered(array, order).shape[axis] // as_tuple(shape)[axis]))


def positions_of(
    array: Array, indices: Any, mask: Any, check_bounds: bool, kind: str
) -> tuple[tuple[Buffer, ...], Buffer]:
    """Broadcast index arrays and which elements are accessed."""
    parts = indices if isinstance(indices, tuple | list) else (indices,)
    if len(parts) != array.ndim:
        raise ct.TileTypeError(f"{kind}: {len(parts)} indices for {array.name}, which has {array.ndim} dimensions")
    numbers = list(np.broadcast_arrays(*(as_tile(p).values().astype(np.int64) for p in parts)))
    on = np.ones(numbers[0].shape, np.bool_)
    if mask is not None:
        shape = np.broadcast_shapes(on.shape, as_tile(mask).shape)
        numbers = [np.broadcast_to(n, shape) for n in numbers]
        on = np.broadcast_to(as_tile(mask).values() != 0, shape)
    inside = np.ones(on.shape, np.bool_)
    for number, limit in zip(numbers, array.view.shape, strict=True):
        inside &= (number >= 0) & (number < limit)
    if not check_bounds and (on & ~inside).any():
        bad = tuple(int(n[on & ~inside][0]) for n in numbers)
        raise OutOfBounds(
            f"{state.where()}: {kind} with check_bounds=False at {bad} of {array.name}, shape {array.view.shape}"
        )
    return tuple(numbers), on & inside


def gather(
    array: Array, indices: Any, /, *, mask: Any = None, padding_value: Any = 0, check_bounds: bool = True, **_: Any
) -> Tile:
    """Elements by index; masked and out-of-bounds ones are ``padding_value``."""
    numbers, on = positions_of(array, indices, mask, check_bounds, "gather")
    out = np.array(np.broadcast_to(as_tile(padding_value).astype(array.dtype).buffer, on.shape))
    out[on] = array.view[tuple(n[on] for n in numbers)]
    state.polled(array, out)
    return Tile(out, array.dtype)


def scatter(
    array: Array, indices: Any, value: Any, /, *, mask: Any = None, check_bounds: bool = True, **_: Any
) -> None:
    """Write elements by index; masked and out-of-bounds ones are dropped."""
    numbers, on = positions_of(array, indices, mask, check_bounds, "scatter")
    array.view[tuple(n[on] for n in numbers)] = placed(value, on.shape, array.dtype)[on]


def _advanced(array: Array, indices: Any) -> tuple[tuple[Buffer, ...], Buffer]:
    """Open index arrays of an advanced index, clipped, and which elements lie inside."""
    rank = array.ndim
    numbers, inside = [], np.ones((1,) * rank, np.bool_)
    for axis, (part, limit) in enumerate(zip(indices, array.view.shape, strict=True)):
        line = (
            part.start + np.arange(part.length)
            if isinstance(part, ct.Slice)
            else as_tile(part).values().astype(np.int64)
        )
        line = line.reshape([-1 if a == axis else 1 for a in range(rank)])
        inside = inside & (line >= 0) & (line < limit)
        numbers.append(np.clip(line, 0, max(limit - 1, 0)))
    return tuple(numbers), inside


def load_advanced_indexing(
    array: Array, indices: Any, /, *, padding_mode: ct.PaddingMode = ct.PaddingMode.UNDETERMINED, **_: Any
) -> Tile:
    numbers, inside = _advanced(array, indices)
    fill = (
        narrowed(np.asarray(ct.PADDING[padding_mode]), array.dtype)
        if array.dtype.kind in "fr"
        else array.view.dtype.type(0)
    )
    return Tile(np.where(inside, array.view[numbers], fill).astype(array.view.dtype), array.dtype)


def store_advanced_indexing(array: Array, indices: Any, tile: Any, /, **_: Any) -> None:
    numbers, inside = _advanced(array, indices)
    spread = [np.broadcast_to(n, inside.shape)[inside] for n in numbers]
    array.view[tuple(spread)] = placed(tile, inside.shape, array.dtype)[inside]


def names() -> dict[str, Any]:
    """Memory operations by their public names."""
    plain = (load, store, num_tiles, gather, scatter, load_advanced_indexing, store_advanced_indexing)
    return {function.__name__: function for function in plain}
