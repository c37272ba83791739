"""What threads have put into a queue, for the one thread that takes it."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import TypeVar

Item = TypeVar("Item")


def drained(arrived: queue.SimpleQueue[Item]) -> Iterator[Item]:
    """Everything that is there now, without waiting."""
    while True:
        try:
            yield arrived.get_nowait()
        except queue.Empty:
            return
