"""Free memory filled with a pattern before a call, so that what is returned unwritten is seen to be.

Byte 0xFF reads as NaN in every floating format; another byte gives ordinary numbers. A right kernel gives the same answer
over both. glibc itself can fill what it hands out with any byte but 0xFF (it takes the complement, and 0 is "off").
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import torch

from tilecast.sandbox.harness import syscalls
from tilecast.sandbox.harness.arena import fill_on_device

_LARGEST_BYTES = 1 << 28
_COPIES = 3
_MOST_BYTES = 4 << 30
"""Written in one call, about a millisecond of an H200: where more lies free, each call does another part of it."""
_FILL = torch.Tensor.fill_
_SNAPSHOT = getattr(torch._C, "_cuda_memorySnapshot", None)
"""What ``torch.cuda.memory_snapshot`` asks; torch built for CPUs has none."""
_STREAM = torch.cuda.current_stream
_COMMON_POOL = (0, 0)
_ORDER = random.Random()


def fill_free_memory(byte: int, spaces: list[dict[str, Any]], device: torch.device) -> None:
    """Fill blocks of the outputs' sizes with ``byte`` and free them again: the allocator hands them out next."""
    if device.type == "cpu":
        syscalls.malloc_perturb(byte ^ 0xFF)
    sizes = {int(space.get("expected", space["size"])) for space in spaces}
    with torch._C.DisableTorchFunction():
        for size in sorted(sizes):
            if 0 < size <= _LARGEST_BYTES:
                blocks = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(_COPIES)]
                for block in blocks:
                    _FILL(block, byte)
                del blocks
    if device.type == "cuda":
        _fill_cached_blocks(byte, device)


def _fill_cached_blocks(byte: int, device: torch.device) -> None:
    """Write over what the caching allocator holds free, where it lies.

    Taking such blocks from the allocator instead would make it ask the device for more, at every call.
    """
    if _SNAPSHOT is None:
        return
    stream = _STREAM().cuda_stream
    for address, size in some_of(free_blocks(_SNAPSHOT(None)["segments"], device.index or 0, stream)):
        fill_on_device(address, byte, size, stream)


def free_blocks(snapshot: Iterable[dict[str, Any]], device: int, stream: int) -> list[tuple[int, int]]:
    """Address and bytes of the blocks that the allocator would hand out on a stream, from a snapshot's segments.

    Not of other streams, whose work may not be over, nor of private pools: what is free there a replayed graph still uses.
    """
    found = []
    for segment in snapshot:
        here = segment["device"] == device and segment["stream"] == stream
        if not here or tuple(segment.get("segment_pool_id", _COMMON_POOL)) != _COMMON_POOL:
            continue
        address = int(segment["address"])
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                found.append((int(block.get("address", address)), int(block["size"])))
            address += int(block["size"])
    return found


def some_of(blocks: list[tuple[int, int]], most_bytes: int = _MOST_BYTES) -> list[tuple[int, int]]:
    """All of them, or so many bytes of them in random order: each has its turn at some call."""
    if sum(size for _, size in blocks) <= most_bytes:
        return blocks
    left, found = most_bytes, []
    for address, size in _ORDER.sample(blocks, len(blocks)):
        found.append((address, min(size, left)))
        left -= found[-1][1]
        if left <= 0:
            break
    return found
