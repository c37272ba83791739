"""One compilation in a process of its own: a crash or an endless pass costs that compilation and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TAIL_BYTES = 4000
_PR_SET_PDEATHSIG = 1
_waited_s = 0.0


def call(work: Callable[[], dict[str, Any]], limit_s: float) -> dict[str, Any]:
    """``work()`` in a forked child, for at most ``limit_s`` seconds.

    The answer is what it returned, or ``{"died": signal or exit code, "log": …}``, or ``{"timeout": limit_s, "log": …}``;
    ``log`` is the end of what was printed, where compilers put their diagnostics. The child and all that it started are
    gone when this returns. ``work`` returns plain JSON values.
    """
    global _waited_s
    started = time.monotonic()
    try:
        return _call(work, limit_s)
    finally:
        _waited_s += time.monotonic() - started


def waited_s() -> float:
    """Seconds that this process has spent in :func:`call`."""
    return _waited_s


def _call(work: Callable[[], dict[str, Any]], limit_s: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as log:
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _in_child(work, writing, log.fileno())
        os.close(writing)
        text, timed_out = _read_until(reading, time.monotonic() + limit_s)
        os.close(reading)
        if timed_out:
            kill_tree(pid)
        _, status = os.waitpid(pid, 0)
        if timed_out:
            return {"timeout": limit_s, "log": _tail(log.fileno())}
        with contextlib.suppress(ValueError):
            answer = json.loads(text)
            if isinstance(answer, dict):
                answer.setdefault("log", _tail(log.fileno()))
                return answer
        return {"died": os.waitstatus_to_exitcode(status), "log": _tail(log.fileno())}


def _in_child(work: Callable[[], dict[str, Any]], writing: int, log: int) -> None:
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        with os.fdopen(writing, "w") as channel:
            channel.write(json.dumps(work(), default=str))
        code = 0
    finally:
        os._exit(code)


def _read_until(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return b"".join(parts), True
        part = os.read(descriptor, 1 << 16)
        if not part:
            return b"".join(parts), False
        parts.append(part)


def _tail(descriptor: int) -> str:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    return os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode("utf-8", "replace")


def kill_tree(pid: int) -> None:
    """SIGKILL a process and its descendants. The process group stays the worker's, so that whoever kills that gets these too."""
    for child in _children(pid):
        kill_tree(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # "pid (name) state ppid …": the name may hold anything, the last parenthesis ends it.
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found
