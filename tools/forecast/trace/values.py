"""Values of the abstract evaluator: names of libraries, unknowns, tensors, tiles and pointers. They hold shapes, not numbers.

Integer tiles do hold their numbers (numpy int64, broadcastable to the tile's shape), so that addresses and masks are exact.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "uint32": 4, "uint64": 8, "uint16": 2,
    "float8": 1, "float16": 2, "bfloat16": 2, "float32": 4, "tfloat32": 4, "float64": 8, "complex64": 8,
}  # fmt: skip
_ALIASES = {"float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32", "int1": "bool"}
_fresh = itertools.count()


def dtype_of(name: str) -> str | None:
    """The dtype that the last part of a dotted name stands for (``tl.float16``, ``torch.half``), or None."""
    short = name.removesuffix(".element_ty").rsplit(".", 1)[-1]
    short = "float8" if short.startswith("float8") else _ALIASES.get(short, short)
    return short if short in ITEM_BYTES else None


def is_float(dtype: str) -> bool:
    """Whether arithmetic of this dtype is floating point."""
    return dtype.startswith(("float", "bfloat", "tfloat", "complex"))


def promote(left: str, right: str) -> str:
    """Result dtype of arithmetic between two dtypes, near enough for counting bytes."""
    if is_float(left) != is_float(right):
        return left if is_float(left) else right
    if ITEM_BYTES[left] == ITEM_BYTES[right] and left != right and is_float(left):
        return "float32"
    return left if ITEM_BYTES[left] >= ITEM_BYTES[right] else right


class Unknown:
    """A value that could not be found out."""

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "?"


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Ref:
    """A dotted name of a library that stands for itself (``torch.nn.functional.gelu``)."""

    path: str


@dataclass
class Function:
    """A function of the file: its tree, the scope it closes over, and decorators by dotted name."""

    node: ast.FunctionDef | ast.Lambda
    scope: dict[str, Any]
    decorators: tuple[str, ...] = ()
    hints: dict[str, Any] = field(default_factory=dict)

    @property
    def kernel(self) -> str | None:
        """``triton`` or ``cutile`` for a device function, else None."""
        for name in self.decorators:
            if name.endswith((".jit", ".autotune", ".heuristics")) and "triton" in name:
                return "triton"
            if name in ("cuda.tile.kernel", "cuda.tile.function"):
                return "cutile"
        return None

    @property
    def compiled(self) -> bool:
        """Whether ``torch.compile`` was applied."""
        return "torch.compile" in self.decorators


@dataclass
class Bound:
    """A method or launcher with the value it belongs to."""

    target: Any
    name: str
    extra: Any = None


@dataclass
class Instance:
    """An object of a class of the file, or of a ``torch.nn`` module (then ``kind`` is its dotted name)."""

    kind: str
    attributes: dict[str, Any]
    definition: ast.ClassDef | None = None
    scope: dict[str, Any] = field(default_factory=dict)


@dataclass
class Class:
    """A class of the file."""

    node: ast.ClassDef
    scope: dict[str, Any]


class Tensor:
    """A torch tensor by shape, strides in elements, and dtype. Views share ``storage``."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str,
        strides: Sequence[int] | None = None,
        storage: int | None = None,
        high: int | None = None,
    ) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = dtype
        self.strides = tuple(strides) if strides is not None else contiguous_strides(self.shape)
        self.storage = next(_fresh) if storage is None else storage
        self.high = high
        """Upper bound of integer contents, where a random generator named one."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (not of the storage)."""
        return self.numel * ITEM_BYTES[self.dtype]

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in row-major order."""
        want = contiguous_strides(self.shape)
        return all(s == w for s, w, n in zip(self.strides, want, self.shape, strict=True) if n > 1)

    def view(self, shape: Sequence[int], strides: Sequence[int] | None = None) -> Tensor:
        """The same memory with another shape."""
        return Tensor(shape, self.dtype, strides, self.storage, self.high)

    def __repr__(self) -> str:
        return f"Tensor{list(self.shape)}:{self.dtype}"


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for n in reversed(tuple(shape)):
        strides.append(step)
        step *= max(int(n), 1)
    return tuple(reversed(strides))


class Tile:
    """A value inside a kernel. ``ints`` are its numbers where known; ``base`` makes it a pointer with element offsets."""

    __slots__ = ("base", "dtype", "ints", "shape")

    def __init__(self, shape: Sequence[int], dtype: str, ints: Ints | None = None, base: Tensor | None = None) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = dtype
        self.ints = ints
        self.base = base

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"Tile{list(self.shape)}:{self.dtype}{'*' if self.base is not None else ''}"


@dataclass
class Descriptor:
    """A tensor descriptor, block pointer or tiled view: a base, its extent, and the block it moves."""

    base: Tensor
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    offsets: tuple[int, ...] | None = None
    """Where a block pointer stands; None for descriptors, which are told at each load."""
    kind: str = "descriptor"


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """numpy's rule; where dimensions disagree the larger is taken, since nothing here may raise on a wrong program."""
    width = max(map(len, shapes), default=0)
    padded = [(1,) * (width - len(s)) + tuple(s) for s in shapes]
    return tuple(max(column) for column in zip(*padded, strict=True)) if padded else ()
