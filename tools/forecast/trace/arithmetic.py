"""Element-wise work on tiles, and loops: a few trips stand for all."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilecast.tools.forecast.trace.evaluator import Evaluator
from tilecast.tools.forecast.trace.language import BINARY, COMPARE, Scope
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Ints,
    Tensor,
    Tile,
    broadcast_shape,
    is_float,
    promote,
)
from tilecast.tools.forecast.trace.work import Loop, Work

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


class ArithmeticEvaluator(Evaluator):
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
            if not self.pass_of(node, item, scope):
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
            negated: Ints = -a
            return negated
        if symbol in (ast.Invert, ast.Not):
            inverted: Ints = (a == 0).astype(np.int64)
            return inverted
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
