"""The Triton language over abstract tiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilecast.tools.forecast.trace.tiles import (
    REDUCTIONS,
    SCANS,
    KernelEvaluator,
    dtype_name,
    shape_of,
)
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

ATOMICS = frozenset(
    {"atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "atomic_and", "atomic_or", "atomic_xor"}
)
KEPT = frozenset(
    {"multiple_of", "max_contiguous", "max_constancy", "assume", "to_tensor", "expand_dims_", "constexpr", "broadcast"}
)


class TritonEvaluator(KernelEvaluator):
    """One program of a ``triton.jit`` kernel."""

    def get_attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, Tile):
            if name == "dtype":
                return Ref(f"triton.language.{value.dtype}")
            if name == "shape":
                return value.shape
            if name == "T":
                return self.permuted(value, None)
        if isinstance(value, Descriptor) and name in ("block_shape", "shape", "dtype"):
            return {
                "block_shape": value.block,
                "shape": value.shape,
                "dtype": Ref(f"triton.language.{value.base.dtype}"),
            }[name]
        if isinstance(value, Tensor) and name == "dtype":
            return Ref(f"triton.language.{value.dtype}")
        if isinstance(value, int | float) and name == "value":
            return value
        return Bound(value, name)

    def get_item(self, value: Any, index: Any) -> Any:
        if isinstance(value, Tile):
            return self.indexed(value, index)
        return UNKNOWN

    def call_value(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(target, Function):
            return self.invoke(target, args, kwargs)
        if isinstance(target, Bound):
            return self.method(target.target, target.name, args, kwargs)
        if isinstance(target, Ref):
            return self.library(target.path.rsplit(".", 1)[-1], args, kwargs)
        return UNKNOWN

    def method(self, value: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``x.to(…)``, ``desc.load(…)`` and kin: a method is the function with the value first."""
        if isinstance(value, Descriptor):
            return self.descriptor(value, name, args)
        if name in ("to", "cast") and args and isinstance(args[0], Ref):
            dtype = dtype_of(args[0].path)
            if isinstance(value, int | float | bool):
                return (
                    (value if dtype is None or not dtype.startswith("int") else int(value))
                    if math.isfinite(value)
                    else value
                )
            return self.convert(value, dtype)
        if isinstance(value, Tile | Tensor | int | float):
            return self.library(name, [value, *args], kwargs)
        return UNKNOWN

    def library(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A function of ``triton.language`` by its last name."""
        handler = getattr(self, "tl_" + name, None)
        if handler is not None:
            return handler(args, kwargs)
        if name in REDUCTIONS:
            axis = kwargs.get("axis", args[1] if len(args) > 1 else None)
            return self.reduce(args[0] if args else UNKNOWN, axis, kwargs.get("keep_dims") is True, name)
        if name in SCANS:
            return self.scan(args)
        if name in ATOMICS:
            return self.atomic(args)
        if name in KEPT:
            return args[0] if args else UNKNOWN
        if name in ("float", "int", "bool") and args and isinstance(args[0], Tile):
            return args[0]
        return self.elementwise(name, args)

    def scan(self, args: list[Any]) -> Any:
        """A prefix scan or sort: passes over the tile's elements."""
        if args and isinstance(args[0], Tile):
            self.work.scans += self.work.weight * args[0].size
            self.work.note_tile(args[0].size, args[0].dtype)
            return Tile(args[0].shape, args[0].dtype)
        return UNKNOWN

    def atomic(self, args: list[Any]) -> Any:
        """An atomic update: counted by element, and as a store."""
        tile = self.as_tile(args[0]) if args else None
        if tile is None:
            return UNKNOWN
        shape = broadcast_shape(tile.shape, *(a.shape for a in args[1:3] if isinstance(a, Tile)))
        self.work.atomics += self.work.weight * math.prod(shape)
        self.store_tile(Tile(shape, tile.dtype, tile.ints, tile.base), args[2] if len(args) > 2 else None)
        return Tile(shape, tile.base.dtype if tile.base is not None else "float32")

    # Positions and ranges.
    def tl_program_id(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        axis = kwargs.get("axis", args[0] if args else 0)
        return self.program[axis] if isinstance(axis, int) and axis < len(self.program) else 0

    def tl_num_programs(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        axis = kwargs.get("axis", args[0] if args else 0)
        return self.grid[axis] if isinstance(axis, int) and axis < len(self.grid) else 1

    def tl_range(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.loop_hints = dict(kwargs)
        return self.builtin("range", args, {})

    def tl_static_range(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.loop_hints = {"unrolled": True}
        return self.builtin("range", args, {})

    def tl_arange(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) < 2 or not all(isinstance(a, int) for a in args[:2]) or not 0 < args[1] - args[0] <= 1 << 20:
            return Tile((1,), "int32")
        return Tile((args[1] - args[0],), "int32", np.arange(args[0], args[1], dtype=np.int64))

    def tl_cdiv(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if all(isinstance(a, int) for a in args[:2]) and len(args) > 1 and args[1]:
            return -(-args[0] // args[1])
        return self.elementwise("cdiv", args)

    def tl_next_power_of_2(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return 1 << (args[0] - 1).bit_length() if args and isinstance(args[0], int) else UNKNOWN

    # Making and shaping tiles.
    def tl_zeros(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        shape = shape_of(kwargs.get("shape", args[0] if args else None))
        dtype = dtype_name(kwargs.get("dtype", args[1] if len(args) > 1 else None))
        return (
            UNKNOWN
            if shape is None
            else Tile(shape, dtype, np.zeros((), dtype=np.int64) if dtype.startswith("int") else None)
        )

    def tl_full(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        shape = shape_of(kwargs.get("shape", args[0] if args else None))
        dtype = dtype_name(kwargs.get("dtype", args[2] if len(args) > 2 else None))
        return UNKNOWN if shape is None else Tile(shape, dtype)

    def tl_zeros_like(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return Tile(args[0].shape, args[0].dtype) if args and isinstance(args[0], Tile) else UNKNOWN

    def tl_expand_dims(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args or not isinstance(args[0], Tile):
            return UNKNOWN
        axis = kwargs.get("axis", args[1] if len(args) > 1 else 0)
        axis = axis % (len(args[0].shape) + 1) if isinstance(axis, int) else 0
        return self.indexed(args[0], (slice(None),) * axis + (None,))

    def tl_broadcast_to(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        shape = shape_of(args[1] if len(args) == 2 else tuple(args[1:])) if len(args) > 1 else None
        tile = self.as_tile(args[0]) if args else None
        return UNKNOWN if tile is None or shape is None else Tile(shape, tile.dtype, tile.ints, tile.base)

    def tl_reshape(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        shape = args[1] if len(args) == 2 else tuple(args[1:])
        return self.reshaped(args[0] if args else UNKNOWN, shape)

    tl_view = tl_reshape

    def tl_trans(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        order = shape_of(args[1] if len(args) == 2 else tuple(args[1:])) if len(args) > 1 else None
        return self.permuted(args[0] if args else UNKNOWN, order)

    tl_permute = tl_trans

    def tl_ravel(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.reshaped(args[0], (-1,)) if args else UNKNOWN

    def tl_split(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        half = Tile(args[0].shape[:-1], args[0].dtype) if args and isinstance(args[0], Tile) else UNKNOWN
        return (half, half)

    def tl_join(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return Tile((*args[0].shape, 2), args[0].dtype) if args and isinstance(args[0], Tile) else UNKNOWN

    def tl_cat(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return (
            Tile((args[0].shape[0] * 2, *args[0].shape[1:]), args[0].dtype)
            if args and isinstance(args[0], Tile) and args[0].shape
            else UNKNOWN
        )

    def tl_where(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.where(args)

    def tl_minimum(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.extreme("minimum", args)

    def tl_maximum(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.extreme("maximum", args)

    def tl_min(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        two = len(args) == 2 and not (isinstance(args[0], Tile) and args[0].size > 1)
        return (
            self.extreme("min", args)
            if two
            else self.reduce(args[0], kwargs.get("axis", args[1] if len(args) > 1 else None), False, "min")
        )

    def tl_max(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        two = len(args) == 2 and not (isinstance(args[0], Tile) and args[0].size > 1)
        return (
            self.extreme("max", args)
            if two
            else self.reduce(
                args[0], kwargs.get("axis", args[1] if len(args) > 1 else None), kwargs.get("keep_dims") is True, "max"
            )
        )

    def tl_swizzle2d(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return (args[0], args[1]) if len(args) > 1 else (UNKNOWN, UNKNOWN)

    def tl_inline_asm_elementwise(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        given = kwargs.get("args", args[2] if len(args) > 2 else [])
        tile = self.elementwise("tanh", given if isinstance(given, list | tuple) else [])
        return Tile(tile.shape, dtype_name(kwargs.get("dtype"), tile.dtype)) if isinstance(tile, Tile) else UNKNOWN

    def tl_debug_barrier(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return None

    tl_static_assert = tl_static_print = tl_device_assert = tl_device_print = tl_debug_barrier

    # Memory and matrix products.
    def tl_load(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.note_hints(kwargs)
        if args and isinstance(args[0], Descriptor):
            return self.descriptor(args[0], "load", [])
        return self.load_tile(args[0] if args else UNKNOWN, kwargs.get("mask", args[1] if len(args) > 1 else None))

    def tl_store(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.note_hints(kwargs)
        if args and isinstance(args[0], Descriptor):
            return self.descriptor(args[0], "store", [])
        pointer, value = args[0] if args else UNKNOWN, args[1] if len(args) > 1 else None
        if isinstance(pointer, Tile) and isinstance(value, Tile) and len(value.shape) > len(pointer.shape):
            pointer = Tile(value.shape, pointer.dtype, pointer.ints, pointer.base)
        self.store_tile(pointer, kwargs.get("mask", args[2] if len(args) > 2 else None))
        return None

    def note_hints(self, kwargs: dict[str, Any]) -> None:
        """Remember cache hints that are in force."""
        for key in ("eviction_policy", "cache_modifier"):
            if isinstance(kwargs.get(key), str) and kwargs[key]:
                self.work.hints.add(f"{key}={kwargs[key]}")

    def tl_dot(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) < 2:
            return UNKNOWN
        before = self.work.dot_flops
        result = self.product(args[0], args[1], kwargs.get("acc", args[2] if len(args) > 2 else None))
        precision, added = kwargs.get("input_precision"), self.work.dot_flops - before
        if precision == "tf32x3":
            self.work.dot_flops += 2 * added
        elif (precision == "ieee" or kwargs.get("allow_tf32") is False) and self.work.dot_item_bytes == 4:
            # Without TF32 a float32 product runs on the scalar lanes: two operations a multiply-add.
            self.work.dot_flops -= added
            self.work.float_ops += added / 2
        return result

    def tl_make_block_ptr(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        names = ("base", "shape", "strides", "offsets", "block_shape", "order")
        given = dict(zip(names, args, strict=False)) | kwargs
        return self.make_descriptor(given, "block_ptr")

    def tl_make_tensor_descriptor(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(("base", "shape", "strides", "block_shape"), args, strict=False)) | kwargs
        return self.make_descriptor(given, "descriptor")

    def make_descriptor(self, given: dict[str, Any], kind: str) -> Any:
        """A block pointer or descriptor from its parts."""
        base = self.as_tile(given.get("base"))
        parts = [shape_of(given.get(key)) for key in ("shape", "strides", "block_shape")]
        if base is None or base.base is None or any(p is None for p in parts):
            return UNKNOWN
        shape, strides, block = (p or () for p in parts)
        origin = int(base.ints) if base.ints is not None and base.ints.size == 1 else 0
        offsets = given.get("offsets")
        place = tuple(o if isinstance(o, int) else 0 for o in offsets) if isinstance(offsets, tuple | list) else None
        return Descriptor(base.base, origin, shape, strides, block, place, kind)

    def tl_advance(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) < 2 or not isinstance(args[0], Descriptor):
            return UNKNOWN
        item, moved = args[0], args[1] if isinstance(args[1], tuple | list) else ()
        old = item.offsets or (0,) * len(item.block)
        new = tuple(o + (m if isinstance(m, int) else 0) for o, m in zip(old, moved, strict=False))
        return Descriptor(item.base, item.offset, item.shape, item.strides, item.block, new, item.kind)

    def descriptor(self, item: Descriptor, name: str, args: list[Any]) -> Any:
        """``load``, ``store``, ``gather``, ``scatter`` and atomics through a descriptor: bulk copies."""
        bulk = item.kind == "descriptor"
        starts = (
            item.offsets if item.offsets is not None else args[0] if args and isinstance(args[0], tuple | list) else ()
        )
        pointer, inside = self.blocked(item.base, item.offset, item.shape, item.strides, (starts, item.block))
        if name in ("load", "gather"):
            loaded = self.load_tile(pointer, inside, bulk)
            return loaded if isinstance(loaded, Tile) else Tile(item.block, item.base.dtype)
        if name == "store" or name == "scatter" or name.startswith("atomic"):
            self.store_tile(pointer, inside, bulk)
            if name.startswith("atomic"):
                self.work.atomics += self.work.weight * math.prod(item.block)
            return None
        return self.tl_advance([item, *args], {}) if name == "advance" else UNKNOWN


def argument(value: Any) -> Any:
    """A launch argument as the kernel sees it: tensors become pointers, descriptors stay."""
    if isinstance(value, Tensor):
        return Tile((), value.dtype, np.zeros((), dtype=np.int64), value)
    return value


def item_bytes(tensor: Tensor) -> int:
    """Bytes of one element."""
    return ITEM_BYTES[tensor.dtype]
