"""Workers of a bundle folder as far as they can be seen from here: what each said last that it is at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from tilecast.sandbox.base import WorkerState
from tilecast.sandbox.harness.bundles import presence
from tilecast.sandbox.harness.wire import Message

READ_S = 1.0
"""Entries are read again when they are older."""


class Onlooker:
    """Reads what workers say of themselves, where the folder is shared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_s = 0.0
        self._found: dict[str, Message] = {}

    def states(self) -> list[WorkerState]:
        """Workers that have said something, but for those that ended."""
        found = []
        for name, entry in self._entries().items():
            busy, ended = presence.is_fresh(entry), entry.get("state") == "ended"
            state: Literal["busy", "lost", "idle"] = "busy" if busy else "lost" if entry.get("item") else "idle"
            if not ended:
                device, text = str(entry.get("device")), str(entry.get("text"))
                found.append(WorkerState(name=name.removesuffix(".json"), device=device, state=state, item=text))
        return found

    def at_work(self) -> str:
        """Which host is at what; empty if none is at anything."""
        busy = [entry for entry in self._entries().values() if presence.is_fresh(entry)]
        return "; ".join(f"{entry.get('host')} is at {entry.get('text')}" for entry in busy)

    def _entries(self) -> dict[str, Message]:
        if time.monotonic() - self._read_s > READ_S:
            self._found = presence.seen(self._folder)
            self._read_s = time.monotonic()
        return self._found
