"""The next candidate's worker, made ready while the present one is verified: a GPU's context takes long to make.

A spare has seen nothing and nobody: it is a fresh fork, confined as any other, that has opened the device. It is never made while
something is timed (:meth:`Spare.settle`).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

import torch

from tilecast.sandbox.harness.judge.build_folders import BuildFolders
from tilecast.sandbox.harness.judge.failure import WorkerFailed
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.zygotes import Zygotes

_WAKE = {"op": "wake"}


@dataclass
class _Ready:
    session: Session
    folder: str


class Spare:
    """At most one worker in reserve, made by a thread. Without a GPU there is none: forking takes no time worth hiding."""

    def __init__(self, zygotes: Zygotes, device: torch.device, builds: BuildFolders) -> None:
        self._zygotes, self._device, self._builds = zygotes, device, builds
        self.useful = device.type == "cuda"
        self._thread: threading.Thread | None = None
        self._ready: _Ready | None = None
        self._waited_s = 0.0

    def prepare(self) -> None:
        """Begin to make one, if there is none."""
        if not self.useful or self._thread is not None or self._ready is not None:
            return
        try:
            folder = self._builds.fresh()
        except OSError:  # the next candidate opens its own, and is told why
            return
        self._thread = threading.Thread(target=self._make, args=(folder,), name="spare worker", daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait until none is being made. As far as that one waits for other judges, so does this thread."""
        if self._thread is not None:
            start = time.monotonic()
            self._thread.join()
            self._thread = None
            self._zygotes.quiet.waited_s += min(self._waited_s, time.monotonic() - start)
            self._waited_s = 0.0

    def take(self, options: SessionOptions) -> tuple[Session, str] | None:
        """The spare as a session with these options, and its folder for compilers; None if there is none that lives."""
        self.settle()
        ready, self._ready = self._ready, None
        if ready is None:
            return None
        try:
            self._hand_over(ready, options)
        except WorkerFailed:
            self._discard(ready)
            return None
        except BaseException:
            self._discard(ready)
            raise
        return ready.session, ready.folder

    def _hand_over(self, ready: _Ready, options: SessionOptions) -> None:
        ready.session.request(_WAKE, "waking")  # killed meanwhile, it would be the candidate's fault
        ready.session.options = replace(options, cache=ready.folder)
        if options.timeout_s is not None:
            ready.session.extend(options.timeout_s)
        self._builds.furnish(ready.folder)

    def close(self) -> None:
        """End it."""
        self.settle()
        if self._ready is not None:
            self._discard(self._ready)
            self._ready = None

    def _make(self, folder: str) -> None:
        torch.set_grad_enabled(False)
        session: Session | None = None
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            session = Session.open(self._zygotes, SessionOptions(self._device, timeout_s=None, cache=folder))
            session.request(_WAKE, "opening of the device")
            self._ready = _Ready(session, folder)
        except Exception:  # noqa: BLE001 - whatever it was: the next candidate opens its own, and is told why
            if session is not None:
                session.close()
            self._builds.drop(folder)
        finally:
            self._waited_s = self._zygotes.quiet.thread_waited_s

    def _discard(self, ready: _Ready) -> None:
        ready.session.close()
        self._builds.drop(ready.folder)
