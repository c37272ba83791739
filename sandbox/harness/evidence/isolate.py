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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TAIL_BYTES = 4000
_PR_SET_PDEATHSIG = 1
PATIENCE = 3.0
_CHECK_S = 0.25
_waited_s = 0.0


@dataclass(frozen=True)
class Budget:
    """What one compilation may take: processor seconds, so that a busy machine makes no kernel look bad, and until when.

    By the clock it may take ``PATIENCE`` times the processor seconds (a compiler that waits for ever uses none).
    """

    cpu_s: float
    deadline: float
    """On the monotonic clock."""

    @property
    def spent(self) -> bool:
        """Whether there is no time left."""
        return time.monotonic() >= self.deadline


def call(work: Callable[[], dict[str, Any]], budget: Budget) -> dict[str, Any]:
    """``work()`` in a forked child, within a budget.

    The answer is what it returned, or ``{"died": signal or exit code}``, or ``{"timeout": seconds}``, or ``{"starved":
    seconds}`` where the deadline came before the compiler had its share of the processor; each with ``log``, the end of what
    was printed, where compilers put their diagnostics. The child and all that it started are gone when this returns.
    ``work`` returns plain JSON values.
    """
    global _waited_s
    started = time.monotonic()
    try:
        return _call(work, budget)
    finally:
        _waited_s += time.monotonic() - started


def waited_s() -> float:
    """Seconds that this process has spent in :func:`call`."""
    return _waited_s


def _call(work: Callable[[], dict[str, Any]], budget: Budget) -> dict[str, Any]:
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as log:
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _in_child(work, writing, log.fileno())
        os.close(writing)
        text, stopped = _read_within(reading, pid, budget)
        os.close(reading)
        if stopped:
            kill_tree(pid)
        _, status = os.waitpid(pid, 0)
        if stopped:
            return stopped | {"log": _tail(log.fileno())}
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


def _read_within(descriptor: int, pid: int, budget: Budget) -> tuple[bytes, dict[str, float]]:
    """What comes until the end of file, or why reading was stopped."""
    parts: list[bytes] = []
    started = time.monotonic()
    while True:
        elapsed = time.monotonic() - started
        if elapsed >= budget.cpu_s and (elapsed >= PATIENCE * budget.cpu_s or tree_cpu_s(pid) >= budget.cpu_s):
            return b"", {"timeout": round(elapsed, 1)}
        if budget.spent:
            return b"", {"starved": round(elapsed, 1)}
        wait_s = min(_CHECK_S, max(0.0, budget.cpu_s - elapsed) or _CHECK_S, budget.deadline - time.monotonic())
        if not select.select([descriptor], [], [], max(0.0, wait_s))[0]:
            continue
        part = os.read(descriptor, 1 << 16)
        if not part:
            return b"".join(parts), {}
        parts.append(part)


def tree_cpu_s(pid: int) -> float:
    """Processor seconds of a process, of its running descendants, and of those that it has waited for."""
    ticks = sum(_ticks(pid))
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(tree_cpu_s, _children(pid)))


def _ticks(pid: int) -> list[int]:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return [int(value) for value in _stat(pid)[11:15]]
    return []


def _stat(pid: int) -> list[str]:
    """Fields behind the name: "pid (name) state ppid …"; the name may hold anything, the last parenthesis ends it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


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
                if int(_stat(int(entry.name))[1]) == pid:
                    found.append(int(entry.name))
    return found
