"""Evaluations in the air: one thread each, as many as the sandbox has places; they land in the order of their index.

A flight touches neither the record nor the listeners: what it found and what it had to say is taken up by the loop's thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilecast.agent.arrivals import drained
from tilecast.agent.progress import Progress
from tilecast.sandbox.base import ParallelSandbox
from tilecast.sandbox.schema import Measurement, Verification


@dataclass(frozen=True)
class Landed:
    """What came of one evaluation: a result, or the meter whose end cut it short, or the exception that it raised."""

    index: int
    result: Measurement | None = None
    verification: Verification | None = None
    """Where it was a step of its own, and passed."""
    seconds: float = 0.0
    ended_by: str = ""
    error: BaseException | None = None


class Flights:
    """Runs evaluations beside the loop.

    Of several that are done the one with the lowest index lands first, and a slower one before it is not waited for.

    Args:
        sandbox: whose places are used; None, or one that has only one place, has no flights at all.
        wake: makes the loop look here while it waits elsewhere.
    """

    def __init__(self, sandbox: object = None, wake: Callable[[], None] = lambda: None) -> None:
        self.sandbox = sandbox if isinstance(sandbox, ParallelSandbox) else None
        self._wake = wake
        self._arrived: queue.SimpleQueue[Landed | Progress] = queue.SimpleQueue()
        self._said: list[Progress] = []
        self._done: dict[int, Landed] = {}
        self.flying: set[int] = set()
        """Indices begun here and not taken."""

    @property
    def room(self) -> bool:
        """Whether one more evaluation can begin now."""
        return self.sandbox is None or len(self.flying) < self.sandbox.slots

    def begin(self, index: int, work: Callable[[], Landed]) -> None:
        """Evaluate beside the loop; the end is taken with :meth:`take`."""
        self.flying.add(index)

        def fly() -> None:
            try:
                self._arrived.put(work())
            except BaseException as error:  # noqa: BLE001 - carried to the loop's thread, which raises it again
                self._arrived.put(Landed(index, error=error))
            self._wake()

        threading.Thread(target=fly, name=f"evaluation-{index}", daemon=True).start()

    def say(self, event: Progress) -> None:
        """A listener for flights: what they tell is handed on by the loop's thread."""
        self._arrived.put(event)

    def told(self) -> list[Progress]:
        """What flights have said since the last call."""
        self._collect()
        said, self._said = self._said, []
        return said

    @property
    def landed(self) -> int | None:
        """Index of the evaluation to take next, if one is done."""
        self._collect()
        return min(self._done, default=None)

    def take(self, index: int) -> Landed:
        """The end of an evaluation.

        Raises:
            BaseException: what it raised.
        """
        landed = self._done.pop(index)
        self.flying.discard(index)
        if landed.error is not None:
            raise landed.error
        return landed

    def wait(self, timeout_s: float) -> None:
        """Until something comes from a flight, at most so long."""
        try:
            self._take_in(self._arrived.get(timeout=timeout_s))
        except queue.Empty:
            return

    def _collect(self) -> None:
        for arrived in drained(self._arrived):
            self._take_in(arrived)

    def _take_in(self, arrived: Any) -> None:
        if isinstance(arrived, Landed):
            self._done[arrived.index] = arrived
        else:
            self._said.append(arrived)
