"""Isolation of a worker by what the machine offers, and the name of the level in force.

In full: own mount, pid, network, ipc and uts namespaces with a root made of read-only binds, private ``/tmp`` and a new
``/proc``; no capabilities; Landlock; seccomp; resource limits and control groups. Each layer that the machine lacks is left out
and the level says so. Runs in a fresh fork with one thread, before any untrusted code.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from tilecast.sandbox.harness import cgroups, landlock, mounts, process_tree, seccomp, syscalls

_NOBODY = 65534
_FIRST_UID, _UIDS = 40000, 20000
_CAP_SYS_ADMIN = 21
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
LOWER_TO = "TILECAST_SANDBOX"
"""Environment variable: ``landlock`` does without namespaces, ``limits`` without all but limits. The level says so."""
Namespaces = Literal["root", "user", "none"]


@dataclass(frozen=True)
class Limits:
    """What one worker may use. ``memory_bytes`` bounds each process's address space (on CUDA, which reserves much, its private
    data) and, with the private ``/tmp``, what all of them hold together, where the machine has control groups.

    ``processes`` counts threads too; ``cpu_s`` is processor time; ``tmp_bytes`` bounds the private ``/tmp``.
    """

    memory_bytes: int = 4 << 30
    cpu_s: int = 600
    file_bytes: int = 512 << 20
    processes: int = 128
    open_files: int = 512
    tmp_bytes: int = 1 << 30


@dataclass(frozen=True)
class Enclosure:
    """What a worker sees of the machine: read-only paths, device nodes, and one writable folder kept between workers."""

    readonly: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    cache: str | None = None
    """Bound at ``/cache``: compile caches of one candidate. Nothing in it is trusted."""
    cuda: bool = False
    loopback: bool = False
    """A profiler talks to the program it starts over TCP: connections within the worker's own network namespace, which leads
    nowhere else. Without such a namespace there are none."""

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Enclosure:
        """From plain JSON (``dataclasses.asdict`` makes it)."""
        return cls(**{**message, "readonly": tuple(message["readonly"]), "devices": tuple(message["devices"])})


@dataclass(frozen=True)
class Abilities:
    """What this machine offers, found by trying."""

    namespaces: Namespaces
    landlock_abi: int
    seccomp: bool
    cgroups: tuple[str, ...] = ()
    """Folders in which control groups can be made."""

    @property
    def level(self) -> str:
        """The level in force, for people and records: ``namespaces+landlock+seccomp+cgroups`` down to ``limits only``."""
        parts = [
            *(["namespaces"] if self.namespaces != "none" else []),
            *(["landlock"] if self.landlock_abi else []),
            *(["seccomp"] if self.seccomp else []),
            *(["cgroups"] if self.cgroups else []),
        ]
        return "+".join(parts) or "limits only"

    @property
    def is_sandbox(self) -> bool:
        """Whether files and system calls are confined: what ``--require-sandbox`` demands."""
        return self.seccomp and (self.namespaces != "none" or self.landlock_abi > 0)


def probe() -> Abilities:
    """Find out by trying, in a forked child each; called before the process has threads."""
    namespaces: Namespaces = "none"
    if syscalls.has_capability(_CAP_SYS_ADMIN) and _works(lambda: _try_namespaces("root")):
        namespaces = "root"
    elif _works(lambda: _try_namespaces("user")):
        namespaces = "user"
    version = landlock.abi()
    if version and not _works(lambda: landlock.restrict(["/usr"], [])):
        version = 0
    filters = seccomp.available() and _works(lambda: seccomp.install(seccomp.no_processes_filter()))
    return _lowered(Abilities(namespaces, version, filters, cgroups.find()), os.environ.get(LOWER_TO, ""))


def _lowered(found: Abilities, wish: str) -> Abilities:
    """What is left of the abilities where the user asks for less, to run as on a machine that offers no more."""
    if wish == "landlock":
        return Abilities("none", found.landlock_abi, found.seccomp, found.cgroups)
    return Abilities("none", 0, False) if wish == "limits" else found


def _works(action: Callable[[], object]) -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except OSError:
            code = 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _try_namespaces(kind: Namespaces) -> None:
    _unshare(kind, keep_uid=True, cuda=False)
    root = mounts.build_root((), (), None, 1 << 20)
    if not _works(lambda: mounts.enter_root(root)):
        raise OSError("a new root was refused")


def _unshare(kind: Namespaces, *, keep_uid: bool, cuda: bool) -> None:
    uid, gid = os.getuid(), os.getgid()
    flags = syscalls.NEWNS | syscalls.NEWPID | syscalls.NEWNET | syscalls.NEWUTS
    if not cuda:  # CUDA memory sharing was only ever seen to work without a new ipc namespace
        flags |= syscalls.NEWIPC
    syscalls.unshare(flags | (syscalls.NEWUSER if kind == "user" else 0))
    if kind == "user":
        inside = (uid, gid) if keep_uid else (_NOBODY, _NOBODY)
        maps = (("setgroups", "deny"), ("uid_map", f"{inside[0]} {uid} 1"), ("gid_map", f"{inside[1]} {gid} 1"))
        for name, text in maps:
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def enclose(abilities: Abilities, enclosure: Enclosure, limits: Limits, status_fd: int) -> None:
    """Confine the calling fork. Returns in the worker, one or two forks down; the processes between never return.

    The worker's raw wait status is written to ``status_fd`` by its parent, out of the worker's reach.

    Raises:
        OSError: if a layer that the machine has could not be applied (fail closed).
    """
    if abilities.namespaces == "none":
        enclosure = replace(enclosure, loopback=False)
        process_tree.fork_under_init(status_fd, subreaper=True)
    else:
        _unshare(abilities.namespaces, keep_uid=enclosure.cuda, cuda=enclosure.cuda)
        if enclosure.loopback:
            _raise_loopback()
        root = mounts.build_root(
            enclosure.readonly, enclosure.devices, enclosure.cache, limits.tmp_bytes, names=enclosure.loopback
        )
        process_tree.fork_as_outer()
        process_tree.fork_under_init(status_fd, subreaper=False)
        mounts.enter_root(root, names_threads=enclosure.cuda)
    _set_limits(limits, cuda=enclosure.cuda)
    if os.getuid() == 0 and abilities.namespaces != "user" and not enclosure.cuda:
        _become_nobody()
    syscalls.drop_capabilities()
    if abilities.landlock_abi:
        _apply_landlock(abilities, enclosure)
    if abilities.seccomp:
        own = None if abilities.namespaces != "none" else os.getpid()
        seccomp.install(seccomp.standing_filter(unix_sockets=enclosure.cuda, own_pid=own, loopback=enclosure.loopback))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", b"lo", _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _apply_landlock(abilities: Abilities, enclosure: Enclosure) -> None:
    writable = ["/dev/null", "/dev/zero", "/dev/full", *enclosure.devices]
    if enclosure.cuda:
        # CUDA names its threads by writing to /proc/self/task/*/comm and does not start where it cannot. The open
        # descriptor keeps the folder's inode, to which the rule is bound. The rest of /proc stays read-only: with the
        # judge's uid, /proc/sys would take orders.
        own = os.path.realpath("/proc/self")
        os.open("/proc/self", os.O_PATH | os.O_CLOEXEC)
        # A tool's program is another process, not there yet. What takes orders in their /proc is mounted read-only.
        writable.append("/proc" if enclosure.loopback else own)
    if abilities.namespaces != "none":
        landlock.restrict(["/"], [*writable, "/tmp", "/dev/shm", "/cache"], tcp=enclosure.loopback)
        return
    cache = [enclosure.cache] if enclosure.cache else []
    system = ["/bin", "/sbin", "/lib", "/lib64", "/dev/urandom", "/dev/random", "/proc", "/sys"]
    landlock.restrict([*mounts.SYSTEM_FILES, *system, *enclosure.readonly], [*writable, os.getcwd(), *cache])


def _become_nobody() -> None:
    """A user id of this worker's own: root's files are out of reach, and the limit on processes counts (root's does not)."""
    own = _FIRST_UID + int.from_bytes(os.urandom(4), "little") % _UIDS
    os.setgroups([])
    os.setresgid(own, own, own)
    os.setresuid(own, own, own)
    # The change of ids cleared both: die with the parent, and let the worker read its own /proc/self.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)


def _set_limits(limits: Limits, *, cuda: bool) -> None:
    memory = resource.RLIMIT_DATA if cuda else resource.RLIMIT_AS
    for kind, value in (
        (memory, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (wanted, wanted))
