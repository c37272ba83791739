"""Ctrl-C: once ends the run after the current step, twice kills everything that the run started."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

CLOSE_S = 1.0
"""How long a second Ctrl-C waits for the sandbox to close in order, before its processes are killed."""
EXIT_INTERRUPTED = 130


@contextmanager
def two_step(
    first: Callable[[], None], told: Callable[[], None], close: Callable[[], None], say: Callable[[str], None]
) -> Iterator[None]:
    """Handle SIGINT and SIGTERM inside: the first calls ``first``, the second kills and leaves the process.

    Args:
        first: must only set flags, for it runs between any two instructions.
        told: tells the user that a step is finished first.
        close: closes the sandbox; given a second, then its processes are killed.
        say: shows one line.
    """
    seen = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            first()
            _told(told)
            return
        _told(lambda: say("killed; what was recorded stays, and the run can be taken up with --resume"))
        work = threading.Thread(target=close, daemon=True)
        work.start()
        work.join(CLOSE_S)
        kill_descendants(os.getpid())
        os._exit(EXIT_INTERRUPTED)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(tell: Callable[[], None]) -> None:
    try:
        tell()
    except RuntimeError:
        # The signal came in the middle of another line on the same stream; the line is not worth more.
        return


def kill_descendants(pid: int) -> None:
    """Kill every process below ``pid``, leaves last so that nothing is adopted away in between."""
    for child in descendants(pid):
        try:
            os.kill(child, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def descendants(pid: int) -> list[int]:
    """Process ids below ``pid``, parents before children (Linux; elsewhere none are found)."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in brackets may hold anything, also brackets and spaces.
            after_name = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            children.setdefault(int(after_name.split()[1]), []).append(int(folder.name))
        except (OSError, IndexError, ValueError):
            continue
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found
