"""Builds that a candidate starts for itself (``torch.utils.cpp_extension``): bounded in time, memory and waiting.

The folder they go to is the candidate's own (``TORCH_EXTENSIONS_DIR``, set by the fork server) and outlives the worker, so
what one worker built the next one loads. Called before the candidate is imported.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Any

LOCK_WAIT_S = 120.0
_MEMORY_PER_JOB_BYTES = 3 << 30
"""One translation unit with the torch headers takes 1.5 to 2.5 GiB of g++ or nvcc."""
_POLL_S = 0.05


class LockTimeout(RuntimeError):
    """Another build of the same extension did not end in time."""


def prepare() -> None:
    """Set what builds of this process obey, and replace torch's lock file by one that dies with its owner."""
    os.environ["MAX_JOBS"] = str(jobs_for(available_memory_bytes(), os.cpu_count() or 1))
    # Lines of the source in profiles and in messages; costs nothing at run time.
    flags = os.environ.get("NVCC_APPEND_FLAGS", "")
    if "-lineinfo" not in flags:
        os.environ["NVCC_APPEND_FLAGS"] = f"{flags} -lineinfo".strip()
    _replace_lock()


def jobs_for(memory_bytes: int, cores: int) -> int:
    """Parallel compilations that fit: at least one, at most one a core."""
    return max(1, min(cores, memory_bytes // _MEMORY_PER_JOB_BYTES))


def available_memory_bytes() -> int:
    """What the kernel says can be had without swapping; one job's worth where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return _MEMORY_PER_JOB_BYTES
    found = next((line for line in lines if line.startswith("MemAvailable:")), "")
    return int(found.split()[1]) * 1024 if found else _MEMORY_PER_JOB_BYTES


def _replace_lock() -> None:
    """torch waits without end for a lock *file* to vanish, and a worker that is killed while building leaves its file behind."""
    from torch.utils.file_baton import FileBaton

    for name, function in {"try_acquire": _try_acquire, "wait": _wait, "release": _release}.items():
        setattr(FileBaton, name, function)


def _try_acquire(baton: Any) -> bool:
    descriptor = os.open(baton.lock_file_path, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    baton.fd = descriptor
    return True


def _wait(baton: Any) -> None:
    end = time.monotonic() + LOCK_WAIT_S
    while not _try_acquire(baton):
        if time.monotonic() >= end:
            raise LockTimeout(f"another build has held {baton.lock_file_path} for {LOCK_WAIT_S:.0f} s: it was given up")
        time.sleep(_POLL_S)
    _release(baton)


def _release(baton: Any) -> None:
    # The file stays: to remove it would let a third process lock another file of the same name.
    if baton.fd is not None:
        os.close(baton.fd)
        baton.fd = None
