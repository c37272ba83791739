"""One evaluation at a time on a device, among the threads and the processes of a machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from tilecast.sandbox.base import DeviceFacts, ParallelSandbox, Sandbox
from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.harness import device_lock

_THREADS: dict[str, threading.Lock] = {}


def lock_file(device: DeviceFacts) -> Path:
    """The machine's lock file of a device, in the temporary folder so that all users of the machine share it."""
    return device_lock.lock_path(device.kind, device.index, device.uuid)


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
        try:
            descriptor = device_lock.opened(path)
        except OSError as error:
            raise EnvironmentFailure(f"the device's lock file {path} cannot be opened: {error}; remove it") from error
        with device_lock.held(descriptor, say):
            yield


def sandbox_turn(sandbox: Sandbox, say: Callable[[str], None] = lambda text: None) -> AbstractContextManager[None]:
    """As :func:`device_turn`, for the device of a sandbox. One with several places has each of its evaluators take its own turn."""
    return nullcontext() if isinstance(sandbox, ParallelSandbox) else device_turn(sandbox.device, say)
