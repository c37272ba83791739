"""The cuTile language over abstract tiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilecast.tools.forecast.trace.arithmetic import REDUCTIONS, SCANS
from tilecast.tools.forecast.trace.tiles import KernelEvaluator, dtype_name, shape_of
from tilecast.tools.forecast.trace.values import (
    ITEM_BYTES,
    UNKNOWN,
    Bound,
    Descriptor,
    Function,
    Ref,
    Tensor,
    Tile,
    broadcast_shape,
    dtype_of,
)
from tilecast.tools.forecast.trace.work import pattern


class CutileEvaluator(KernelEvaluator):
    """One block of a ``ct.kernel``. Arrays are tensors with strides; loads move whole tiles."""

    def get_attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor | Tile) and name in ("shape", "dtype", "ndim", "strides"):
            if name == "dtype":
                return Ref(f"cuda.tile.{value.dtype}")
            return (
                len(value.shape)
                if name == "ndim"
                else value.strides
                if name == "strides" and isinstance(value, Tensor)
                else value.shape
            )
        if isinstance(value, Tile) and name == "T":
            return self.permuted(value, None)
        return Bound(value, name)

    def get_item(self, value: Any, index: Any) -> Any:
        if isinstance(value, Tile):
            return self.indexed(value, index)
        return value if isinstance(value, Ref) else UNKNOWN

    def call_value(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(target, Function):
            return self.invoke(target, args, kwargs)
        if isinstance(target, Bound):
            if isinstance(target.target, Descriptor):
                return self.view_method(target.target, target.name, args)
            return self.library(target.name, [target.target, *args], kwargs)
        return self.library(target.path.rsplit(".", 1)[-1], args, kwargs) if isinstance(target, Ref) else UNKNOWN

    def library(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A function of ``cuda.tile`` by its last name."""
        handler = getattr(self, "ct_" + name, None) or getattr(self, "any_" + name, None)
        if handler is not None:
            return handler(args, kwargs)
        if name in REDUCTIONS:
            axis = kwargs.get("axis", args[1] if len(args) > 1 else None)
            return self.reduce(args[0] if args else UNKNOWN, axis, kwargs.get("keepdims") is True, name)
        if name in SCANS and args and isinstance(args[0], Tile):
            self.work.scans += self.work.weight * args[0].size
            return Tile(args[0].shape, args[0].dtype)
        if name.startswith("atomic"):
            return self.atomic(args)
        return self.elementwise(name, args)

    def atomic(self, args: list[Any]) -> Any:
        """``atomic_add(array, indices, value)``."""
        if not args or not isinstance(args[0], Tensor):
            return UNKNOWN
        pointer = self.scattered(args[0], args[1] if len(args) > 1 else ())
        self.work.atomics += self.work.weight * pointer.size
        self.store_tile(pointer)
        return Tile(pointer.shape, args[0].dtype)

    def ct_bid(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        axis = args[0] if args and isinstance(args[0], int) else 0
        return self.program[axis] if axis < len(self.program) else 0

    def ct_num_blocks(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        axis = args[0] if args and isinstance(args[0], int) else 0
        return self.grid[axis] if axis < len(self.grid) else 1

    def ct_cdiv(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return (
            -(-args[0] // args[1])
            if len(args) > 1 and all(isinstance(a, int) for a in args[:2]) and args[1]
            else UNKNOWN
        )

    def ct_num_tiles(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        axis, shape = (
            kwargs.get("axis", args[1] if len(args) > 1 else 0),
            shape_of(kwargs.get("shape", args[2] if len(args) > 2 else None)),
        )
        order = kwargs.get("order")
        if (
            not isinstance(args[0] if args else None, Tensor)
            or shape is None
            or not isinstance(axis, int)
            or axis >= len(shape)
        ):
            return UNKNOWN
        extent = args[0].shape
        if isinstance(order, tuple | list) and len(order) == len(extent):
            extent = tuple(extent[o] for o in order)
        return -(-extent[axis] // shape[axis]) if axis < len(extent) else UNKNOWN

    def ct_static_iter(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.loop_hints = {"unrolled": True}
        return args[0] if args else UNKNOWN

    def ct_arange(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        n = args[0] if args else None
        if not isinstance(n, int) or not 0 < n <= 1 << 20:
            return Tile((1,), "int32")
        self.work.note_length(n)
        return Tile((n,), "int32", np.arange(n, dtype=np.int64))

    def ct_full(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        shape = shape_of(kwargs.get("shape", args[0] if args else None))
        dtype = kwargs.get("dtype", args[2] if len(args) > 2 else None)
        return UNKNOWN if shape is None else Tile(shape, dtype_name(dtype))

    def ct_zeros(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        shape = shape_of(kwargs.get("shape", args[0] if args else None))
        return (
            UNKNOWN
            if shape is None
            else Tile(shape, dtype_name(kwargs.get("dtype", args[1] if len(args) > 1 else None)))
        )

    ct_ones = ct_zeros

    def ct_astype(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
        return self.convert(args[0] if args else UNKNOWN, dtype_of(dtype.path) if isinstance(dtype, Ref) else None)

    def ct_reshape(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.reshaped(args[0] if args else UNKNOWN, args[1] if len(args) > 1 else kwargs.get("shape"))

    def ct_broadcast_to(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        tile, shape = (self.as_tile(args[0]), shape_of(args[1])) if len(args) > 1 else (None, None)
        return UNKNOWN if tile is None or shape is None else Tile(shape, tile.dtype, tile.ints)

    def ct_transpose(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.permuted(args[0] if args else UNKNOWN, None)

    def ct_permute(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.permuted(args[0] if args else UNKNOWN, shape_of(args[1]) if len(args) > 1 else None)

    def ct_mma(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) < 2:
            return UNKNOWN
        return self.product(args[0], args[1], args[2] if len(args) > 2 else None)

    def ct_matmul(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.product(args[0], args[1]) if len(args) > 1 else UNKNOWN

    def placed(self, array: Tensor, index: Any, shape: tuple[int, ...], order: Any) -> tuple[Tile, Tile]:
        """Pointers and mask of the tile at ``index`` (in tiles), axes taken in ``order``."""
        axes = (
            tuple(order)
            if isinstance(order, tuple | list) and len(order) == len(array.shape)
            else tuple(range(len(array.shape)))
        )
        items = index if isinstance(index, tuple | list) else (index,)
        starts = [(i if isinstance(i, int) else 0) * n for i, n in zip(items, shape, strict=False)]
        extent = [array.shape[a] for a in axes]
        strides = [array.strides[a] for a in axes]
        return self.blocked(array, 0, extent, strides, (starts, shape))

    def ct_load(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        array, index = args[0] if args else None, kwargs.get("index", args[1] if len(args) > 1 else ())
        shape = shape_of(kwargs.get("shape", args[2] if len(args) > 2 else None))
        if not isinstance(array, Tensor) or shape is None:
            return UNKNOWN
        pointer, inside = self.placed(array, index, shape, kwargs.get("order"))
        return self.load_tile(pointer, inside, bulk=math.prod(shape) * ITEM_BYTES[array.dtype] >= 512)

    def ct_store(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        array, index = args[0] if args else None, kwargs.get("index", args[1] if len(args) > 1 else ())
        tile = kwargs.get("tile", args[2] if len(args) > 2 else None)
        if isinstance(array, Tensor) and isinstance(tile, Tile):
            pointer, inside = self.placed(array, index, tile.shape or (1,) * len(array.shape), kwargs.get("order"))
            self.store_tile(pointer, inside)

    def scattered(self, array: Tensor, indices: Any) -> Tile:
        """Pointers from one index tile an axis."""
        items = indices if isinstance(indices, tuple | list) else (indices,)
        shape: tuple[int, ...] = ()
        offsets: Any = np.zeros((), dtype=np.int64)
        for item, stride in zip(items, array.strides, strict=False):
            tile = self.as_tile(item)
            if tile is None:
                offsets = None
                continue
            shape = broadcast_shape(shape, tile.shape)
            if offsets is not None and tile.ints is not None and math.prod(shape) <= 1 << 17:
                offsets = offsets + tile.ints * stride
            else:
                offsets = None
        return Tile(shape, array.dtype, offsets, array)

    def ct_gather(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) < 2 or not isinstance(args[0], Tensor):
            return UNKNOWN
        return self.load_tile(self.scattered(args[0], args[1]))

    def ct_scatter(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) > 1 and isinstance(args[0], Tensor):
            self.store_tile(self.scattered(args[0], args[1]))

    def ct_load_advanced_indexing(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        shape = shape_of(kwargs.get("shape"))
        if not args or not isinstance(args[0], Tensor) or shape is None:
            return UNKNOWN
        self.work.load(args[0], pattern(None, shape, ITEM_BYTES[args[0].dtype], None), gathered=True)
        return Tile(shape, args[0].dtype)

    def ct_slice(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        array = args[0] if args else None
        axis, start, stop = (
            kwargs.get(key, args[at] if len(args) > at else None)
            for key, at in (("axis", 1), ("start", 2), ("stop", 3))
        )
        if (
            not isinstance(array, Tensor)
            or not isinstance(axis, int)
            or not -len(array.shape) <= axis < len(array.shape)
        ):
            return array if isinstance(array, Tensor) else UNKNOWN
        shape = list(array.shape)
        if isinstance(start, int) and isinstance(stop, int) and stop > start:
            shape[axis] = stop - start
        return array.view(shape, array.strides)

    def ct_tiled_view(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        shape = shape_of(args[1]) if len(args) > 1 else shape_of(kwargs.get("shape"))
        array = args[0] if args else None
        if not isinstance(array, Tensor) or shape is None:
            return UNKNOWN
        return Descriptor(array, 0, array.shape, array.strides, shape, kind="view")

    def view_method(self, view: Descriptor, name: str, args: list[Any]) -> Any:
        """``load``, ``store`` and ``num_tiles`` of a tiled view."""
        if name == "num_tiles":
            axis = args[0] if args and isinstance(args[0], int) else 0
            return -(-view.shape[axis] // view.block[axis]) if axis < len(view.block) else UNKNOWN
        pointer, inside = self.placed(view.base, args[0] if args else (), view.block, None)
        if name == "load":
            return self.load_tile(pointer, inside, bulk=True)
        if name == "store":
            self.store_tile(pointer, inside)
        return None
