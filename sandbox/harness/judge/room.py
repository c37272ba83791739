"""How much of a device's memory a judge and its workers may take, where several judges share the device.

One judge times at a time, and timing needs the most (pools of inputs and outputs for legs of calls): a tenth of the device in
inputs and outputs of one side, about three tenths in all. So that it is free when a judge's turn comes, pools are given back
after each comparison, and beside them every judge keeps to its share:

- the reference's worker, whose float64 runs are the largest: :func:`reference_bytes`, a limit on torch's allocator, which
  gives back what it keeps before it fails; a float64 run that does not fit is made in parts;
- questions drawn ahead: :func:`ahead_bytes`.
"""

from __future__ import annotations

import torch

_AHEAD_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
_TRUTH_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}
_REFERENCE_SHARE, _TRUTH_SHARE, _AHEAD_SHARE = 0.3, 0.75, 1 / 16


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
