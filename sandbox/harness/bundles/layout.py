"""What lies where in a bundle folder, what a bundle and a result hold, and how an item of work is named by its content.

::

    DIR/tilecast-worker.pyz        the harness, runnable: python3 DIR/tilecast-worker.pyz
    DIR/bundles/STREAM-NUMBER-HASH.json
    DIR/results/BUNDLE/ITEM-HASH.json
    DIR/refusals/…                 bundles that a worker would not do, with the reason
    DIR/workers/HOST-PID.json      what each worker is at, for people
    DIR/README.txt                 how to run the worker, for people

A stream is the work of one run. HASH is the beginning of the content's SHA-256.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilecast.sandbox.harness.bundles.files import Refused, Sealed, digest
from tilecast.sandbox.harness.wire import Message

BUNDLES, RESULTS, REFUSALS, WORKERS, WITHDRAWN = "bundles", "results", "refusals", "workers", "withdrawn"
PROGRAM = "tilecast-worker.pyz"
SHORT = 16
"""Hex digits of a hash in a file's name."""
OPERATIONS = ("preflight", "baselines", "verify", "bench", "lint")
_NAME = re.compile(r"([A-Za-z0-9_]{1,64})-(\d{5,})-([0-9a-f]{16})\.json")


@dataclass(frozen=True)
class BundleName:
    """The parts of a bundle's file name."""

    stream: str
    number: int
    short: str

    @classmethod
    def parse(cls, name: str) -> BundleName | None:
        """None if it is no bundle's name."""
        found = _NAME.fullmatch(name)
        return None if found is None else cls(found[1], int(found[2]), found[3])

    def __str__(self) -> str:
        """The file's name."""
        return f"{self.stream}-{self.number:05d}-{self.short}.json"


def make_item(stream: str, harness: str, problem: Message, op: str, args: Message) -> Message:
    """One piece of work, named by everything that it depends on. A ``label`` for people may be added; it is no part of the name."""
    body = {"stream": stream, "harness": harness, "problem": problem, "op": op, "args": args}
    return {"id": digest(body)[: 2 * SHORT], "op": op, "args": args}


def confirming(item: Message, bundle: Message) -> Message:
    """The second examination of a candidate that a ``bench`` item found fast: the same item, to be confirmed."""
    args = item["args"]
    args = {**args, "options": {**args["options"], "confirm": True}}
    again = make_item(bundle["stream"], bundle["harness"], bundle["problem"], item["op"], args)
    return {**again, "label": item.get("label", "")}


def make_bundle(name: tuple[str, int], harness: str, shared: Message, items: list[Message]) -> Message:
    """A bundle's body.

    Args:
        name: stream and number.
        harness: version of the harness that has to do it.
        shared: ``problem``, ``hardware`` (data sheets to choose from) and ``confirm`` (whether to examine a new best twice).
        items: the work, in the order in which it is wanted.
    """
    stream, number = name
    return {"kind": "bundle", "stream": stream, "number": number, "harness": harness, **shared, "items": items}


def check_bundle(sealed: Sealed, name: str, harness: str) -> Message:
    """A bundle that may be done by this harness.

    Raises:
        Refused: with the reason.
    """
    body, parts = sealed.body, BundleName.parse(name)
    if body.get("kind") != "bundle" or parts is None:
        raise Refused("it is not a bundle")
    if (parts.stream, parts.number, parts.short) != (body.get("stream"), body.get("number"), sealed.sha256[:SHORT]):
        raise Refused.altered("its name belongs to another content")
    check_version(body, harness)
    for item in body["items"]:
        again = make_item(body["stream"], body["harness"], body["problem"], item["op"], item["args"])
        if item["op"] not in OPERATIONS or again["id"] != item["id"]:
            raise Refused.altered(f"item {item['id']} is named by another content")
    return body


def check_result(sealed: Sealed, bundle: str, items: set[str], harness: str) -> Message:
    """A result that answers one of ``items`` of the bundle with this hash.

    Raises:
        Refused: with the reason.
    """
    body = sealed.body
    if body.get("kind") != "result":
        raise Refused("it is not a result")
    if body.get("bundle") != bundle:
        raise Refused(f"stale: it answers bundle {str(body.get('bundle'))[:SHORT]}, not {bundle[:SHORT]}")
    check_version(body, harness)
    if body.get("item") not in items:
        raise Refused(f"stale: the bundle has no item {str(body.get('item'))[:SHORT]}")
    return body


def check_version(body: Message, harness: str) -> None:
    """Refuse what another version of the harness wrote or wants.

    Raises:
        Refused: naming both versions.
    """
    if body.get("harness") != harness:
        raise Refused(
            f"harness version {str(body.get('harness'))[:SHORT]}, and this is {harness[:SHORT]}",
            f"use the {PROGRAM} of this folder",
        )


def result_path(folder: Path, bundle: str, item: str, sha256: str) -> Path:
    """Where a result lies: two different ones of the same item do not overwrite each other."""
    return folder / RESULTS / bundle[:SHORT] / f"{item}-{sha256[:SHORT]}.json"


def data_sheet(sheets: list[Message], device: str) -> Message | None:
    """The GPU's data sheet whose key or one of whose marks occurs in the device's name."""
    wanted = device.lower()
    for sheet in sheets:
        marks: list[Any] = sheet.get("match", [])
        if wanted == sheet.get("key") or any(str(mark).lower() in wanted for mark in marks):
            return sheet
    return None
