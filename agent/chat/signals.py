"""Ctrl-C in a session: once stops the current step, twice leaves; whatever ends the process takes its children along."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tilecast.agent.interrupts import kill_descendants

LEAVING = (signal.SIGTERM, signal.SIGHUP)


def leave(code: int) -> None:
    """End at once, with every process below this one; the session's log is whole at every moment."""
    kill_descendants(os.getpid())
    os._exit(code)


@contextmanager
def guarded() -> Iterator[None]:
    """For the life of a session: a lost terminal or a request to end leaves no process behind."""

    def handle(number: int, frame: FrameType | None) -> None:
        leave(128 + number)

    before = {number: signal.signal(number, handle) for number in LEAVING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stoppable(stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """For one step.

    Args:
        stop: stops it; called in a thread of its own, for it may wait.
        say: shows one line.
    """
    seen = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            leave(130)
        threading.Thread(target=stop, daemon=True).start()
        threading.Thread(target=say, args=("stopping; Ctrl-C once more leaves",), daemon=True).start()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
