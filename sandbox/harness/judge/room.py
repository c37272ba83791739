"""How much of a device's memory a judge and its workers may take, where several judges share the device.

One judge times at a time, and timing needs the most (pools of inputs and outputs for legs of calls): a tenth of the device in
inputs and outputs of one side, about three tenths in all. So that it is free when a judge's turn comes, pools are given back
after each comparison, and beside them every judge keeps to its share:

- the reference's worker, whose float64 runs are the largest, makes them in parts of :func:`truth_bytes`;
- questions drawn ahead: :func:`ahead_bytes`;
- what torch keeps for its next tensors, in the judge and in the reference's worker: :func:`kept_bytes`.

These are no limits: a device that is full all the same is answered by another try (``Judge._with_room``).
"""

from __future__ import annotations

import torch

_AHEAD_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
_TRUTH_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}
_TRUTH_SHARE, _KEPT_SHARE, _AHEAD_SHARE = 0.22, 0.12, 1 / 16


def device_bytes(device: torch.device) -> int:
    """All memory of a CUDA device."""
    return int(torch.cuda.get_device_properties(device).total_memory)


def truth_bytes(device: torch.device, sharers: int) -> int:
    """Bytes that one float64 run may take by estimate; a larger one is made in parts."""
    most = _TRUTH_BYTES[device.type]
    if device.type != "cuda" or sharers <= 1:
        return most
    return min(most, int(_TRUTH_SHARE * device_bytes(device) / sharers))


def kept_bytes(device: torch.device, sharers: int) -> int | None:
    """Bytes that torch may keep unused in a process; None: as many as it likes."""
    if device.type != "cuda" or sharers <= 1:
        return None
    return int(_KEPT_SHARE * device_bytes(device) / sharers)


def ahead_bytes(device: torch.device, sharers: int) -> int:
    """Bytes of questions that may lie ready before they are asked."""
    most = _AHEAD_BYTES[device.type]
    return most if device.type != "cuda" else min(most, int(_AHEAD_SHARE * device_bytes(device) / sharers))
