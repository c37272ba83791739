"""What torch keeps of a device's memory in a process, for judge and workers alike."""

from __future__ import annotations

import contextlib

import torch


def keep_little(device: torch.device, kept_bytes: int) -> None:
    """From so many bytes on torch gives back to the device what this process has not used lately, instead of keeping it.

    No limit: what is needed is had. A torch without that setting keeps what it has until an allocation fails.
    """
    total = torch.cuda.get_device_properties(device).total_memory
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):
        # The threshold is a fraction of the process's limit, and counts only where one is set.
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        share = min(0.9, max(0.01, kept_bytes / total))
        torch._C._accelerator_setAllocatorSettings(f"garbage_collection_threshold:{share:.4f}")
