"""After Ctrl-C: what the run still finishes, said again and again, so that nobody waits in front of a silent terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

REMIND_S = 5.0
"""How often lines are repeated where nothing can be drawn over."""


class Stopping:
    """The time since the user asked for the end, told every ``every_s`` seconds.

    Args:
        say: given the seconds; called from a thread of its own.
        every_s: 0 for never.
    """

    def __init__(self, say: Callable[[float], None] = lambda seconds: None, every_s: float = 0.0) -> None:
        self._since_s = time.monotonic()
        self._over = threading.Event()
        self._say, self._every_s = say, every_s
        if every_s > 0:
            threading.Thread(target=self._remind, name="stopping", daemon=True).start()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._since_s

    def end(self) -> None:
        """Say nothing more."""
        self._over.set()

    def _remind(self) -> None:
        while not self._over.wait(self._every_s):
            self._say(self.seconds)
