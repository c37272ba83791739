"""A worker process as the judge holds it: how it is talked to, how it ended, what it printed, what runs below it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from typing import Protocol

from tilecast.sandbox.harness import process_tree
from tilecast.sandbox.harness.wire import Channel, WireError

_LOG_BYTES = 2000


class ForkServer(Protocol):
    """What a worker needs of the server that forked it."""

    control: Channel
    turn: threading.RLock

    @property
    def alive(self) -> bool:
        """Whether it still runs, and is to."""
        ...

    def kill(self, worker: WorkerProcess) -> None:
        """End a worker's whole tree."""
        ...


@dataclass
class WorkerProcess:
    """A worker as the judge holds it: its channel, how it ended, its log."""

    number: int
    pid: int
    channel: Channel
    _status_fd: int
    _log_fd: int
    _server: ForkServer
    _status: int | None = None
    _closed: bool = False

    def wait_status(self, timeout_s: float) -> int | None:
        """Raw wait status of the worker, None if it has not ended (or its reporter was killed)."""
        end = time.monotonic() + timeout_s
        while self._status is None and not self._closed:
            try:
                blob = os.read(self._status_fd, process_tree.STATUS.size)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return None
                time.sleep(0.002)
                continue
            if len(blob) != process_tree.STATUS.size:
                return None
            self._status = process_tree.STATUS.unpack(blob)[0]
        return self._status

    def log_tail(self) -> str:
        """The last of what the worker printed, one line, bounded."""
        if self._closed:
            return ""
        size = os.fstat(self._log_fd).st_size
        text = os.pread(self._log_fd, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode("utf-8", "replace")
        return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-800:]

    def processes(self) -> list[int]:
        """Process ids below the worker's outermost one, itself left out."""
        return process_tree.descendants(self.pid)

    def locked(self) -> None:
        """It can start no process any more: nobody needs to count them."""
        # If the server is gone, so is the worker: that is told when it is asked again.
        with self._server.turn, contextlib.suppress(WireError):
            self._server.control.send({"op": "locked", "id": self.number}, timeout_s=5.0)

    @property
    def is_abandoned(self) -> bool:
        """Whether its fork server is gone, which takes its workers along: whatever it failed at, it is not to blame."""
        return not self._server.alive

    def kill(self) -> None:
        """End the worker and all it started; returns when they are gone."""
        if self._closed:
            return
        self._closed = True
        self._server.kill(self)
        self.channel.close()
        os.close(self._status_fd)
        os.close(self._log_fd)
