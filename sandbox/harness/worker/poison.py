"""Free memory filled with a pattern before a call, so that what is returned unwritten is seen to be.

Byte 0xFF reads as NaN in every floating format; another byte gives ordinary numbers. A right kernel gives the same answer
over both. glibc itself can fill what it hands out with any byte but 0xFF (it takes the complement, and 0 is "off").
"""

from __future__ import annotations

from typing import Any

import torch

from tilecast.sandbox.harness import syscalls
from tilecast.sandbox.harness.device_memory import cached_bytes

_LARGEST_BYTES = 1 << 28
_COPIES = 3
_SMALLEST_BYTES, _MOST_BLOCKS = 1 << 21, 24
_FILL = torch.Tensor.fill_


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
    """Take what the caching allocator holds free, in halving sizes, fill it, and give it back."""
    reserved, allocated = cached_bytes(device)
    free, size = reserved - allocated, min(reserved - allocated, _LARGEST_BYTES * 4)
    taken: list[torch.Tensor] = []
    while size >= _SMALLEST_BYTES and len(taken) < _MOST_BLOCKS:
        if free < size:
            size //= 2
            continue
        try:
            block = torch.empty(size, dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError:
            return
        _FILL(block, byte)
        taken.append(block)
        free -= size
        grown = cached_bytes(device)[0]
        if grown > reserved:
            reserved, size = grown, size // 2  # nothing free of this size: it came fresh from the device
