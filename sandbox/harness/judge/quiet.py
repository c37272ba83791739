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
            self._take(inside, kind)
            self._own.kind, self._own.inside, self._own.away = kind, inside, False
            yield
        finally:
            self._own.kind = None
            os.close(inside)

    def _take(self, inside: int, kind: int) -> float:
        gate = _open(f"{self._path}.gate")
        try:
            start = time.monotonic()
            fcntl.flock(gate, kind)
            fcntl.flock(inside, kind)
            return self._count(time.monotonic() - start)
        finally:
            os.close(gate)

    def _count(self, waited_s: float) -> float:
        self._own.waited_s = self.thread_waited_s + waited_s
        if threading.get_ident() == self._counted:
            self.waited_s += waited_s
        return waited_s

    @property
    def thread_waited_s(self) -> float:
        """Seconds that the calling thread has waited for others."""
        return getattr(self._own, "waited_s", 0.0)

    @contextmanager
    def heavy(self) -> Iterator[None]:
        """Take much memory: one judge at a time. May be nested; the device is in shared use inside.

        That comes first: who had this lock and waited at the gate would wait for who times, who waits for those inside, of
        whom one may wait for this lock.
        """
        if self._path is None or self.sharers == 1 or getattr(self._own, "heavy", False):
            yield
            return
        with self.shared(), self._alone_with_much(f"{self._path}.heavy"):
            yield

    @contextmanager
    def _alone_with_much(self, path: str) -> Iterator[None]:
        lock = _open(path)
        try:
            start = time.monotonic()
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._count(time.monotonic() - start)
            self._own.heavy = True
            yield
        finally:
            self._own.heavy = False
            os.close(lock)

    def let_go(self) -> None:
        """Inside :meth:`shared`: the device is not used until :meth:`take_back`, and others may have it alone. Else nothing."""
        if getattr(self._own, "kind", None) == fcntl.LOCK_SH and not self._own.away:
            fcntl.flock(self._own.inside, fcntl.LOCK_UN)
            self._own.away = True

    def take_back(self) -> float:
        """End :meth:`let_go` (if it began): wait until the device may be used again; returns the seconds waited."""
        if getattr(self._own, "kind", None) is None or not self._own.away:
            return 0.0
        waited_s = self._take(self._own.inside, fcntl.LOCK_SH)
        self._own.away = False
        return waited_s


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
