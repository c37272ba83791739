"""Raw Linux system calls that Python's ``os`` does not offer, through ctypes; no third-party package."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 16384, 1 << 18, 2
LOCKED_FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_SET_DUMPABLE = 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522

MACHINE = platform.machine()
_NUMBERS = {
    "x86_64": {"pivot_root": 155, "seccomp": 317},
    "aarch64": {"pivot_root": 41, "seccomp": 277},
}

_libc = ctypes.CDLL(None, use_errno=True)


def number(name: str) -> int:
    """Number of a system call on this machine.

    Raises:
        OSError: ENOSYS on an architecture that is not known here.
    """
    try:
        return _NUMBERS[MACHINE][name]
    except KeyError:
        raise OSError(38, f"{name} is not known on {MACHINE}") from None


def check(result: int, what: str) -> int:
    """Turn a C return value below zero into OSError."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(what: str, nr: int, *arguments: object) -> int:
    """Any system call by number.

    Raises:
        OSError: with ``what`` in its text.
    """
    return check(int(_libc.syscall(ctypes.c_long(nr), *arguments)), what)


def prctl(option: int, *arguments: int) -> int:
    """``prctl(2)``; arguments are padded with zeros."""
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return check(int(_libc.prctl(option, *padded)), f"prctl {option}")


def unshare(flags: int) -> None:
    """``unshare(2)``."""
    check(int(_libc.unshare(flags)), f"unshare {flags:#x}")


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """``mount(2)``."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    result = _libc.mount(*encoded, ctypes.c_ulong(flags), options.encode() if options else None)
    check(int(result), f"mount {target}")


def umount(target: str, flags: int = MNT_DETACH) -> None:
    """``umount2(2)``."""
    check(int(_libc.umount2(os.fsencode(target), flags)), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """``pivot_root(2)``."""
    syscall("pivot_root", number("pivot_root"), os.fsencode(new), os.fsencode(old))


def drop_capabilities() -> None:
    """Give up every capability for good (bounding set included where allowed) and forbid gaining any by exec."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # past the last capability of this kernel, or not ours to drop
    prctl(PR_CAP_AMBIENT, 4)
    header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
    check(int(_libc.capset(header, b"\0" * 24)), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def has_capability(bit: int) -> bool:
    """Whether this process has an effective capability, by its number (21 is CAP_SYS_ADMIN)."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> bit & 1)
    return False


def malloc_perturb(byte: int) -> bool:
    """Ask glibc to fill memory on allocation and on free with patterns made from ``byte``; False without glibc."""
    try:
        return bool(_libc.mallopt(-6, byte))
    except AttributeError:
        return False
