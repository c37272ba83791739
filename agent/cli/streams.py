"""The standard streams as their readers leave them: a reader that went away, a full disk, a stream that was never open."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from typing import IO, Any

from tilecast.sandbox.errors import EnvironmentFailure


class Outlet(io.FileIO):
    """A descriptor written to for as long as somebody reads; what comes after that is dropped.

    An exit code must stay true where ``| head -1`` has read enough: writing on never ends a command.
    """

    def __init__(self, descriptor: int, lost: Callable[[], None], full: Callable[[OSError], None]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._lost, self._full, self._gone = lost, full, False

    def write(self, data: Any) -> int:
        """As usual; all of it counts as written where nobody can have it any more.

        Raises:
            EnvironmentFailure: once, if the disk behind standard output is full.
        """
        if not self._gone:
            try:
                return super().write(data)
            except BrokenPipeError:
                self._gone = True
                self._lost()
            except OSError as error:
                self._gone = True
                self._full(error)
        return memoryview(data).nbytes


def guard(goes_on: bool) -> None:
    """Put outlets under standard output and standard error; a terminal, and what a caller put in their place, is left as it is.

    Args:
        goes_on: whether the command goes on when nobody reads its log any more (a server does). Otherwise that is taken as
            Ctrl-C: who closed the log of a run wants it to end, and it ends in order.
    """
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(sys.stdout, 1, lambda: None, _no_room)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(sys.stderr, 2, (lambda: None) if goes_on else _interrupt, lambda error: None)


def _guarded(
    stream: IO[str] | None, descriptor: int, lost: Callable[[], None], full: Callable[[OSError], None]
) -> io.TextIOWrapper[Any]:
    if stream is None:  # closed before the command began: nobody reads it
        return open(os.devnull, "w", encoding="utf-8")
    assert isinstance(stream, io.TextIOWrapper)
    # A name that the encoding lacks is told all the same; standard error does so by itself.
    errors = "backslashreplace" if stream.errors == "strict" else stream.errors
    if stream.isatty():
        stream.reconfigure(errors=errors)
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(Outlet(descriptor, lost, full)),
        encoding=stream.encoding,
        errors=errors,
        line_buffering=stream.line_buffering,
    )


def _interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def _no_room(error: OSError) -> None:
    raise EnvironmentFailure(
        f"standard output cannot be written ({error.strerror}): what was found out is not all there; "
        "make room, or send it elsewhere"
    ) from error
