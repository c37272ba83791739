"""What torch keeps of a device's memory in a process, for judge and workers alike."""

from __future__ import annotations

import torch


def cached_bytes(device: torch.device) -> tuple[int, int]:
    """Bytes that the caching allocator has from the device, and those of them in use.

    Read from the allocator's own table: ``torch.cuda.memory_reserved`` makes a hundred named figures of it each time.
    """
    table = torch._C._cuda_memoryStats(device.index or 0)
    return table["reserved_bytes"]["all"]["current"], table["allocated_bytes"]["all"]["current"]


def is_roomy(device: torch.device) -> bool:
    """Whether over half of a CUDA device's memory is free: giving memory back, and getting it again, takes time."""
    if device.type != "cuda":
        return False
    free, total = torch.cuda.mem_get_info(device)
    return 2 * free > total


def give_back(device: torch.device, over_bytes: int, *, idle: bool = False) -> bool:
    """Give what torch keeps for the next tensors back to the device, if it is more than so many bytes and others may need it:
    now, or (who is ``idle`` will not look again) later.

    Returns:
        Whether it was given back.
    """
    reserved, allocated = cached_bytes(device)
    if reserved - allocated <= over_bytes or (not idle and is_roomy(device)):
        return False
    torch.cuda.empty_cache()
    return True
