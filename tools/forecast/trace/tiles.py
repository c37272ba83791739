"""Operations on tiles that Triton and cuTile share: broadcasting arithmetic, comparisons, reshapes, loops by sampling."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilecast.tools.forecast.trace.evaluator import BINARY, COMPARE, Evaluator, LoopBreak, LoopContinue, Scope
from tilecast.tools.forecast.trace.values import (
    ITEM_BYTES,
    UNKNOWN,
    Ints,
    Ref,
    Tensor,
    Tile,
    broadcast_shape,
    dtype_of,
    is_float,
    promote,
)
from tilecast.tools.forecast.trace.work import Loop, Work, pattern

MAX_KNOWN = 1 << 17
"""Integer tiles with more distinct numbers than this are not kept."""

UNROLLED = 16
"""Static loops of up to this many trips are walked whole: their bodies may keep tiles apart by index."""

UNKNOWN_TRIPS = 8.0
"""Trips of a loop whose bounds could not be found out."""

SPECIAL = frozenset(
    {
        "exp",
        "exp2",
        "log",
        "log2",
        "log1p",
        "expm1",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "erf",
        "pow",
        "div_rn",
        "sqrt_rn",
        "softmax",
    }
)
REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum", "prod"})
SCANS = frozenset({"cumsum", "cumprod", "associative_scan", "sort", "scan", "histogram", "topk"})


class KernelEvaluator(Evaluator):
    """Walks a kernel's body for one program; ``program`` is its position, ``grid`` the launch's extent."""

    def __init__(self, work: Work, program: tuple[int, ...], grid: tuple[int, ...], seed: int = 0) -> None:
        super().__init__()
        self.work = work
        self.program = program
        self.grid = grid
        self.loop_depth = 0
        self.loop_hints: dict[str, Any] = {}
        self.random = np.random.default_rng(seed)

    # Loops: a few trips stand for all.
    def iterate(self, node: ast.For, scope: Scope) -> None:
        self.loop_hints = {}
        values = self.eval(node.iter, scope)
        hints, self.loop_hints = self.loop_hints, {}
        items: Sequence[Any] = values if isinstance(values, range | list | tuple) else [UNKNOWN]
        trips = float(len(items)) if isinstance(values, range | list | tuple) else UNKNOWN_TRIPS
        if not trips:
            return
        whole = len(items) <= (UNROLLED if hints.get("unrolled") else 2)
        sampled = list(items) if whole else [items[len(items) // 3], items[2 * len(items) // 3]]
        outer, work = self.work.weight, self.work
        before = (work.load_bytes, work.dot_flops)
        self.loop_depth += 1
        for item in sampled:
            work.weight = outer * trips / len(sampled)
            self.assign(node.target, item, scope)
            try:
                self.run(node.body, scope)
            except LoopContinue:
                continue
            except LoopBreak:
                break
        self.loop_depth -= 1
        work.weight = outer
        total = outer * trips
        loop = Loop(
            trips=trips,
            depth=self.loop_depth,
            load_bytes=(work.load_bytes - before[0]) / total,
            dot_flops=(work.dot_flops - before[1]) / total,
            stages=hints.get("num_stages") if isinstance(hints.get("num_stages"), int) else None,
            unrolled=bool(hints.get("unrolled")) or isinstance(hints.get("loop_unroll_factor"), int),
            specialised=hints.get("warp_specialize") is True,
        )
        work.loops.append(loop)

    # Arithmetic.
    def operate(self, symbol: type, left: Any, right: Any) -> Any:
        a, b = self.as_tile(left), self.as_tile(right)
        if a is None or b is None:
            return UNKNOWN
        shape = broadcast_shape(a.shape, b.shape)
        base = a.base if a.base is not None else b.base
        if symbol in COMPARE:
            dtype = "bool"
        else:
            dtype = base.dtype if base is not None else self.result_dtype(symbol, left, right, a, b)
        known = self.known(symbol, a.ints, b.ints)
        size = math.prod(shape)
        if size > 1:
            counted = promote(a.dtype, b.dtype) if base is None else "int64"
            self.work.arithmetic(size, counted)
            self.work.note_tile(size, dtype)
            if symbol is ast.Div:
                self.work.special_ops += self.work.weight * size
        return Tile(shape, dtype, known, base)

    def result_dtype(self, symbol: type, left: Any, right: Any, a: Tile, b: Tile) -> str:
        """dtype of arithmetic: Python numbers do not widen a tile."""
        if isinstance(left, int | float) and not (isinstance(left, float) and not is_float(b.dtype)):
            dtype = b.dtype
        elif isinstance(right, int | float) and not (isinstance(right, float) and not is_float(a.dtype)):
            dtype = a.dtype
        else:
            dtype = promote(a.dtype, b.dtype)
        return "float32" if symbol is ast.Div and not is_float(dtype) else dtype

    def known(self, symbol: type, a: Ints | None, b: Ints | None) -> Ints | None:
        """Numbers of the result, where both sides' are known and few enough."""
        if a is None or b is None:
            return None
        if a.size > 1 and b.size > 1 and math.prod(broadcast_shape(a.shape, b.shape)) > MAX_KNOWN:
            return None
        if symbol is ast.USub:
            return -a
        if symbol in (ast.Invert, ast.Not):
            return (a == 0).astype(np.int64)
        function = BINARY.get(symbol) or COMPARE.get(symbol)
        if function is None or symbol in (ast.Div, ast.Pow, ast.MatMult, ast.In, ast.NotIn, ast.Is, ast.IsNot):
            return None
        if symbol in (ast.FloorDiv, ast.Mod) and not b.all():
            return None
        if symbol in (ast.LShift, ast.RShift) and ((b < 0) | (b > 62)).any():
            return None
        with np.errstate(over="ignore"):
            try:
                return np.asarray(function(a, b)).astype(np.int64)
            except ValueError:
                return None

    def as_tile(self, value: Any) -> Tile | None:
        """Numbers, tiles and device tensors as tiles; None for anything else."""
        if isinstance(value, Tile):
            return value
        if isinstance(value, bool | int):
            return Tile((), "int32", np.asarray(value, dtype=np.int64))
        if isinstance(value, float):
            return Tile((), "float32")
        if isinstance(value, Tensor):
            return Tile((), value.dtype, np.zeros((), dtype=np.int64), value)
        return None

    def convert(self, value: Any, dtype: str | None) -> Any:
        """A cast; between float widths it costs an operation an element."""
        if not isinstance(value, Tile) or dtype is None:
            return value
        if value.size > 1 and dtype != value.dtype:
            self.work.arithmetic(value.size, "float32" if is_float(dtype) or is_float(value.dtype) else "int32")
            self.work.note_tile(value.size, dtype)
        return Tile(value.shape, dtype, None if is_float(dtype) else value.ints, value.base)

    def elementwise(self, name: str, args: Sequence[Any]) -> Any:
        """A function of each element; special functions are counted as such."""
        tiles = [t for t in map(self.as_tile, args) if t is not None]
        if not tiles:
            return UNKNOWN
        shape = broadcast_shape(*(t.shape for t in tiles))
        dtype = tiles[0].dtype
        for tile in tiles[1:]:
            dtype = promote(dtype, tile.dtype)
        size = math.prod(shape)
        if name in SPECIAL:
            self.work.special_ops += self.work.weight * size
        else:
            self.work.arithmetic(size, dtype)
        self.work.note_tile(size, dtype)
        return Tile(shape, dtype)

    def where(self, args: Sequence[Any]) -> Any:
        """Selection; integer results keep their numbers."""
        tiles = [self.as_tile(a) for a in args[:3]]
        if len(tiles) < 3 or any(t is None for t in tiles):
            return UNKNOWN
        test, yes, no = (t for t in tiles if t is not None)
        shape = broadcast_shape(test.shape, yes.shape, no.shape)
        base = yes.base or no.base
        dtype = yes.dtype if isinstance(args[2], int | float) else promote(yes.dtype, no.dtype)
        ints = None
        if test.ints is not None and yes.ints is not None and no.ints is not None and math.prod(shape) <= MAX_KNOWN:
            ints = np.where(test.ints != 0, yes.ints, no.ints)
        self.work.arithmetic(math.prod(shape), dtype)
        return Tile(shape, dtype, ints, base)

    def extreme(self, name: str, args: Sequence[Any]) -> Any:
        """Element-wise minimum or maximum; exact on integers."""
        if all(isinstance(a, int | float) for a in args[:2]) and len(args) >= 2:
            return min(args[:2]) if name.startswith("min") else max(args[:2])
        tiles = [self.as_tile(a) for a in args[:2]]
        if len(tiles) < 2 or tiles[0] is None or tiles[1] is None:
            return UNKNOWN
        a, b = tiles[0], tiles[1]
        shape = broadcast_shape(a.shape, b.shape)
        ints = None
        if a.ints is not None and b.ints is not None and math.prod(shape) <= MAX_KNOWN:
            ints = (np.minimum if name.startswith("min") else np.maximum)(a.ints, b.ints)
        self.work.arithmetic(math.prod(shape), promote(a.dtype, b.dtype))
        return Tile(shape, promote(a.dtype, b.dtype), ints)

    # Shapes.
    def reduce(self, value: Any, axis: Any, keep: bool, name: str) -> Any:
        """A reduction over one axis or all."""
        if not isinstance(value, Tile):
            return value
        self.work.reduced += self.work.weight * value.size
        self.work.reductions += self.work.weight
        axes = set(range(len(value.shape))) if axis is None else {a % max(len(value.shape), 1) for a in _axes(axis)}
        shape = tuple(1 if i in axes else n for i, n in enumerate(value.shape) if keep or i not in axes)
        if name.startswith("arg") or not is_float(value.dtype):
            return self.reduced_ints(value, tuple(sorted(axes)), shape, name)
        return Tile(shape, value.dtype)

    def reduced_ints(self, value: Tile, axes: tuple[int, ...], shape: tuple[int, ...], name: str) -> Any:
        """Integers stay known through a reduction where they are; else some integer stands for them."""
        function = {"sum": np.sum, "max": np.max, "min": np.min}.get(name)
        ints: Ints | None = None
        if value.ints is not None and function is not None and value.size <= MAX_KNOWN and value.size:
            ints = np.asarray(function(np.broadcast_to(value.ints, value.shape), axis=axes)).reshape(shape)
        elif not name.startswith("arg") and value.dtype == "bool":
            return Tile(shape, "int32")
        else:
            ints = np.asarray(int(self.random.integers(0, 1 << 20)))
        return int(ints) if not shape else Tile(shape, "int32" if name.startswith("arg") else value.dtype, ints)

    def reshaped(self, value: Any, shape: Any) -> Any:
        """The same elements in another shape; ``-1`` is worked out."""
        if not isinstance(value, Tile):
            return value
        wanted = _shape(shape)
        if wanted is None:
            return Tile(value.shape, value.dtype, None, value.base)
        if -1 in wanted:
            rest = -math.prod(wanted)
            wanted = tuple(value.size // rest if n == -1 and rest else n for n in wanted)
        ints = value.ints
        if ints is not None and ints.size > 1:
            full = np.broadcast_to(ints, value.shape)
            ints = full.reshape(wanted) if full.size == math.prod(wanted) else None
        return Tile(wanted, value.dtype, ints, value.base)

    def permuted(self, value: Any, order: Sequence[int] | None) -> Any:
        """Axes in another order (reversed by default); a float tile has to cross threads for it."""
        if not isinstance(value, Tile):
            return value
        axes = (
            tuple(order)
            if order is not None
            else (*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2)
        )
        if sorted(axes) != list(range(len(value.shape))):
            return value
        ints = value.ints
        if ints is not None and ints.ndim == len(axes):
            ints = ints.transpose(axes)
        self.work.shuffles += self.work.weight * value.size
        return Tile([value.shape[a] for a in axes], value.dtype, ints, value.base)

    def indexed(self, value: Tile, index: Any) -> Any:
        """``x[:, None]`` and kin: new axes; other subscripts of tiles are not known."""
        parts = index if isinstance(index, tuple) else (index,)
        shape, slots, axis = [], [], 0
        for part in parts:
            if part is None:
                shape.append(1)
                slots.append(np.newaxis)
            elif isinstance(part, slice) and axis < len(value.shape):
                shape.append(value.shape[axis])
                slots.append(slice(None))
                axis += 1
            else:
                return UNKNOWN
        shape.extend(value.shape[axis:])
        ints = value.ints
        if ints is not None:
            ints = ints.reshape((1,) * (len(value.shape) - ints.ndim) + ints.shape)[tuple(slots)]
        return Tile(shape, value.dtype, ints, value.base)

    # Memory.
    def load_tile(self, pointer: Any, mask: Any = None, bulk: bool = False) -> Any:
        """Read through a tile of pointers. Integer contents are drawn at random below the tensor's bound."""
        tile = self.as_tile(pointer)
        if tile is None or tile.base is None:
            return UNKNOWN
        guard = self.as_tile(mask) if mask is not None else None
        shape = broadcast_shape(tile.shape, guard.shape) if guard is not None else tile.shape
        access = pattern(tile.ints, shape, ITEM_BYTES[tile.base.dtype], guard.ints if guard is not None else None)
        gathered = access.run * ITEM_BYTES[tile.base.dtype] < 32 and access.lanes > 1
        self.work.load(tile.base, access, bulk, gathered)
        self.work.note_tile(math.prod(shape), tile.base.dtype)
        return self.contents(shape, tile)

    def contents(self, shape: Sequence[int], pointer: Tile) -> Any:
        """What a load gives: a float tile, or plausible integers to index with, the same ones at the same address."""
        base = pointer.base
        assert base is not None
        if is_float(base.dtype) or base.dtype in ("int8", "uint8", "bool"):
            return Tile(shape, base.dtype)
        offsets = pointer.ints if pointer.ints is not None else np.asarray(self.random.integers(0, 1 << 20))
        ints = (offsets * 2654435761 + 12345) % (1 << 31) % max(base.high or 1 << 20, 1)
        return int(ints) if not shape and ints.size == 1 else Tile(shape, base.dtype, np.asarray(ints))

    def store_tile(self, pointer: Any, mask: Any = None, bulk: bool = False) -> None:
        """Write through a tile of pointers."""
        tile = self.as_tile(pointer)
        if tile is None or tile.base is None:
            return
        guard = self.as_tile(mask) if mask is not None else None
        shape = broadcast_shape(tile.shape, guard.shape) if guard is not None else tile.shape
        access = pattern(tile.ints, shape, ITEM_BYTES[tile.base.dtype], guard.ints if guard is not None else None)
        self.work.store(tile.base, access, bulk)

    def product(self, left: Any, right: Any, accumulator: Any = None) -> Any:
        """A tile matrix product on the last two axes."""
        if not isinstance(left, Tile) or not isinstance(right, Tile) or len(left.shape) < 2 or len(right.shape) < 2:
            return accumulator if isinstance(accumulator, Tile) else UNKNOWN
        m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
        batch = math.prod(broadcast_shape(left.shape[:-2], right.shape[:-2]))
        dtype = left.dtype if ITEM_BYTES[left.dtype] >= ITEM_BYTES[right.dtype] else right.dtype
        self.work.dot(m, n, k, dtype, batch)
        self.work.note_tile(batch * m * n, "float32")
        shape = (*broadcast_shape(left.shape[:-2], right.shape[:-2]), m, n)
        return Tile(shape, accumulator.dtype if isinstance(accumulator, Tile) else "float32")

    def blocked(
        self, base: Tensor, origin: int, extent: Sequence[int], strides: Sequence[int], place: tuple[Any, Sequence[int]]
    ) -> tuple[Tile, Tile]:
        """Pointers and mask of a block ``place = (start offsets, block shape)`` in an array of this extent."""
        starts, block = place
        offsets: Ints = np.asarray(origin, dtype=np.int64)
        inside: Ints = np.ones((), dtype=np.int64)
        for axis, (size, limit, stride) in enumerate(zip(block, extent, strides, strict=False)):
            start = starts[axis] if axis < len(starts) and isinstance(starts[axis], int) else 0
            line = (start + np.arange(size)).reshape((1,) * axis + (size,) + (1,) * (len(block) - axis - 1))
            offsets = (
                offsets + line * stride
                if offsets.size * size <= MAX_KNOWN
                else offsets + line.take([0], axis=axis) * stride
            )
            inside = inside * (line < limit) if inside.size * size <= MAX_KNOWN else inside
        return Tile(block, base.dtype, offsets, base), Tile(block, "bool", inside)


def _axes(axis: Any) -> tuple[int, ...]:
    return tuple(a for a in (axis if isinstance(axis, tuple | list) else (axis,)) if isinstance(a, int)) or (0,)


def _shape(value: Any) -> tuple[int, ...] | None:
    items = value if isinstance(value, tuple | list) else (value,)
    return tuple(items) if all(isinstance(n, int) for n in items) else None


def shape_of(value: Any) -> tuple[int, ...] | None:
    """A shape given as a tuple, list or single number; None where it is not known."""
    return _shape(value)


def dtype_name(value: Any, default: str = "float32") -> str:
    """dtype named by a library reference, or the default."""
    found = dtype_of(value.path) if isinstance(value, Ref) else None
    return found or default
