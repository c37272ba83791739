"""Files that are copied between hosts: one JSON object each, under a line with its length, hash and optional signature.

The first line tells a file that is still being copied (shorter than it says) from one that was altered. Files are written
under another name and renamed, so that nobody reads half of one on a shared folder.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilecast.sandbox.harness.wire import Message, WireGarbage, decode

KEY_VARIABLE = "TILECAST_BUNDLE_KEY"
"""Environment variable with a secret that both hosts share; where it is set, files without its signature are refused."""
MAX_BYTES = 64 << 20
_MAGIC = "tilecast-1"
_UNSIGNED = "-"
_HEAD_BYTES = 256

Stamp = tuple[str, int, int]


class Incomplete(Exception):
    """The file is not all there yet."""


class Refused(Exception):
    """The file is complete and not to be used; the message is the reason, ``remedy`` what to do about it where that is known."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy

    @classmethod
    def altered(cls, how: object) -> Refused:
        """For what is not as it was written."""
        return cls(f"altered: {how}", "bring it again")

    @property
    def advice(self) -> str:
        """The reason, and the remedy."""
        return f"{self}; {self.remedy}" if self.remedy else str(self)


@dataclass(frozen=True)
class Sealed:
    """What a file holds, and the hash of it in hex."""

    body: Message
    sha256: str


def key_of(environ: Mapping[str, str] = os.environ) -> bytes | None:
    """The shared secret, if there is one."""
    text = environ.get(KEY_VARIABLE, "")
    return text.encode() or None


def canonical(body: Mapping[str, Any]) -> bytes:
    """The one text of a JSON object: sorted keys, no spaces.

    Raises:
        ValueError: for NaN or infinities, which are not JSON.
    """
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(body: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(canonical(body)).hexdigest()


def seal(body: Mapping[str, Any], key: bytes | None) -> bytes:
    """A file's bytes: ``tilecast-1 LENGTH SHA256 SIGNATURE``, a newline, the canonical text."""
    text = canonical(body)
    head = f"{_MAGIC} {len(text)} {hashlib.sha256(text).hexdigest()} {_signature(text, key)}\n"
    return head.encode() + text


def unseal(blob: bytes, key: bytes | None) -> Sealed:
    """Check and read what :func:`seal` made.

    Raises:
        Incomplete: if there is less than the first line says (or no first line yet).
        Refused: if it was altered, or its signature is missing or wrong.
    """
    head, newline, text = blob.partition(b"\n")
    if not newline:
        if len(head) > _HEAD_BYTES or not _MAGIC.encode().startswith(head[: len(_MAGIC)]):
            raise Refused.altered("it does not begin as such a file does")
        raise Incomplete
    words = head.decode("ascii", "replace").split(" ")
    if len(words) != 4 or words[0] != _MAGIC or not words[1].isdecimal():
        raise Refused.altered("its first line is not as it was written")
    if len(text) < int(words[1]):
        raise Incomplete
    found = hashlib.sha256(text).hexdigest()
    if len(text) != int(words[1]) or found != words[2]:
        raise Refused.altered(f"its content has hash {found[:12]}, its first line says {words[2][:12]}")
    if key is not None and not hmac.compare_digest(words[3], _signature(text, key)):
        why = "has no signature" if words[3] == _UNSIGNED else "is signed with another key"
        raise Refused(f"it {why}, and {KEY_VARIABLE} is set here: set it alike on both hosts")
    try:
        return Sealed(decode(text), found)
    except WireGarbage as error:
        raise Refused.altered(error) from error


def write(path: Path, body: Mapping[str, Any], key: bytes | None) -> None:
    """Write a sealed file whole or not at all, durable when this returns.

    Raises:
        OSError: if it cannot be written.
    """
    write_bytes(path, seal(body, key))


def write_bytes(path: Path, blob: bytes) -> None:
    """As :func:`write`, for bytes as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name that starts with a dot is what rsync uses for the same purpose: readers pass it over.
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "wb") as file:
        file.write(blob)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read(path: Path, key: bytes | None) -> Sealed:
    """Read a sealed file.

    Raises:
        Incomplete: if it is not all there (also if it vanished meanwhile, or cannot be read just now).
        Refused: if it was altered or is no plain file of a bearable size.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise Refused("it is a link, not a file") from error
        raise Incomplete from error
    try:
        kind = os.fstat(descriptor)
        if not stat.S_ISREG(kind.st_mode):
            raise Refused("it is not a plain file")
        if kind.st_size > MAX_BYTES:
            raise Refused(f"it has {kind.st_size} bytes, more than the limit of {MAX_BYTES}")
        with open(descriptor, "rb", closefd=False) as file:
            return unseal(file.read(MAX_BYTES), key)
    except OSError as error:
        raise Incomplete from error
    finally:
        os.close(descriptor)


def stamp(path: Path) -> Stamp:
    """What changes when a file is brought once more."""
    try:
        found = path.stat()
    except OSError:
        return path.name, 0, 0
    return path.name, found.st_mtime_ns, found.st_size


def names_in(folder: Path, ending: str = ".json") -> list[str]:
    """Names of complete-looking files in a folder, sorted; none where there is no folder yet."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(ending) and not name.startswith("."))
    except OSError:
        return []


def _signature(text: bytes, key: bytes | None) -> str:
    return _UNSIGNED if key is None else hmac.new(key, text, hashlib.sha256).hexdigest()
