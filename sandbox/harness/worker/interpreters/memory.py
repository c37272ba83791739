"""The memory that one launch may touch: the storages of its tensors, and nothing else.

Reads and writes go through numpy views of those storages, so an address outside all of them is an error with a name
instead of silence or a segmentation fault.
"""

from __future__ import annotations

import ctypes
import gc
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .errors import OutOfBounds

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Region:
    """One storage: first address, end address, a name for messages."""

    start: int
    end: int
    name: str


def region_of(tensor: torch.Tensor, name: str) -> Region | None:
    """The storage behind a tensor; None where it has no bytes."""
    stored = tensor.untyped_storage()
    start, size = stored.data_ptr(), stored.nbytes()
    return Region(start, start + size, name) if start and size else None


@dataclass
class Memory:
    """The regions of the launch that is running, sorted by address."""

    where: Callable[[], str] = lambda: ""
    """Says which kernel and program are running, for messages."""
    regions: list[Region] = field(default_factory=list)
    any_tensor: bool = False
    """True once the kernel made a pointer of an integer: then every live tensor counts."""

    def __post_init__(self) -> None:
        self._views: dict[tuple[int, str], Array] = {}
        self.enter(self.regions)

    def enter(self, regions: list[Region]) -> None:
        """Allow exactly these regions."""
        merged: dict[int, Region] = {}
        for region in regions:
            known = merged.get(region.start)
            if known is None or region.end > known.end:
                merged[region.start] = region
        self.regions = sorted(merged.values(), key=lambda region: region.start)
        self._starts = [region.start for region in self.regions]
        self._views.clear()

    def admit_live_tensors(self) -> None:
        """Allow every tensor that lives in this process: a kernel that follows addresses out of a table may name any."""
        if self.any_tensor:
            return
        self.any_tensor = True
        found = []
        for item in gc.get_objects():
            if type(item) in (torch.Tensor, torch.nn.Parameter) and item.device.type == "cpu":
                region = region_of(item, "tensor")
                if region is not None:
                    found.append(region)
        self.enter([*self.regions, *found])

    def _single_region(self, low: int, high: int) -> int:
        """Index of the region that holds [low, high), or -1."""
        index = bisect_right(self._starts, low) - 1
        return index if index >= 0 and high <= self.regions[index].end else -1

    def _view(self, index: int, dtype: np.dtype[Any]) -> Array:
        key = (index, dtype.str)
        view = self._views.get(key)
        if view is None:
            region = self.regions[index]
            octets = (ctypes.c_uint8 * (region.end - region.start)).from_address(region.start)
            whole = (region.end - region.start) // dtype.itemsize * dtype.itemsize
            view = np.frombuffer(memoryview(octets), dtype=np.uint8)[:whole].view(dtype)
            self._views[key] = view
        return view

    def _locate(self, addresses: Array, itemsize: int, kind: str) -> list[tuple[int, Array]]:
        """Split in-bounds addresses by region as (region, positions).

        Raises:
            OutOfBounds: naming the kernel, how many elements, and the first of them.
        """
        low, high = int(addresses.min()), int(addresses.max()) + itemsize
        index = self._single_region(low, high)
        if index >= 0:
            return [(index, np.arange(addresses.size))]
        starts = np.array(self._starts, dtype=np.uint64)
        ends = np.array([region.end for region in self.regions], dtype=np.uint64)
        owner = np.searchsorted(starts, addresses, side="right").astype(np.int64) - 1
        bad = owner < 0
        if len(ends):
            bad |= addresses + np.uint64(itemsize) > ends[np.maximum(owner, 0)]
        if bad.any():
            raise OutOfBounds(self._complaint(addresses, bad, owner, itemsize, kind))
        return [(int(i), np.flatnonzero(owner == i)) for i in np.unique(owner)]

    def _complaint(self, addresses: Array, bad: Array, owner: Array, itemsize: int, kind: str) -> str:
        first = int(np.flatnonzero(bad)[0])
        address, nearest = int(addresses[first]), max(int(owner[first]), 0)
        text = f"{self.where()}: {kind} of {int(bad.sum())} element(s) outside every tensor of the launch"
        if not self.regions:
            return text
        region = self.regions[nearest]
        offset = (address - region.start) // itemsize
        return f"{text}; the first is element {offset} of {region.name}, which has {(region.end - region.start) // itemsize}"

    def read(self, addresses: Array, dtype: np.dtype[Any]) -> Array:
        """Values at flat uint64 addresses."""
        if addresses.size == 0:
            return np.empty(0, dtype)
        low, high = int(addresses.min()), int(addresses.max()) + dtype.itemsize
        index = self._single_region(low, high)
        if index >= 0:
            return self._gather(index, addresses, dtype)
        out = np.empty(addresses.shape, dtype)
        for owner, positions in self._locate(addresses, dtype.itemsize, "load"):
            out[positions] = self._gather(owner, addresses[positions], dtype)
        return out

    def write(self, addresses: Array, values: Array) -> None:
        """Store flat values at flat uint64 addresses."""
        if addresses.size == 0:
            return
        low, high = int(addresses.min()), int(addresses.max()) + values.dtype.itemsize
        index = self._single_region(low, high)
        if index >= 0:
            self._scatter(index, addresses, values)
            return
        for owner, positions in self._locate(addresses, values.dtype.itemsize, "store"):
            self._scatter(owner, addresses[positions], values[positions])

    def check(self, addresses: Array, itemsize: int, kind: str) -> None:
        """Raise OutOfBounds unless every address lies in a region."""
        if addresses.size:
            self._locate(addresses, itemsize, kind)

    def _elements(self, index: int, addresses: Array, itemsize: int) -> Array | None:
        """Element numbers within a region, or None where an address is not a multiple of the size."""
        offsets = (addresses - np.uint64(self.regions[index].start)).view(np.int64)
        if itemsize == 1:
            return offsets
        if (offsets & (itemsize - 1)).any():
            return None
        return offsets >> (itemsize.bit_length() - 1)

    def _gather(self, index: int, addresses: Array, dtype: np.dtype[Any]) -> Array:
        elements = self._elements(index, addresses, dtype.itemsize)
        if elements is None:
            raise OutOfBounds(f"{self.where()}: load at an address that is not a multiple of {dtype.itemsize} bytes")
        return np.asarray(self._view(index, dtype)[elements])

    def _scatter(self, index: int, addresses: Array, values: Array) -> None:
        elements = self._elements(index, addresses, values.dtype.itemsize)
        if elements is None:
            size = values.dtype.itemsize
            raise OutOfBounds(f"{self.where()}: store at an address that is not a multiple of {size} bytes")
        self._view(index, values.dtype)[elements] = values
