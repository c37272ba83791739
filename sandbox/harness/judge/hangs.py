"""Candidates known to hang, remembered across restarts by source hash and device, so that they are not tried again."""

from __future__ import annotations

import json
import os
from pathlib import Path

_MOST = 5000


class KnownHangs:
    """A small JSON-lines file in the state folder; without a folder nothing is remembered."""

    def __init__(self, folder: str | None) -> None:
        self._file = None if folder is None else Path(folder) / "known_hangs.jsonl"
        self._known = self._read()

    def _read(self) -> dict[tuple[str, str], tuple[str, float]]:
        if self._file is None or not self._file.is_file():
            return {}
        known: dict[tuple[str, str], tuple[str, float]] = {}
        for line in self._file.read_text(encoding="utf-8").splitlines()[-_MOST:]:
            try:
                item = json.loads(line)
                known[str(item["sha256"]), str(item["device"])] = (str(item["reason"]), float(item["timeout_s"]))
            except (ValueError, KeyError, TypeError):
                continue  # a line cut short by a kill
        return known

    def find(self, sha256: str, device: str, timeout_s: float) -> str:
        """The reason remembered, or an empty text; a hang under a shorter limit than ``timeout_s`` may be tried again."""
        reason, limit_s = self._known.get((sha256, device.partition(":")[0]), ("", 0.0))
        return reason if limit_s >= timeout_s else ""

    def remember(self, sha256: str, device: str, reason: str, timeout_s: float) -> None:
        """Add one, durably."""
        key = (sha256, device.partition(":")[0])
        if self._known.get(key, ("", 0.0))[1] >= timeout_s:
            return
        self._known[key] = (reason, timeout_s)
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            item = {"sha256": sha256, "device": key[1], "reason": reason, "timeout_s": timeout_s}
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(item) + "\n")
                file.flush()
                os.fsync(file.fileno())
