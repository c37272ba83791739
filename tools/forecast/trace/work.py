"""What one program of a kernel does, added up over its (sampled) iterations: traffic, arithmetic, loops, access patterns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilecast.tools.forecast.trace.values import ITEM_BYTES, Ints, Tensor

SECTOR_BYTES = 32
"""Smallest unit that a memory transaction moves."""


@dataclass
class Access:
    """One load or store, per execution. ``run`` is the length of contiguous pieces in elements."""

    useful_bytes: float
    sector_bytes: float
    lanes: int
    run: int
    vector_bytes: int
    active: float


@dataclass
class Loop:
    """One loop as walked: trips, and what a single trip moves and multiplies."""

    trips: float
    depth: int
    load_bytes: float
    dot_flops: float
    stages: int | None
    specialised: bool


@dataclass
class Work:
    """Totals of one program, in bytes, operations and elements; ``weight`` is how often the current place is executed."""

    weight: float = 1.0
    load_bytes: float = 0.0
    store_bytes: float = 0.0
    load_sectors: float = 0.0
    store_sectors: float = 0.0
    lanes_loaded: float = 0.0
    lanes_wasted: float = 0.0
    vector_weighted: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    bulk_bytes: float = 0.0
    gathered_bytes: float = 0.0
    atomics: float = 0.0
    dots: float = 0.0
    dot_flops: float = 0.0
    float_ops: float = 0.0
    special_ops: float = 0.0
    double_ops: float = 0.0
    int_ops: float = 0.0
    reduced: float = 0.0
    reductions: float = 0.0
    shuffles: float = 0.0
    scans: float = 0.0
    largest_tile_bytes: float = 0.0
    largest_float_elements: float = 0.0
    widest_load_bytes: float = 0.0
    odd_tile: int = 0
    """Length of a tile that is no power of two, if there is one: tile compilers have none such."""
    dot_shape: tuple[int, int, int] | None = None
    dot_item_bytes: int = 0
    loops: list[Loop] = field(default_factory=list)
    by_storage: dict[int, float] = field(default_factory=dict)
    stored_storage: dict[int, float] = field(default_factory=dict)
    hints: set[str] = field(default_factory=set)

    def note_length(self, length: int) -> None:
        """A tile is made of so many elements along an axis."""
        if length & (length - 1):
            self.odd_tile = length

    def note_tile(self, elements: int, dtype: str) -> None:
        """Remember the largest tile that was made."""
        self.largest_tile_bytes = max(self.largest_tile_bytes, elements * ITEM_BYTES[dtype])
        if dtype.startswith(("float", "bfloat")):
            self.largest_float_elements = max(self.largest_float_elements, elements)

    def arithmetic(self, elements: int, dtype: str) -> None:
        """Count element-wise operations."""
        if dtype == "float64":
            self.double_ops += self.weight * elements
        elif dtype.startswith(("float", "bfloat", "tfloat")):
            self.float_ops += self.weight * elements
        else:
            self.int_ops += self.weight * elements

    def load(self, base: Tensor, access: Access, bulk: bool = False, gathered: bool = False) -> None:
        """Count one load."""
        w = self.weight
        self.loads += w
        self.load_bytes += w * access.useful_bytes
        self.load_sectors += w * access.sector_bytes
        self.lanes_loaded += w * access.lanes
        self.lanes_wasted += w * access.lanes * (1 - access.active)
        self.vector_weighted += w * access.useful_bytes * access.vector_bytes
        self.widest_load_bytes = max(self.widest_load_bytes, access.useful_bytes)
        self.by_storage[base.storage] = self.by_storage.get(base.storage, 0.0) + w * access.useful_bytes
        self.bulk_bytes += w * access.useful_bytes if bulk else 0.0
        self.gathered_bytes += w * access.useful_bytes if gathered else 0.0

    def store(self, base: Tensor, access: Access, bulk: bool = False) -> None:
        """Count one store."""
        w = self.weight
        self.stores += w
        self.store_bytes += w * access.useful_bytes
        self.store_sectors += w * access.sector_bytes
        self.stored_storage[base.storage] = self.stored_storage.get(base.storage, 0.0) + w * access.useful_bytes
        self.bulk_bytes += w * access.useful_bytes if bulk else 0.0

    def dot(self, m: int, n: int, k: int, dtype: str, batch: int = 1) -> None:
        """Count one tile product."""
        flops = 2.0 * m * n * k * batch * self.weight
        self.dots += self.weight
        self.dot_flops += flops
        if self.dot_shape is None or m * n * k > math.prod(self.dot_shape):
            self.dot_shape, self.dot_item_bytes = (m, n, k), ITEM_BYTES[dtype]


def pattern(offsets: Ints | None, shape: Sequence[int], item_bytes: int, mask: Ints | None) -> Access:
    """How a tile of addresses meets memory: useful bytes, bytes of the sectors touched, contiguous run, vector width.

    ``offsets`` are element offsets broadcastable to ``shape``; unknown ones count as scattered. Strides are read from the
    first row of each axis, so an irregular axis is taken by the median of its steps.
    """
    lanes = math.prod(shape)
    active = 1.0 if mask is None else float(np.broadcast_to(mask != 0, shape).mean()) if mask.size <= lanes else 1.0
    if offsets is None:
        return Access(lanes * item_bytes * active, lanes * SECTOR_BYTES * active, lanes, 1, item_bytes, active)
    grid = offsets.reshape((1,) * (len(shape) - offsets.ndim) + offsets.shape)
    distinct, run, smallest = lanes, 1, 0
    aligned = int(grid.flat[0]) * item_bytes
    pending: list[tuple[int, int]] = []
    for axis, size in enumerate(shape):
        if size <= 1:
            continue
        if grid.shape[axis] == 1:
            distinct //= size
            continue
        line = np.moveaxis(grid, axis, 0).reshape(grid.shape[axis], -1)[:, 0]
        steps = np.abs(np.diff(line[:65]))
        step = int(np.median(steps))
        if step == 0:
            repeat = max(1, int(np.count_nonzero(steps == 0) + 1) // max(1, int(np.count_nonzero(steps)) + 1))
            distinct = max(1, distinct // min(repeat, size))
            continue
        pending.append((step, size))
        if step != 1:
            aligned = math.gcd(aligned, int(np.gcd.reduce(steps)) * item_bytes)
    for step, size in sorted(pending):
        if step == run:
            run *= size
        elif smallest == 0:
            smallest = step
    distinct_bytes = distinct * item_bytes * active
    if run > 1:
        pieces = distinct / run
        sectors = pieces * max(SECTOR_BYTES, math.ceil(run * item_bytes / SECTOR_BYTES) * SECTOR_BYTES) * active
    else:
        sectors = distinct * min(SECTOR_BYTES, max(smallest, 1) * item_bytes) * active
    vector = math.gcd(aligned, 16) if run * item_bytes >= 16 else math.gcd(aligned, run * item_bytes)
    return Access(distinct_bytes, max(sectors, distinct_bytes), lanes, run, max(item_bytes, vector), active)
