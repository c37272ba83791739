"""The Triton language over abstract tiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilecast.tools.forecast.trace.arithmetic import REDUCTIONS, SCANS
from tilecast.tools.forecast.trace.tiles import dtype_name, shape_of
from tilecast.tools.forecast.trace.triton_memory import TritonMemory
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Bound,
    Descriptor,
    Function,
    Ref,
    Tensor,
    Tile,
    dtype_of,
)

ATOMICS = frozenset(
    {"atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "atomic_and", "atomic_or", "atomic_xor"}
)
KEPT = frozenset(
    {"multiple_of", "max_contiguous", "max_constancy", "assume", "to_tensor", "expand_dims_", "constexpr", "broadcast"}
)


class TritonEvaluator(TritonMemory):
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
        handler = getattr(self, "tl_" + name, None) or getattr(self, "any_" + name, None)
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
        self.work.note_length(args[1] - args[0])
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


def argument(value: Any) -> Any:
    """A launch argument as the kernel sees it: tensors become pointers, descriptors stay."""
    if isinstance(value, Tensor):
        return Tile((), value.dtype, np.zeros((), dtype=np.int64), value)
    return value
