"""Whose turn it is: one evaluation at a time on a device, among threads and among processes; one process on a run."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.errors import EnvironmentFailure, UsageError

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
    if device.recorded:
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


class RunLock:
    """Held by the process that works on a run; released by the system when the process ends, however it ends."""

    def __init__(self, run_dir: Path, run_id: str) -> None:
        """Take it.

        Raises:
            UsageError: if another process holds it.
            EnvironmentFailure: if the folder cannot be written.
        """
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise EnvironmentFailure(f"the run's folder {run_dir} cannot be written: {error}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise UsageError(f"run {run_id} is being worked on by process {holder or '?'}; stop it first") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let another process take the run up."""
        os.close(self._descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise EnvironmentFailure(f"the device's lock file {path} cannot be opened: {error}; remove it") from error
    if os.fstat(descriptor).st_uid == os.getuid():
        os.fchmod(descriptor, 0o666)
    return descriptor


def is_worked_on(run_dir: Path) -> bool:
    """Whether a process holds the run's lock now."""
    try:
        descriptor = os.open(run_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
