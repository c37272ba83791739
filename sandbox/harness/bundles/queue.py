"""What there is to do in a bundle folder, as a worker sees it: items without a result, and what is refused and why."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilecast.sandbox.harness.bundles import files, layout
from tilecast.sandbox.harness.bundles.files import Incomplete, Refused
from tilecast.sandbox.harness.bundles.layout import BundleName
from tilecast.sandbox.harness.wire import Message


@dataclass(frozen=True)
class Bundle:
    """A bundle that is fit to be done, and the hash that results are bound to."""

    body: Message
    sha256: str

    @property
    def stream(self) -> str:
        """Whose work it is."""
        return str(self.body["stream"])


@dataclass(frozen=True)
class Todo:
    """One item without a result."""

    bundle: Bundle
    item: Message


class WorkQueue:
    """Reads the folder anew whenever it is asked; what was refused is said once, and told to the loop."""

    def __init__(self, folder: Path, harness: str, key: bytes | None, say: Callable[[str], None]) -> None:
        self._folder, self._harness, self._key, self._say = folder, harness, key, say
        self._bundles: dict[str, Bundle] = {}
        self._refused: dict[str, tuple[files.Stamp, str]] = {}
        self.incomplete: list[str] = []

    @property
    def refused(self) -> dict[str, str]:
        """Bundles not done, by file name, with the reason."""
        return {name: reason for name, (_, reason) in self._refused.items()}

    @property
    def empty(self) -> bool:
        """Whether there are no bundles at all, usable or not."""
        return not files.names_in(self._folder / layout.BUNDLES)

    def open_items(self) -> Iterator[Todo]:
        """Items without a result, oldest bundle first."""
        for bundle in self._read():
            done = self.results_of(bundle)
            for item in bundle.body["items"]:
                if item["id"] not in done:
                    yield Todo(bundle, item)

    def results_of(self, bundle: Bundle) -> dict[str, Message]:
        """Usable results of a bundle by item; others are passed over, it is for the loop to refuse them."""
        found: dict[str, Message] = {}
        for name in files.names_in(self._folder / layout.RESULTS / bundle.sha256[: layout.SHORT]):
            try:
                sealed = files.read(self._folder / layout.RESULTS / bundle.sha256[: layout.SHORT] / name, self._key)
            except (Incomplete, Refused):
                continue
            body = sealed.body
            if body.get("bundle") == bundle.sha256 and body.get("harness") == self._harness:
                found.setdefault(str(body.get("item")), body)
        return found

    def of_stream(self, stream: str) -> dict[str, Message]:
        """All usable results of a run, by item."""
        found: dict[str, Message] = {}
        for bundle in self._bundles.values():
            if bundle.stream == stream:
                found.update(self.results_of(bundle))
        return found

    def _read(self) -> list[Bundle]:
        named = [(name, BundleName.parse(name)) for name in files.names_in(self._folder / layout.BUNDLES)]
        ordered = sorted(((parts.number, parts.stream, name) for name, parts in named if parts is not None))
        withdrawn = self._withdrawn()
        self.incomplete = []
        found = []
        for number, stream, name in ordered:
            if number <= withdrawn.get(stream, -1):
                continue
            bundle = self._bundles.get(name) or self._take(name)
            if bundle is not None:
                found.append(bundle)
        return found

    def _take(self, name: str) -> Bundle | None:
        # One that is brought once more, after it was refused, is looked at again.
        stamp = files.stamp(self._folder / layout.BUNDLES / name)
        if name in self._refused and self._refused[name][0] == stamp:
            return None
        try:
            sealed = files.read(self._folder / layout.BUNDLES / name, self._key)
            self._bundles[name] = Bundle(layout.check_bundle(sealed, name, self._harness), sealed.sha256)
        except Incomplete:
            self.incomplete.append(name)
            return None
        except Refused as refusal:
            self._refuse(name, stamp, refusal.advice)
            return None
        except (KeyError, TypeError, ValueError) as error:
            self._refuse(name, stamp, Refused.altered(f"it lacks {error}").advice)
            return None
        self._refused.pop(name, None)
        return self._bundles[name]

    def _refuse(self, name: str, stamp: files.Stamp, reason: str) -> None:
        self._refused[name] = (stamp, reason)
        self._say(f"refused bundle {name}: {reason}")
        body = {"kind": "refusal", "bundle": name, "reason": reason, "host": socket.gethostname()}
        try:
            path = self._folder / layout.REFUSALS / f"{Path(name).stem}-{files.digest(body)[:8]}.json"
            files.write(path, body, self._key)
        except OSError as error:
            self._say(f"the refusal could not be written: {error}")

    def _withdrawn(self) -> dict[str, int]:
        """Up to which number the bundles of a stream are not wanted any more."""
        found: dict[str, int] = {}
        for name in files.names_in(self._folder / layout.WITHDRAWN):
            try:
                body = files.read(self._folder / layout.WITHDRAWN / name, self._key).body
                found[str(body["stream"])] = int(body["number"])
            except (Incomplete, Refused, KeyError, TypeError, ValueError):
                continue
        return found
