"""Whose doing it is that a device is full: who holds so much of it that he cannot be checked is to blame himself."""

from __future__ import annotations

import time

import torch

from tilecast.sandbox.harness.judge.failure import OutOfDeviceMemory, Rejected, WorkerFailed
from tilecast.sandbox.harness.judge.room import device_bytes
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.study import free_bytes

_SHARE = 0.25
"""Of the device: what a worker holds beyond this, with what it was given counted apart, is no ordinary working space."""
_FREED_S, _POLL_S = 3.0, 0.1
"""A driver takes a moment to clear up after a process that was killed."""


def is_want_of_memory(error: Exception) -> bool:
    """Whether the judge, or a helper of its own, ran out of device memory."""
    if isinstance(error, WorkerFailed):
        return isinstance(error.of_a_helper(), OutOfDeviceMemory)
    return isinstance(error, OutOfDeviceMemory | torch.OutOfMemoryError)


def refuse_hog(session: Session, workload: str) -> None:
    """After want of memory: end the candidate's worker, and see what the device gains by that.

    Raises:
        Rejected: OUT_OF_MEMORY, if that is more than a quarter of the device.
    """
    device = session.options.device
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()
    total, before = device_bytes(device), free_bytes(device)
    session.kill()  # the judge's own shared memory stays
    end = time.monotonic() + _FREED_S
    while (held := free_bytes(device) - before) <= _SHARE * total and time.monotonic() < end:
        time.sleep(_POLL_S)
    if held > _SHARE * total:
        reason = (
            f"held {held >> 20} MiB of the device's {total >> 20} MiB beside its inputs and outputs, which left no room to "
            "check what it computes: free what is not needed, and keep no results"
        )
        raise Rejected("OUT_OF_MEMORY", f"workload {workload!r}: {reason}" if workload else reason, "", workload)
