"""The loop's side of a bundle folder: writes bundles of one run, takes in results, and refuses those that are not to be used."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.harness.bundles import files, layout
from tilecast.sandbox.harness.bundles.carried import harness_version, program
from tilecast.sandbox.harness.bundles.files import Incomplete, Refused
from tilecast.sandbox.harness.bundles.layout import BundleName

Item = dict[str, Any]
Result = dict[str, Any]
Announce = Callable[[str], None]
Check = Callable[[str, str | None, Result], str | None]
"""Given operation, the candidate's hash and a result: what is wrong with it, or None."""
_README = """A folder of work for tilecast. On the host with the GPU (torch, triton and numpy installed; nothing else is needed):

    python3 {program} --once        does what is there, then stops
    python3 {program} --wait 600    stops after 600 s without work

then bring `results/` back to where the run waits (rsync, scp; on a shared folder there is nothing to bring).
"""


@dataclass
class _Written:
    """A bundle of this run: its hash, items it may be answered on (operation, candidate), those asked for, those without a
    result, files seen."""

    sha256: str
    items: dict[str, tuple[str, str | None]]
    asked: frozenset[str]
    open: set[str]
    seen: set[files.Stamp] = field(default_factory=set)


class BundleBox:
    """Bundles and results of one stream. Not safe for several threads at once.

    Args:
        folder: the bundle folder; made if it is not there.
        stream: name of this run's work.
        shared: what every bundle holds besides its items.
        faces: who is told of each refusal, with the reason; and what checks that a result answers its item.

    Raises:
        EnvironmentFailure: if the folder cannot be written. Nothing is written before :meth:`set_up`.
    """

    def __init__(self, folder: Path, stream: str, shared: dict[str, Any], faces: tuple[Announce, Check]) -> None:
        self.folder, self.stream, self.shared = folder, stream, shared
        self._announce, self._check = faces
        self.harness, self._key = harness_version(), files.key_of()
        self._bundles: dict[str, _Written] = {}
        self._asked: dict[str, tuple[str, str | None]] = {}
        self._accepted: dict[str, Path] = {}
        self._next, self._void = 0, -1
        self._told: set[str] = set()
        self.failed: set[str] = set()
        """Items whose result is that the worker's machine failed."""
        self.incomplete = 0
        self.device: dict[str, Any] | None = None
        self._is_set_up = False
        self._check_usable()
        self._take_up()

    def bind(self, device: dict[str, Any]) -> None:
        """Results count only from devices of this model; what was taken in from another one is refused after all."""
        taken, self.device = self.device, device
        if taken is None or _model(taken) == _model(device):
            return
        self._accepted.clear()
        self.failed.clear()
        for bundle in self._bundles.values():
            bundle.open = set(bundle.asked)
            bundle.seen.clear()
        self.scan(everything=True)

    def make_item(self, op: str, args: dict[str, Any]) -> Item:
        """An item of this stream."""
        return layout.make_item(self.stream, self.harness, self.shared["problem"], op, args)

    def knows(self, item: str) -> bool:
        """Whether it was asked for already, or answered along with another."""
        return item in self._accepted or item in self._asked

    @property
    def open_items(self) -> int:
        """Items written and not answered."""
        return sum(len(bundle.open) for bundle in self._bundles.values())

    def send(self, items: list[Item]) -> int:
        """Write one bundle with those that were not asked for yet; how many these are.

        Raises:
            EnvironmentFailure: if it cannot be written.
        """
        new = [item for item in items if not self.knows(item["id"])]
        if not new:
            return 0
        body = layout.make_bundle((self.stream, self._next), self.harness, self.shared, new)
        sha256 = files.digest(body)
        name = BundleName(self.stream, self._next, sha256[: layout.SHORT])
        self._write(self.folder / layout.BUNDLES / str(name), files.seal(body, self._key))
        self._next += 1
        self._add(sha256, body)
        return len(new)

    def answer(self, item: str) -> Result | None:
        """The accepted result of an item, if it is there."""
        path = self._accepted.get(item)
        if path is None:
            return None
        try:
            return files.read(path, self._key).body
        except (Incomplete, Refused) as error:
            raise EnvironmentFailure(f"{path} was accepted before and cannot be read any more: {error}") from error

    def scan(self, everything: bool = False) -> None:
        """Take in what has come; with ``everything`` also look for second results of bundles that are done."""
        self.incomplete = 0
        for bundle in self._bundles.values():
            if bundle.open or everything:
                self._scan(bundle)
        self._hear_refusals()

    def withdraw(self) -> None:
        """Tell workers that nothing written so far is wanted any more."""
        if self.open_items:
            self._withdraw(self._next - 1)

    def _withdraw(self, number: int) -> None:
        body = {"kind": "withdrawn", "stream": self.stream, "number": number}
        self._write(self.folder / layout.WITHDRAWN / f"{self.stream}.json", files.seal(body, self._key))

    def _check_usable(self) -> None:
        """Said before a run is begun; a folder that is not there yet is made when there is work to write."""
        there = next(place for place in (self.folder, *self.folder.parents) if place.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            why = "cannot be written" if there.is_dir() else "is no folder"
            raise EnvironmentFailure(f"the bundle folder {self.folder} cannot be used: {there} {why}")

    def set_up(self) -> None:
        """Make the folder with the program, if this was not done yet.

        Raises:
            EnvironmentFailure: if it cannot be written.
        """
        if self._is_set_up:
            return
        blob, target = program(), self.folder / layout.PROGRAM
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            same = target.is_file() and target.read_bytes() == blob
        except OSError as error:
            raise EnvironmentFailure(f"the bundle folder {self.folder} cannot be used: {error}") from error
        if not same:
            self._write(target, blob)
        self._write(self.folder / "README.txt", _README.format(program=layout.PROGRAM).encode())
        if self._void >= 0 or (self.folder / layout.WITHDRAWN / f"{self.stream}.json").exists():
            self._withdraw(self._void)  # what an ended run withdrew is wanted again, what is asked for anew is not
        self._is_set_up = True

    def _write(self, path: Path, blob: bytes) -> None:
        try:
            files.write_bytes(path, blob)
        except OSError as error:
            raise EnvironmentFailure(f"{path} cannot be written: {error}; nothing is lost, --resume goes on") from error

    def _take_up(self) -> None:
        """What this stream wrote before, if the run is taken up again."""
        others = 0
        for name in files.names_in(self.folder / layout.BUNDLES):
            parts = BundleName.parse(name)
            if parts is None or parts.stream != self.stream:
                continue
            self._next = max(self._next, parts.number + 1)
            try:
                sealed = files.read(self.folder / layout.BUNDLES / name, self._key)
                others += sealed.body.get("harness") != self.harness
                self._add(sealed.sha256, layout.check_bundle(sealed, name, self.harness))
            except (Incomplete, Refused, KeyError, TypeError) as error:
                self._say(name, f"bundle {name} of this run is not used again: {error or 'it is incomplete'}")
                self._void = parts.number if not self._bundles else self._void
        if others:
            self._announce(f"{others} bundle(s) of this run are for another harness version: asked for again")
        self.scan(everything=True)

    def _add(self, sha256: str, body: dict[str, Any]) -> None:
        ids = frozenset(item["id"] for item in body["items"])
        written = self._bundles[sha256] = _Written(sha256, {}, ids, set(ids))
        for item in body["items"]:
            asked = (item["op"], item["args"].get("candidate", {}).get("sha256"))
            self._asked[item["id"]] = asked
            written.items[item["id"]] = asked
            if item["op"] == "bench":
                written.items[layout.confirming(item, body)["id"]] = asked

    def _scan(self, bundle: _Written) -> None:
        folder = self.folder / layout.RESULTS / bundle.sha256[: layout.SHORT]
        found: list[tuple[float, str, Result]] = []
        for name in files.names_in(folder):
            # A file that is brought once more, after it was refused, is looked at again.
            stamp = files.stamp(folder / name)
            if stamp in bundle.seen:
                continue
            try:
                sealed = files.read(folder / name, self._key)
                body = layout.check_result(sealed, bundle.sha256, set(bundle.items), self.harness)
                if name != layout.result_path(self.folder, bundle.sha256, body["item"], sealed.sha256).name:
                    raise Refused.altered("its name belongs to another content")
                wrong = self._check(*bundle.items[body["item"]], body)
                if wrong is not None:
                    raise Refused(f"{wrong}; remove it on both hosts, and the item is done again")
                found.append((float(body["started_at"]), name, body))
            except Incomplete:
                self.incomplete += 1
                continue
            except Refused as refusal:
                self._refuse(folder / name, refusal)
            except (KeyError, TypeError, ValueError) as error:
                self._refuse(folder / name, Refused(str(error)))
            bundle.seen.add(stamp)
        for _, name, body in sorted(found, key=lambda entry: entry[:2]):
            self._accept(bundle, folder / name, body)

    def _accept(self, bundle: _Written, path: Path, body: Result) -> None:
        item, device = body["item"], body.get("device")
        if self._accepted.get(item, path) != path:
            return self._refuse(path, Refused(f"doubled: its item was answered by {self._accepted[item].name} before"))
        if not isinstance(device, dict) or (self.device is not None and _model(device) != _model(self.device)):
            return self._refuse(
                path, Refused(f"measured on {_name(device)}; this run's device is {_name(self.device)}")
            )
        self.device = self.device or device
        self._accepted[item] = path
        if not body["ok"] and body["error"]["kind"] == "environment":
            self.failed.add(item)
        bundle.open.discard(item)
        return None

    def _refuse(self, path: Path, refusal: Refused) -> None:
        self._say(f"{path}: {refusal}", f"refused result {path.parent.name}/{path.name}: {refusal.advice}")

    def _hear_refusals(self) -> None:
        for name in files.names_in(self.folder / layout.REFUSALS):
            if name in self._told or not name.startswith(f"{self.stream}-"):
                continue
            try:
                body = files.read(self.folder / layout.REFUSALS / name, self._key).body
            except (Incomplete, Refused):
                continue
            self._say(name, f"worker on {body.get('host')} refused bundle {body.get('bundle')}: {body.get('reason')}")

    def _say(self, key: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._announce(text)


def _model(device: dict[str, Any]) -> tuple[Any, ...]:
    return device.get("name"), device.get("compute_capability")


def _name(device: object) -> str:
    return str(device.get("name")) if isinstance(device, dict) else "an unknown device"
