"""The judge's arenas as a worker sees them, and tensors over them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.arena import Arena
from tilecast.sandbox.harness.tensors import BadSpec, TensorSpec, place
from tilecast.sandbox.harness.worker.export import Space

_DATA_PTR = torch._C.TensorBase.data_ptr


class Memory:
    """Arenas in the order in which the judge announced them. A region is ``{"arena", "at", "size"}`` in bytes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._arenas: list[Arena | None] = []

    def attach(self, arena: Arena) -> None:
        """Add the next one."""
        self._arenas.append(arena)

    def detach(self, numbers: list[int]) -> None:
        """Let go of arenas that the judge is about to free; their numbers are not used again."""
        for number in numbers:
            owner, self._arenas[number] = self._arenas[number], None
            if owner is not None:
                owner.close()

    def bytes_of(self, region: dict[str, Any]) -> Tensor:
        """A region's bytes.

        Raises:
            BadSpec: if there is no such region.
        """
        index, at, size = int(region["arena"]), int(region["at"]), int(region["size"])
        owner = self._arenas[index] if 0 <= index < len(self._arenas) else None
        if owner is None or at < 0 or size < 0 or at + size > owner.size:
            raise BadSpec("a region outside of the shared memory")
        return owner.memory(at, size)

    def tensors(self, items: list[dict[str, Any]]) -> list[Tensor]:
        """Tensors over regions: each item is a region with a tensor's spec."""
        return [place(self.bytes_of(item), TensorSpec.from_message(item)) for item in items]

    def space(self, region: dict[str, Any]) -> Space:
        """A region to copy one output into."""
        memory = self.bytes_of(region)
        return Space(_DATA_PTR(memory) if memory.numel() else 0, int(region["size"]))
