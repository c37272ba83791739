"""Control groups: a whole tree of processes bounded together, removed afterwards; absent where the machine offers none."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilecast.sandbox.harness import cgroups
from tilecast.sandbox.harness.isolation import Abilities, _lowered
from tilecast.sandbox.harness.judge.zygotes import Zygotes

FOLDERS = cgroups.find() if sys.platform == "linux" else ()
needs_groups = pytest.mark.skipif(not FOLDERS, reason="this machine lets us make no control groups")


def in_groups(memory_bytes: int, processes: int, action: Callable[[], int]) -> int:
    """Exit code of ``action`` in a fork inside of groups with these limits (minus the signal that ended it)."""
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            cgroups.enter(FOLDERS, owner, memory_bytes, processes)
            code = action()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left, deadline = cgroups.places(FOLDERS, owner, pid), time.monotonic() + 10.0
    while (left := cgroups.remove(left)) and time.monotonic() < deadline:
        time.sleep(0.05)  # its children were killed with it, and a dying process holds its group until it is gone
    assert left == []
    return code


def touch(size: int) -> Callable[[], int]:
    def run() -> int:
        held = bytearray(size)
        held[::4096] = b"x" * len(held[::4096])
        return 0

    return run


@needs_groups
def test_what_one_process_may_have_is_there() -> None:
    assert in_groups(256 << 20, 16, touch(64 << 20)) == 0


@needs_groups
def test_memory_is_bounded_for_one_process() -> None:
    assert in_groups(64 << 20, 16, touch(256 << 20)) == -signal.SIGKILL


@needs_groups
def test_processes_are_bounded_also_for_root() -> None:
    def fork_on() -> int:
        made = []
        while len(made) < 200:
            try:
                pid = os.fork()
            except OSError:
                break
            if pid == 0:
                signal.pause()
            made.append(pid)
        for pid in made:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return len(made)

    assert 20 <= in_groups(256 << 20, 20, fork_on) < 40


@needs_groups
def test_groups_of_a_dead_server_are_cleared() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    left = cgroups.places(FOLDERS, pid, 1)
    for place in left:
        os.mkdir(place)
    cgroups.find()
    assert not any(os.path.exists(place) for place in left)


def test_where_there_are_none_nothing_is_made() -> None:
    cgroups.enter((), os.getpid(), 1, 1)
    assert cgroups.places((), 1, 2) == [] and cgroups.remove([]) == []


def test_the_level_names_them() -> None:
    full = Abilities("root", 7, True, ("/sys/fs/cgroup/pids",))
    assert full.level == "namespaces+landlock+seccomp+cgroups"
    assert _lowered(full, "limits").level == "limits only"


@needs_groups
def test_a_tree_shares_one_limit() -> None:
    """Each child stays below what one process may have; together they do not."""

    def two() -> int:
        pids = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                held = bytearray(48 << 20)
                held[::4096] = b"x" * len(held[::4096])
                time.sleep(2)
                os._exit(0)
            pids.append(pid)
        ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        return ended.count(-signal.SIGKILL)

    assert in_groups(500 << 20, 16, two) == 0
    assert in_groups(120 << 20, 16, two) in (1, 2, -signal.SIGKILL)


@needs_groups
def test_a_worker_is_in_a_group_of_its_own_and_the_group_goes_with_it() -> None:
    zygotes = Zygotes()
    try:
        worker = zygotes.spawn_job("candidate", {"device": "cpu", "interpret": False})
        assert worker.channel.receive(60.0) == {"up": True}
        assert zygotes.level.endswith("cgroups")
        (found,) = [name for name in os.listdir(FOLDERS[-1]) if name.endswith(f"-{worker.pid}")]
        members = Path(FOLDERS[-1], found, "cgroup.procs").read_text().split()
        assert len(members) >= 2  # the worker and the init above it
        worker.kill()
        for _ in range(10):  # a dying process may hold its group a while: each new worker is another try
            other = zygotes.spawn_job("candidate", {"device": "cpu", "interpret": False})
            assert other.channel.receive(60.0) == {"up": True}
            other.kill()
            if not Path(FOLDERS[-1], found).exists():
                return
            time.sleep(0.5)
        raise AssertionError("the group is still there")
    finally:
        zygotes.close()
