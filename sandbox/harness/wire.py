"""JSON lines over a stream socket: one object a line, bounded in size, parsed strictly, never unpickled.

Used between host and judge, judge and zygote, judge and worker. File descriptors may ride along with a line.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

MAX_LINE_BYTES = 8 << 20
MAX_FDS = 16
COMPILING, COMPILED = "compiling", "compiled"
"""What a worker may say before its answer, as ``event``: it does not use the device from the one to the other."""
Message = dict[str, Any]


class WireError(Exception):
    """The conversation cannot go on."""


class WireClosed(WireError):
    """The other side is gone."""


class WireTimeout(WireError):
    """No complete line came (or could be sent) in time."""


class WireGarbage(WireError):
    """What came is not one JSON object a line within the size limit."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> Message:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def decode(line: bytes) -> Message:
    """One object from one line.

    Raises:
        WireGarbage: if it is anything else (also NaN, repeated keys, too deep a nesting).
    """
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise WireGarbage(f"not a JSON object: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise WireGarbage(f"a JSON object was expected, not {type(value).__name__}")
    return value


def encode(message: Message) -> bytes:
    """One line.

    Raises:
        WireGarbage: if the line is longer than the limit.
    """
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise WireGarbage(f"a message of {len(line)} bytes is over the limit of {MAX_LINE_BYTES}")
    return line


class Channel:
    """One end of a conversation over a connected stream socket, which it owns."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._buffer = bytearray()
        self._lines: list[bytes] = []
        self._fds: list[int] = []

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """A channel and the socket for the other side."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        """A channel over an inherited descriptor."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Descriptor, for ``select``."""
        return self._sock.fileno()

    def send(self, message: Message, fds: Sequence[int] = (), timeout_s: float | None = 30.0) -> None:
        """Send one object, with descriptors attached to its first byte.

        Raises:
            WireClosed, WireTimeout, WireGarbage: see there.
        """
        rest = memoryview(encode(message))
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while rest:
            try:
                sent = self._sock.sendmsg([rest], ancillary)
            except BlockingIOError:
                self._wait(end, write=True)
                continue
            except OSError as error:
                raise WireClosed(f"the other side is gone ({os.strerror(error.errno or 0)})") from error
            ancillary = []
            rest = rest[sent:]

    def receive(self, timeout_s: float | None) -> Message:
        """The next object.

        Raises:
            WireClosed, WireTimeout, WireGarbage: see there.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._lines:
            self._wait(end, write=False)
            self._fill()
        return decode(self._lines.pop(0))

    def holds_line(self) -> bool:
        """Whether an object has come in already: ``select`` does not tell of what was read together with another."""
        return bool(self._lines)

    def pending(self) -> bool:
        """Whether something was received, or can be, that nobody has asked for yet (closing counts)."""
        return bool(self._lines or self._buffer) or bool(select.select([self._sock], [], [], 0)[0])

    def hung_up(self) -> bool:
        """Whether the other side closed the connection and nothing more is to come."""
        if self._lines or self._buffer:
            return False
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:  # reset by a peer that was killed
            return True

    def take_fds(self, most: int | None = None) -> list[int]:
        """Descriptors that arrived since the last time this was asked, the first ``most`` of them; the caller owns them.

        Those of a later line may have come already: where several lines can, take as many as belong to the one at hand.
        """
        count = len(self._fds) if most is None else most
        taken, self._fds = self._fds[:count], self._fds[count:]
        return taken

    def close(self) -> None:
        """Close the socket and any descriptor nobody took."""
        for fd in self.take_fds():
            os.close(fd)
        self._sock.close()

    def _wait(self, end: float | None, *, write: bool) -> None:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise WireTimeout("no answer in time")
        poll = select.poll()
        poll.register(self._sock, select.POLLOUT if write else select.POLLIN)
        if not poll.poll(None if left is None else max(1, int(left * 1000))):
            raise WireTimeout("no answer in time")

    def _fill(self) -> None:
        try:
            piece, ancillary, _, _ = self._sock.recvmsg(1 << 18, socket.CMSG_SPACE(MAX_FDS * 4))
        except BlockingIOError:
            return
        except OSError as error:
            raise WireClosed(f"the other side is gone ({os.strerror(error.errno or 0)})") from error
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._fds.extend(numbers)
        if not piece:
            raise WireClosed("the other side closed the connection")
        self._buffer += piece
        if b"\n" in piece:
            *lines, rest = bytes(self._buffer).split(b"\n")
            self._lines += lines
            self._buffer = bytearray(rest)
        if len(self._buffer) > MAX_LINE_BYTES:
            raise WireGarbage(f"a line is longer than {MAX_LINE_BYTES} bytes")
