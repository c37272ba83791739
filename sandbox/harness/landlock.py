"""Landlock rules through raw system calls: which files a worker may read and write, no TCP, no signals outward.

Linux 5.13 and newer; what an older kernel's ABI lacks is left out, and :func:`abi` says what is there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from tilecast.sandbox.harness import syscalls

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
_FS_BITS_BY_ABI = {1: 13, 2: 14, 3: 15}  # number of access bits the ABI knows (ioctl, bit 15, is never handled)
_FILE_BITS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14


def abi() -> int:
    """Version of the kernel's Landlock, 0 where there is none."""
    try:
        return syscalls.syscall("landlock", _CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


def restrict(readable: Iterable[str], writable: Iterable[str], *, tcp: bool = False) -> None:
    """Confine this thread and its future children: everything not named is out of reach. Missing paths are skipped.

    ``tcp`` leaves TCP alone: for who has a network namespace of his own.

    Raises:
        OSError: if the kernel refuses.
    """
    version = abi()
    handled = (1 << _FS_BITS_BY_ABI.get(version, 15)) - 1
    fields = [handled]
    if version >= 4:
        fields.append(0 if tcp else 3)  # bind and connect
    if version >= 6:
        fields.append(3)  # abstract unix sockets, signals
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = syscalls.syscall("landlock_create_ruleset", _CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for paths, access in ((readable, _READ), (writable, handled)):
            for path in paths:
                _allow(ruleset, path, access & handled)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _FILE_BITS
        rule = struct.pack("=Qi", access, fd)
        syscalls.syscall(f"landlock_add_rule {path}", _ADD_RULE, ruleset, 1, rule, 0)
    finally:
        os.close(fd)
