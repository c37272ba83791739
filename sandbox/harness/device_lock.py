"""The machine's lock of a device: a file in the temporary folder, so that all users and programs of the machine share it."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def lock_path(kind: str, index: int | None, uuid: str) -> Path:
    """The lock file of a device, by its uuid where it has one."""
    name = uuid or f"{kind}-{index or 0}"
    return Path(tempfile.gettempdir()) / f"tilecast-device-{re.sub(r'[^A-Za-z0-9-]', '_', name)}.lock"


def opened(path: Path) -> int:
    """A descriptor of the lock file, made for all users of the machine if it is not there.

    Raises:
        OSError: if it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    if os.fstat(descriptor).st_uid == os.getuid():
        os.fchmod(descriptor, 0o666)
    return descriptor


@contextmanager
def held(descriptor: int, say: Callable[[str], None]) -> Iterator[None]:
    """Wait for a device and hold it, then close the descriptor; ``say`` is told if it has to be waited for."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run on this device")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
