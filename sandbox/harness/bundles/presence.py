"""What each worker of a folder is at: for people, and so that two workers do not do the same item at the same time.

A claim is a courtesy, not a lock: hosts behind rsync do not see each other's. An item done twice is counted once by the loop.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

from tilecast.sandbox.harness.bundles import files, layout
from tilecast.sandbox.harness.wire import Message, WireGarbage, decode

FRESH_S = 120.0
"""A claim that was not renewed for so long counts for nothing: its worker was killed."""
RENEW_S = 10.0


class Presence:
    """One worker's entry."""

    def __init__(self, folder: Path, device: str) -> None:
        self._folder = folder / layout.WORKERS
        host = "".join(c if c.isalnum() or c in "-." else "_" for c in socket.gethostname())[:60]
        self.name = f"{host}-{os.getpid()}.json"
        self._entry: Message = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "device": device,
            "started": time.time(),
        }
        self._told_s = 0.0

    def tell(self, state: str, item: str = "", text: str = "", *, now: bool = True) -> None:
        """Write the entry; with ``now`` False only if the last one is some seconds old."""
        if not now and time.time() - self._told_s < RENEW_S:
            return
        self._told_s = time.time()
        entry = {**self._entry, "state": state, "item": item, "text": text[:200], "at": self._told_s}
        try:
            files.write_bytes(self._folder / self.name, json.dumps(entry).encode() + b"\n")
        except OSError:
            return  # the work matters, not what is told of it

    def elsewhere(self) -> set[str]:
        """Items that other workers are at."""
        found = seen(self._folder.parent)
        return {str(entry["item"]) for name, entry in found.items() if name != self.name and is_fresh(entry)}


def seen(folder: Path) -> dict[str, Message]:
    """The entries of a bundle folder by file name."""
    found = {}
    for name in files.names_in(folder / layout.WORKERS):
        try:
            entry = decode((folder / layout.WORKERS / name).read_bytes()[:4096])
        except (OSError, WireGarbage):
            continue
        if isinstance(entry.get("at"), int | float):
            found[name] = entry
    return found


def is_fresh(entry: Message) -> bool:
    """Whether a worker said lately that it is at something, and was not killed since (which is known of this host's only)."""
    if not entry.get("item") or abs(time.time() - float(entry["at"])) >= FRESH_S:
        return False
    if entry.get("host") != socket.gethostname() or not isinstance(entry.get("pid"), int):
        return True
    try:
        os.kill(entry["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
