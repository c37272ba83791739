"""The processes around a worker: who reaps it, who reports how it ended, and how nothing of it survives."""

from __future__ import annotations

import os
import signal
import struct
from typing import NoReturn

from tilecast.sandbox.harness import syscalls

STATUS = struct.Struct("i")
"""How the raw wait status travels on the status pipe."""


def fork_as_outer() -> None:
    """Fork; the parent stays outside the pid namespace, only to wait for the end of its init. Returns in the child."""
    pid = os.fork()
    if pid:
        os.closerange(3, 1 << 16)
        status = os.waitpid(pid, 0)[1]
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def fork_under_init(status_fd: int, *, subreaper: bool) -> None:
    """Fork; the parent reaps whatever appears below it, reports the worker's status and ends all. Returns in the worker.

    In a pid namespace the parent is process 1; elsewhere it adopts orphans as a ``subreaper`` and kills them.
    """
    if subreaper:
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid:
        _reap_until(pid, status_fd)
    os.close(status_fd)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _reap_until(worker: int, status_fd: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, status_fd)
    os.closerange(status_fd + 1, 1 << 16)
    pid = status = 0
    while pid != worker:
        pid, status = os.waitpid(-1, 0)
    os.write(status_fd, STATUS.pack(status))
    kill_descendants(os.getpid())
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def kill_descendants(pid: int) -> None:
    """Kill every running descendant of a process, repeatedly (they may be forking), until none is left."""
    for _ in range(100):
        found = descendants(pid)
        if not found:
            return
        for child in found:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue


def descendants(pid: int) -> list[int]:
    """Process ids below ``pid`` that run (zombies left out), as this process's own /proc shows them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state != "Z":
                children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    rest = [pid]
    while rest:
        below = children.get(rest.pop(), [])
        found += below
        rest += below
    return found


def command_line(pid: int) -> str:
    """What a process was started as, at most 120 characters; its number if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120] or f"process {pid}"
    except OSError:
        return f"process {pid}"


def eldest_chain(outermost: int, depth: int) -> list[int]:
    """A process and, ``depth`` times, the eldest child of the one before."""
    chain = [outermost]
    for _ in range(depth):
        children = _children(chain[-1])
        if not children:
            break
        chain.append(min(children))
    return chain


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(item) for item in file.read().split()]
    except OSError:
        return []


def thread_count(pid: int) -> int:
    """Threads of a process, 0 if it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
