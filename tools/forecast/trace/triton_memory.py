"""Loads, stores, descriptors and products of the Triton language."""

from __future__ import annotations

import math
from typing import Any

from tilecast.tools.forecast.trace.tiles import KernelEvaluator, shape_of
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Descriptor,
    Tile,
    broadcast_shape,
)


class TritonMemory(KernelEvaluator):
    """What a ``triton.jit`` kernel does with memory and tensor cores."""

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
