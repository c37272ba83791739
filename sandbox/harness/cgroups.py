"""Control groups, where this machine lets us make any: a worker's whole tree bounded in memory and number of processes.

Resource limits hold for each process by itself, and root's number of processes has none; a group bounds them together. Versions 1
and 2 of the kernel's interface are tried, at the group that this process is in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

_PREFIX = "tilecast-"
_AROUND_WORKER = 8
"""Processes and threads in the group that are the harness's own: outermost fork, init of the namespace, and their like."""
_MEMORY_FILES = ("memory.max", "memory.limit_in_bytes")


def find() -> tuple[str, ...]:
    """Folders in which groups can be made, found by making one: one (version 2), two (version 1), or none."""
    for folders in (_second_version(), _first_version()):
        for folder in folders:
            _clear_left_behind(folder)
        if folders and _usable(folders):
            return folders
    return ()


def places(folders: Sequence[str], owner: int, pid: int) -> list[str]:
    """The groups of a worker whose outermost process is ``pid``, made for the fork server ``owner``."""
    return [f"{folder}/{_PREFIX}{owner}-{pid}" for folder in folders]


def enter(folders: Sequence[str], owner: int, memory_bytes: int, processes: int) -> None:
    """Make groups with these limits and put the calling process into them; what it forks is born there.

    ``processes`` counts threads too.

    Raises:
        OSError: if that was refused.
    """
    groups = places(folders, owner, os.getpid())
    for place in groups:
        os.mkdir(place)
    for name, value in ((_MEMORY_FILES, memory_bytes), (("pids.max",), processes + _AROUND_WORKER)):
        if groups and not _write_first(groups, name, str(value)):
            raise OSError(f"no control group takes {name[0]}")
    with contextlib.suppress(OSError):  # swap is not counted everywhere
        if not _write_first(groups, ("memory.swap.max",), "0"):
            _write_first(groups, ("memory.memsw.limit_in_bytes",), str(memory_bytes))
    for place in groups:
        _write(f"{place}/cgroup.procs", str(os.getpid()))


def remove(groups: Sequence[str]) -> list[str]:
    """Remove groups; those that still hold a dying process are given back, to be tried again."""
    left = []
    for place in groups:
        try:
            os.rmdir(place)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(place)
    return left


def _usable(folders: Sequence[str]) -> bool:
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            enter(folders, owner, 1 << 30, 64)
            code = 0
        finally:
            os._exit(code)
    entered = os.waitpid(pid, 0)[1] == 0
    remove(places(folders, owner, pid))
    return entered


def _second_version() -> tuple[str, ...]:
    """This process's own group or the one above it: groups below need controllers that are passed on, which a group with
    processes in it mostly cannot do."""
    for _, mount, root in _mounts("cgroup2"):
        own = _below(mount, root, _own_paths().get("", "/"))
        for place in dict.fromkeys((own, os.path.dirname(own) if own != mount else own)):
            try:
                with open(f"{place}/cgroup.subtree_control", encoding="ascii") as file:
                    passed_on = set(file.read().split())
            except OSError:
                continue
            if {"memory", "pids"} <= passed_on:
                return (place,)
    return ()


def _first_version() -> tuple[str, ...]:
    found: dict[str, str] = {}
    own = _own_paths()
    for controllers, mount, root in _mounts("cgroup"):
        for name in {"memory", "pids"} & controllers:
            found[name] = _below(mount, root, own.get(name, "/"))
    return tuple(dict.fromkeys(found[name] for name in ("memory", "pids"))) if len(found) == 2 else ()


def _mounts(kind: str) -> list[tuple[set[str], str, str]]:
    """Options, mount point and the root of each mounted hierarchy of a kind (proc_pid_mountinfo(5))."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            fields, rest = before.split(), after.split()
            if rest[:1] == [kind]:
                found.append((set(rest[2].split(",")) if len(rest) > 2 else set(), fields[4], fields[3]))
    return found


def _own_paths() -> dict[str, str]:
    """This process's group by controller; version 2 has the empty name."""
    found = {}
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, names, path = line.rstrip("\n").split(":", 2)
            found.update(dict.fromkeys(names.split(","), path))
    return found


def _below(mount: str, root: str, path: str) -> str:
    """A group's folder. Inside a container the path may be the host's, of which only the mount's root is in view."""
    inside = path.removeprefix(root.rstrip("/")) if path.startswith(root) else path
    place = f"{mount}/{inside.strip('/')}".rstrip("/")
    return place if os.path.isdir(place) else mount


def _clear_left_behind(folder: str) -> None:
    """Groups of fork servers that were killed before they could remove them."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            owner = name.removeprefix(_PREFIX).partition("-")[0]
            if name.startswith(_PREFIX) and owner.isdecimal() and not os.path.exists(f"/proc/{owner}"):
                remove([f"{folder}/{name}"])


def _write_first(groups: Sequence[str], names: Sequence[str], value: str) -> bool:
    for place in groups:
        for name in names:
            if os.path.exists(f"{place}/{name}"):
                _write(f"{place}/{name}", value)
                return True
    return False


def _write(path: str, value: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(value)
