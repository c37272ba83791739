"""How much of a device's memory a judge and its workers may take, where several judges share the device.

One judge times at a time, and timing needs the most (pools of inputs and outputs for legs of calls): a tenth of the device in
inputs and outputs of one side, about three tenths in all. So that it is free when a judge's turn comes, pools are given back
after each comparison, and beside them every judge keeps to its share:

- the reference's worker, whose float64 runs are the largest: :func:`reference_bytes`, a limit on torch's allocator, which
  gives back what it keeps before it fails; a float64 run that does not fit is made in parts;
- questions drawn ahead: :func:`ahead_bytes`;
- what torch keeps in the judge for its next tensors: :func:`keep_little`.
"""

from __future__ import annotations

import contextlib

import torch

_AHEAD_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
_TRUTH_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}
_REFERENCE_SHARE, _TRUTH_SHARE, _AHEAD_SHARE, _KEPT_SHARE = 0.3, 0.75, 1 / 16, 0.2


def device_bytes(device: torch.device) -> int:
    """All memory of a CUDA device."""
    return int(torch.cuda.get_device_properties(device).total_memory)


def reference_bytes(device: torch.device, sharers: int) -> int | None:
    """Bytes that the reference's worker may have from the device through torch; None: as many as there are."""
    if device.type != "cuda" or sharers <= 1:
        return None
    return int(_REFERENCE_SHARE * device_bytes(device) / sharers)


def truth_bytes(device: torch.device, sharers: int) -> int:
    """Bytes that one float64 run may take by estimate; a larger one is made in parts."""
    limit = reference_bytes(device, sharers)
    most = _TRUTH_BYTES[device.type]
    return most if limit is None else min(most, int(_TRUTH_SHARE * limit))


def ahead_bytes(device: torch.device, sharers: int) -> int:
    """Bytes of questions that may lie ready before they are asked."""
    most = _AHEAD_BYTES[device.type]
    return most if device.type != "cuda" else min(most, int(_AHEAD_SHARE * device_bytes(device) / sharers))


def keep_little(device: torch.device, sharers: int) -> None:
    """Have torch give memory back to the device that this process has not used lately, from a fifth of its share on.

    A torch without that setting keeps what it has until an allocation fails.
    """
    if device.type != "cuda" or sharers <= 1:
        return
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):
        # The threshold counts from the limit, and only if one is set.
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch._C._accelerator_setAllocatorSettings(f"garbage_collection_threshold:{_KEPT_SHARE / sharers:.4f}")
