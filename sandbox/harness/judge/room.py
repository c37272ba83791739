"""How much of a device's memory a judge and its workers may take, where several judges share the device.

One judge times at a time, and timing needs much (pools of inputs and outputs for legs of calls): a tenth of the device in
inputs and outputs of one side, about three tenths in all. So that it is free when a judge's turn comes, pools are given back
after each comparison. The float64 runs of large workloads need much too: one judge makes them at a time (``Quiet.heavy``), in
parts of :func:`truth_bytes`. Beside these, little is held that is not in use:

- questions drawn ahead: :func:`ahead_bytes`;
- calls made back to back: :func:`burst_bytes`;
- what torch keeps for its next tensors, in the judge and in the reference's worker: :func:`kept_bytes`, while less than half of
  the device is free, and of a judge that is idle (``idle``);
- shared memory of the reference's worker, which is freed above that too.

A device that is full all the same is waited for, :data:`MEMORY_PATIENCE_S`; then comes another try (``Judge._with_room``).
"""

from __future__ import annotations

import torch

from tilecast.sandbox.harness.device_memory import give_back

_AHEAD_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}
_TRUTH_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}
_TRUTH_SHARE, _KEPT_SHARE, _AHEAD_SHARE, _HEAVY_SHARE = 0.5, 0.03, 1 / 16, 0.1
_BURST_SHARE = 0.15
MEMORY_PATIENCE_S = 20.0


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


def keep_little(device: torch.device, sharers: int) -> None:
    """Beside other judges, give back what torch keeps in this process above :func:`kept_bytes`."""
    over = kept_bytes(device, sharers)
    if over is not None:
        give_back(device, over)


def ahead_bytes(device: torch.device, sharers: int) -> int:
    """Bytes of questions that may lie ready before they are asked."""
    most = _AHEAD_BYTES[device.type]
    return most if device.type != "cuda" else min(most, int(_AHEAD_SHARE * device_bytes(device) / sharers))


def burst_bytes(device: torch.device, sharers: int, free: int) -> int:
    """Bytes that calls back to back may take, all in memory at once: half of what is free, or less than a share of all.

    Beside others it is of all, not of what happens to be free: they may begin with theirs a moment later.
    """
    if device.type != "cuda" or sharers <= 1:
        return free // 2
    return min(free // 2, int(_BURST_SHARE * device_bytes(device) / sharers))


def is_heavy(device: torch.device, sharers: int, call_bytes: int) -> bool:
    """Whether the float64 run of a call is made by one judge at a time, by the bytes of its inputs and outputs."""
    if device.type != "cuda" or sharers <= 1:
        return False
    return 16 * call_bytes > _HEAVY_SHARE * device_bytes(device) / sharers
