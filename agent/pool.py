"""Proposals in flight: one thread each, taken in the order of their index as far as nobody has to wait for a slow one."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tilecast.agent.arrivals import drained
from tilecast.tools.propose.base import Proposal

Ask = Callable[[], Proposal]


@dataclass(frozen=True)
class Outcome:
    """What became of one question: a proposal, or the exception that it raised."""

    index: int
    proposal: Proposal | None
    error: BaseException | None = None


class ProposalPool:
    """Runs questions beside the loop.

    The lowest index that has an answer is taken first, and a slower one before it is not waited for. So with answers in
    order, or one in flight, a run repeats exactly under the same seed; otherwise the order is that of arrival.

    Args:
        size: most questions at once; 1 asks in the caller's own thread where ``inline`` is set.
        inline: for proposers that answer at once.
    """

    def __init__(self, size: int, inline: bool) -> None:
        self.size, self._inline = size, inline
        self._arrived: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        self._ready: dict[int, Outcome] = {}
        self._asked: set[int] = set()
        self._woken = False

    @property
    def in_flight(self) -> int:
        """Questions without an answer."""
        self._collect()
        return len(self._asked) - len(self._ready)

    @property
    def waiting(self) -> int:
        """Questions asked whose answer was not taken."""
        return len(self._asked)

    def knows(self, index: int) -> bool:
        """Whether this question was asked here and its answer not taken."""
        return index in self._asked

    def submit(self, index: int, ask: Ask) -> None:
        """Ask; the answer is taken with :meth:`take`."""
        self._asked.add(index)
        if self._inline:
            self._arrived.put(_answer(index, ask))
            return
        # Daemon threads: an answer that nobody wants any more must not hold up the end of the process.
        work = threading.Thread(
            target=lambda: self._arrived.put(_answer(index, ask)), name=f"proposal-{index}", daemon=True
        )
        work.start()

    def take(self, timeout_s: float | None) -> Outcome | None:
        """The next answer; None after ``timeout_s`` seconds, on :meth:`wake`, or if nothing was asked."""
        self._collect()
        if not self._ready and self._asked and not self._woken:
            try:
                self._take_in(self._arrived.get(timeout=timeout_s))
            except queue.Empty:
                return None
            self._collect()
        if self._woken or not self._ready:
            self._woken = False
            return None
        index = min(self._ready)
        self._asked.discard(index)
        return self._ready.pop(index)

    def settle(self, timeout_s: float) -> bool:
        """Wait until every question has its answer, at most so long; whether they all have."""
        end = time.monotonic() + timeout_s
        while self.in_flight and (left := end - time.monotonic()) > 0:
            try:
                self._take_in(self._arrived.get(timeout=left))
            except queue.Empty:
                break
        return not self.in_flight

    def wake(self) -> None:
        """Make :meth:`take` return; safe in a signal handler."""
        self._arrived.put(None)

    def _collect(self) -> None:
        for arrived in drained(self._arrived):
            self._take_in(arrived)

    def _take_in(self, arrived: Outcome | None) -> None:
        if arrived is None:
            self._woken = True
        else:
            self._ready[arrived.index] = arrived


def _answer(index: int, ask: Ask) -> Outcome:
    try:
        return Outcome(index, ask())
    except BaseException as error:  # noqa: BLE001 - carried to the loop's thread, which raises it again
        return Outcome(index, None, error)
