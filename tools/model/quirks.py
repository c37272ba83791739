"""What a server refused for a model, remembered in memory and in a small file, so that it is not tried again."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from tilecast.tools.model.faults import ROOM, Fault

FILE = "models.json"


class Quirks:
    """Parameters that one model on one server does not take.

    Args:
        server: host (and port) of the server.
        model: name of the model.
        home: folder of the file, or None to remember in memory only.
    """

    def __init__(self, server: str, model: str, home: Path | None) -> None:
        self._key = f"{server} {model}"
        self._file = None if home is None else home / FILE
        self._lock = threading.Lock()
        entry = self._read().get(self._key, {})
        self._dropped: dict[str, Any] = dict(entry.get("dropped", {}))
        self._renamed: dict[str, str] = dict(entry.get("renamed", {}))

    def apply(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters as this model takes them. A value other than the refused one is tried again."""
        with self._lock:
            named = {self._renamed.get(name, name): value for name, value in parameters.items()}
            return {name: value for name, value in named.items() if not self._refused(name, value)}

    def learn(self, fault: Fault, parameters: dict[str, Any]) -> str:
        """Remember a refusal; gives a line for the user."""
        with self._lock:
            taken = {*self._dropped, *self._renamed, *parameters}
            # A server that sends us in a circle is asked without the parameter.
            if fault.action == "rename" and fault.instead not in taken:
                origin = next((old for old, new in self._renamed.items() if new == fault.parameter), fault.parameter)
                self._renamed[origin] = fault.instead
                line = f"the server takes {fault.instead} instead of {fault.parameter}; remembered"
            else:
                self._dropped[fault.parameter] = parameters.get(fault.parameter)
                line = f"the server refuses {fault.parameter}; asked without it, remembered"
            self._write()
            return line

    def _refused(self, name: str, value: Any) -> bool:
        return name in self._dropped and (name in ROOM or self._dropped[name] == value)

    def _read(self) -> dict[str, Any]:
        if self._file is None:
            return {}
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            # A lost memory costs one refused request; it is written anew.
            return {}
        entries = found if isinstance(found, dict) else {}
        return {key: value for key, value in entries.items() if _is_entry(value)}

    def _write(self) -> None:
        if self._file is None:
            return
        entries = {**self._read(), self._key: {"dropped": self._dropped, "renamed": self._renamed}}
        # Without a writable home it is remembered for this process only.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=FILE)
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump(entries, out, indent=1, sort_keys=True, default=str)
            Path(name).replace(self._file)


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key, {}), dict) for key in ("dropped", "renamed"))
