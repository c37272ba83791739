"""Quiet on a device that several judges share: any number of them may verify at once, one alone may time.

Two files are locked, as in a turnstile: who wants to time closes the gate, so that nobody new begins, and waits until those who
are inside have left. The kernel gives the locks of a process that dies to the next.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Quiet:
    """Locks of one device; without a path, of a device that nobody shares (then nothing is ever waited for).

    ``sharers``: how many judges use the device, this one included; each keeps to its share of the memory.
    """

    def __init__(self, path: str | None = None, sharers: int = 1) -> None:
        self._path, self.sharers = path, max(1, sharers)
        self._own = threading.local()
        self.waited_s = 0.0
        """Seconds that the thread which made this object has waited for others: no device time of its own."""
        self._counted = threading.get_ident()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Use the device beside others that do not measure. May be nested, also inside :meth:`exclusive`."""
        with self._held(fcntl.LOCK_SH):
            yield

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Use the device alone: nobody who asks begins before this ends.

        Raises:
            RuntimeError: inside :meth:`shared`, where it would wait for itself.
        """
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _held(self, kind: int) -> Iterator[None]:
        held = getattr(self._own, "kind", None)
        if held == fcntl.LOCK_SH and kind == fcntl.LOCK_EX:
            raise RuntimeError("a device in shared use cannot be had alone before it is given back")
        if self._path is None or held is not None:
            yield
            return
        inside = _open(self._path)
        try:
            gate = _open(f"{self._path}.gate")
            try:
                start = time.monotonic()
                fcntl.flock(gate, kind)
                fcntl.flock(inside, kind)
                if threading.get_ident() == self._counted:
                    self.waited_s += time.monotonic() - start
            finally:
                os.close(gate)
            self._own.kind = kind
            yield
        finally:
            self._own.kind = None
            os.close(inside)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
