"""Texts of the record at hand: those used last, up to a number of characters."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

MOST_CHARACTERS = 32 * 2**20
"""What is held of them at most, whatever the length of a run."""


class Texts:
    """Reads each text once while it is in use. Safe to use from several threads.

    Args:
        read: gives the text of a hash.
        most: characters that are held.
    """

    def __init__(self, read: Callable[[str], str], most: int = MOST_CHARACTERS) -> None:
        self._read, self._most = read, most
        self._held: OrderedDict[str, str] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def __call__(self, sha256: str) -> str:
        """A text.

        Raises:
            KeyError: if it is not in the record.
        """
        with self._lock:
            if sha256 in self._held:
                self._held.move_to_end(sha256)
                return self._held[sha256]
            text = self._read(sha256)
            self._held[sha256] = text
            self._characters += len(text)
            while self._characters > self._most and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                self._characters -= len(dropped)
            return text
