"""Where the reference's results come with its answer: asking for them, once their sizes are known, is a turn of its own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tilecast.sandbox.harness.arena import ALIGNMENT
from tilecast.sandbox.harness.judge.shared_memory import Region, SharedMemory
from tilecast.sandbox.harness.tensors import BadSpec, TensorSpec, packed
from tilecast.sandbox.harness.wire import Message

LANDING_BYTES = 4 << 20
"""All results of a question on a small workload; those of larger ones are asked for when there is room of their own."""


@dataclass
class Landing:
    """A region that is used again and again: what lies in it is copied out before the next request."""

    memory: SharedMemory
    _region: Region | None = None

    def offer(self) -> Message:
        """For a request whose results may come here."""
        if self._region is None:
            self._region = self.memory.allocate(LANDING_BYTES)
        return {"room": self._region.to_message()}

    def take(self, reply: Message, specs: list[TensorSpec]) -> list[Tensor] | None:
        """Private copies of what came; None if it is still to be asked for.

        Raises:
            BadSpec: if it cannot have come.
        """
        if reply.get("landed") is not True:
            return None
        offsets, total = packed(specs, ALIGNMENT)
        region = self._region
        if region is None or total > region.size:
            raise BadSpec(f"{total} bytes of results came where {LANDING_BYTES} fit")
        parts = [Region(region.arena, region.at + at, spec.extent) for at, spec in zip(offsets, specs, strict=True)]
        return [self.memory.copy_out(part, spec) for part, spec in zip(parts, specs, strict=True)]

    def give_back(self) -> None:
        """No region any more until the next offer: a whole arena may be freed with it."""
        if self._region is not None:
            self.memory.release([self._region])
            self._region = None
