"""One evaluation at a time on a device, among the threads and the processes of a machine."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from tilecast.sandbox.base import DeviceFacts, ParallelSandbox, Sandbox
from tilecast.sandbox.errors import EnvironmentFailure

_THREADS: dict[str, threading.Lock] = {}


def lock_file(device: DeviceFacts) -> Path:
    """The machine's lock file of a device, in the temporary folder so that all users of the machine share it."""
    name = device.uuid or f"{device.kind}-{device.index or 0}"
    return Path(tempfile.gettempdir()) / f"tilecast-device-{re.sub(r'[^A-Za-z0-9-]', '_', name)}.lock"


@contextmanager
def device_turn(device: DeviceFacts, say: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Wait for the device, and hold it. Nothing is waited for where measurements are only read from a record.

    The wait is here, and not in the sandbox, so that it is not taken for device time; ``say`` is told of it.

    Raises:
        EnvironmentFailure: if the lock file cannot be opened.
    """
    if device.recorded or device.kind == "bundle":
        yield
        return
    path = lock_file(device)
    with _THREADS.setdefault(str(path), threading.Lock()):
        descriptor = _open(path)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another run on this device")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def sandbox_turn(sandbox: Sandbox, say: Callable[[str], None] = lambda text: None) -> AbstractContextManager[None]:
    """As :func:`device_turn`, for the device of a sandbox. One with several places has each of its evaluators take its own turn."""
    return nullcontext() if isinstance(sandbox, ParallelSandbox) else device_turn(sandbox.device, say)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise EnvironmentFailure(f"the device's lock file {path} cannot be opened: {error}; remove it") from error
    if os.fstat(descriptor).st_uid == os.getuid():
        os.fchmod(descriptor, 0o666)
    return descriptor
