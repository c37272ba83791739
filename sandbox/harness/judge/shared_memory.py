"""Regions of the judge's arenas: inputs written, room for outputs, private copies taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness import arena
from tilecast.sandbox.harness.judge.failure import OutOfDeviceMemory
from tilecast.sandbox.harness.tensors import TensorSpec, encode_tree, place
from tilecast.sandbox.harness.wire import Message

_LEAST_ARENA = {"cpu": 8 << 20, "cuda": 256 << 20}
POISON = 0xFF
_POLL_S = 0.25


@dataclass(frozen=True)
class Region:
    """``size`` bytes at ``at`` of arena number ``arena``."""

    arena: int
    at: int
    size: int

    def to_message(self) -> Message:
        """As plain JSON."""
        return {"arena": self.arena, "at": self.at, "size": self.size}


@dataclass
class Prepared:
    """One set of inputs in shared memory, what they hold by the judge's own knowledge, and room for the outputs."""

    tree: Message
    specs: list[TensorSpec]
    regions: list[Region]
    values: list[Tensor]
    expected: list[TensorSpec]
    outputs: list[Region]
    key: str | None = None

    def to_message(self) -> Message:
        """The part of a request that names inputs and output spaces."""
        tensors = []
        for index, (spec, region) in enumerate(zip(self.specs, self.regions, strict=True)):
            tensors.append({**region.to_message(), **spec.to_message()})
            if self.key is not None:
                tensors[-1]["object"] = f"{self.key}.{index}"
        spaces = [
            {**region.to_message(), "expected": spec.elements * spec.dtype.itemsize}
            for region, spec in zip(self.outputs, self.expected, strict=True)
        ]
        return {"inputs": self.tree, "tensors": tensors, "spaces": spaces}


def room_for(size: int) -> int:
    """Bytes set aside for ``size``: steps of an eighth of a power of two, so that sizes a little apart take turns in one place."""
    step = max(arena.ALIGNMENT, 1 << max(0, max(size, 1).bit_length() - 4))
    return -(-max(size, 1) // step) * step


@dataclass
class _Block:
    """An arena, how far it is handed out, and how many of its regions are in use."""

    owner: arena.Arena
    used: int = 0
    live: int = 0


@dataclass
class SharedMemory:
    """Allocator over arenas that are announced to the worker as they are made, and withdrawn by :meth:`trim`."""

    device: torch.device
    announce: Callable[[arena.Arena], None]
    withdraw: Callable[[list[int]], None]
    patience_s: float = 0.0
    """How long to wait for memory that others on the device may give back."""
    _blocks: list[_Block | None] = field(default_factory=list)
    _free: dict[int, list[Region]] = field(default_factory=dict)
    _keys: int = 0
    _unsettled: bool = False
    """Whether the device may still be writing or reading here: :meth:`settle` waits before anybody else does."""

    @property
    def held_bytes(self) -> int:
        """What all arenas take."""
        return sum(block.owner.size for block in self._blocks if block is not None)

    def allocate(self, size: int) -> Region:
        """A region of ``size`` bytes, aligned for every dtype.

        Raises:
            OutOfDeviceMemory: if there is not so much memory.
        """
        room = room_for(size)
        if self._free.get(room):
            found = self._free[room].pop()
            reused = self._block(found)
            reused.live += 1
            if size != found.size:  # what was longer must not be read on behind the end
                reused.owner.memory(found.at + size, room - size).fill_(POISON)
                self._unsettled = True
            return Region(found.arena, found.at, size)
        for index, block in enumerate(self._blocks):
            if block is not None and block.used + room <= block.owner.size:
                block.used, block.live = block.used + room, block.live + 1
                return Region(index, block.used - room, size)
        new = self._new_arena(max(room, _LEAST_ARENA[self.device.type]))
        try:
            self.announce(new)
        except BaseException:  # the worker did not take it: it numbers what it has as this list does
            new.close()
            raise
        self._blocks.append(_Block(new, room, 1))
        return Region(len(self._blocks) - 1, 0, size)

    def _new_arena(self, size: int) -> arena.Arena:
        end, emptied = time.monotonic() + self.patience_s, False
        while True:
            try:
                return arena.create(size, self.device)
            except arena.ArenaError as error:
                if self.device.type != "cuda":
                    raise OutOfDeviceMemory(str(error)) from error
                if emptied and time.monotonic() >= end:
                    free, total = (count >> 20 for count in torch.cuda.mem_get_info(self.device))
                    reason = f"{size >> 20} MiB of device memory are needed, {free} of {total} MiB are free ({error})"
                    raise OutOfDeviceMemory(reason) from error
            if emptied:
                time.sleep(_POLL_S)
            else:  # what torch keeps for this process's next tensors is memory that nobody uses
                torch.cuda.empty_cache()
                emptied = True

    def release(self, regions: Iterable[Region]) -> None:
        """Give regions back (nothing, if all is closed already)."""
        for region in regions if self._blocks else ():
            self._block(region).live -= 1
            self._free.setdefault(room_for(region.size), []).append(region)

    def trim(self) -> None:
        """Free every arena of which no region is in use."""
        idle = {index for index, block in enumerate(self._blocks) if block is not None and not block.live}
        if not idle:
            return
        self.settle()
        self.withdraw(sorted(idle))
        for index in idle:
            block, self._blocks[index] = self._blocks[index], None
            assert block is not None
            block.owner.close()
        self._free = {room: [r for r in regions if r.arena not in idle] for room, regions in self._free.items()}

    def _block(self, region: Region) -> _Block:
        block = self._blocks[region.arena]
        assert block is not None, "a region of an arena that was freed"
        return block

    def memory(self, region: Region) -> Tensor:
        """The region's bytes."""
        return self._block(region).owner.memory(region.at, region.size)

    def write(self, region: Region, spec: TensorSpec, value: Tensor) -> None:
        """Copy a value in, with the strides of ``spec``; bytes between its elements become poison."""
        memory, self._unsettled = self.memory(region), True
        if spec.extent > spec.elements * spec.dtype.itemsize:
            memory.fill_(POISON)
        place(memory, spec).copy_(value)

    def copy_out(self, region: Region, spec: TensorSpec) -> Tensor:
        """A private copy of a tensor that lies in a region."""
        self._unsettled = True
        return place(self.memory(region)[: spec.extent].clone(), spec)

    @contextmanager
    def lent(self, tensors: Sequence[Tensor]) -> Iterator[list[Message]]:
        """Put tensors into regions for the time of one request; yields their descriptions."""
        specs = [TensorSpec.dense(tuple(item.shape), item.dtype) for item in tensors]
        regions = [self.allocate(spec.extent) for spec in specs]
        for region, spec, value in zip(regions, specs, tensors, strict=True):
            self.write(region, spec, value)
        try:
            yield [{**r.to_message(), **s.to_message()} for r, s in zip(regions, specs, strict=True)]
        finally:
            self.release(regions)

    def prepare(
        self,
        inputs: Sequence[Any],
        expected: Sequence[TensorSpec],
        layouts: Sequence[TensorSpec | None],
        *,
        reuse_objects: bool,
    ) -> Prepared:
        """See ``Session.prepare``."""
        tensors: list[Tensor] = []
        tree = encode_tree(list(inputs), tensors)
        specs = []
        for index, value in enumerate(tensors):
            wanted = layouts[index] if index < len(layouts) else None
            specs.append(wanted or TensorSpec.kept(value))
        regions = [self.allocate(spec.extent) for spec in specs]
        dense = [TensorSpec.dense(item.shape, item.dtype) for item in expected]
        room = self.room(dense)
        self._keys += 1
        key = f"k{self._keys}" if reuse_objects else None
        prepared = Prepared(tree, specs, regions, list(tensors), dense, room, key)
        self._write_all(prepared, tensors)
        return prepared

    def room(self, specs: Iterable[TensorSpec]) -> list[Region]:
        """A region for each tensor, contents undefined."""
        return [self.allocate(spec.extent) for spec in specs]

    def refill(self, prepared: Prepared, inputs: Sequence[Any]) -> None:
        """See ``Session.refill``."""
        tensors: list[Tensor] = []
        prepared.tree = encode_tree(list(inputs), tensors)
        if [(s.shape, s.dtype) for s in prepared.specs] != [(tuple(t.shape), t.dtype) for t in tensors]:
            raise ValueError("a refill must have the shapes and dtypes of what it replaces")
        prepared.values = list(tensors)
        self._write_all(prepared, tensors)

    def _write_all(self, prepared: Prepared, tensors: Sequence[Tensor]) -> None:
        for region, spec, value in zip(prepared.regions, prepared.specs, tensors, strict=True):
            self.write(region, spec, value)

    def inputs_now(self, prepared: Prepared) -> list[Tensor]:
        """What the inputs hold now: private copies."""
        pairs = zip(prepared.regions, prepared.specs, strict=True)
        return [self.copy_out(region, spec) for region, spec in pairs]

    def poison_outputs(self, prepared: Prepared) -> None:
        """Fill the room for outputs with 0xFF, which is NaN in every floating format."""
        self.poison(prepared.outputs)

    def poison(self, regions: Iterable[Region]) -> None:
        """Fill regions with 0xFF."""
        for region in regions:
            self.memory(region).fill_(POISON)
        self._unsettled = True

    def read_output(self, message: Message, regions: Sequence[Region], index: int) -> Tensor | None:
        """A private copy of one output as the worker says it lies in its room, one of ``regions``; None if it brought no bytes.

        Raises:
            BadSpec: if the description makes no sense.
        """
        if "placed" not in message or index >= len(regions):
            return None
        spec = TensorSpec.from_message(message["placed"])
        region = regions[index]
        return self.copy_out(region, spec) if spec.extent <= region.size else None

    def discard(self, prepared: Prepared) -> None:
        """Give the regions of a set of inputs back."""
        self.release([*prepared.regions, *prepared.outputs])

    def settle(self) -> None:
        """Wait until all is written, and what was read is read: once before a request, however much was done for it.

        The reads matter where the worker is next to write: a copy that is still to be made would be of what comes later.
        """
        if self.device.type == "cuda" and self._unsettled:
            torch.cuda.synchronize(self.device)
        self._unsettled = False

    def close(self) -> None:
        """Free all arenas."""
        if self._blocks:
            self.settle()
        for block in self._blocks:
            if block is not None:
                block.owner.close()
        self._blocks.clear()
        self._free.clear()
