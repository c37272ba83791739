"""Seccomp filters, assembled here: a standing one for every worker, and a stricter one once compilation is over.

The standing filter refuses (EPERM) what a kernel never needs: tracing, mounts, namespaces, keys, BPF, performance
events, io_uring, module and kexec loading, sockets. The second kills the process that starts a program or forks.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from tilecast.sandbox.harness import syscalls

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS = 1, 38
_NR, _ARCH, _ARG0 = 0, 4, 16
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE_THREAD = 0x10000
_NEW_NAMESPACES = 0x7E020000 | 0x80
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10

# name: (x86_64, aarch64); None where the architecture lacks it
_TABLE: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "memfd_secret": (447, 447),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
}
_CUDA_NEEDS = ("bind", "listen")
_SERVERS_NEED = (*_CUDA_NEEDS, "accept", "accept4")
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}

Instruction = tuple[int, int, int, int]


def _nr(name: str) -> int | None:
    column = 0 if syscalls.MACHINE == "x86_64" else 1
    return {**_TABLE, **_CALLS}[name][column]


def _head() -> list[Instruction]:
    """Kill on a foreign architecture; refuse the x32 numbers; leave the system call's number in the accumulator."""
    code: list[Instruction] = [
        (_LD, 0, 0, _ARCH),
        (_JEQ, 1, 0, _AUDIT_ARCH[syscalls.MACHINE]),
        (_RET, 0, 0, KILL_PROCESS),
        (_LD, 0, 0, _NR),
    ]
    if syscalls.MACHINE == "x86_64":
        code += [(_JGE, 0, 1, 0x40000000), (_RET, 0, 0, ERRNO | EPERM)]
    return code


def _always(name: str, action: int) -> list[Instruction]:
    nr = _nr(name)
    return [] if nr is None else [(_JEQ, 0, 1, nr), (_RET, 0, 0, action)]


def _unless_arg0(name: str, values: Sequence[int], action: int) -> list[Instruction]:
    """``action`` when the call's first argument (its low 32 bits) is none of ``values``."""
    nr, count = _nr(name), len(values)
    if nr is None:
        return []
    among = [(_JEQ, count - index, 0, value) for index, value in enumerate(values)]
    return [(_JEQ, 0, 3 + count, nr), (_LD, 0, 0, _ARG0), *among, (_RET, 0, 0, action), (_LD, 0, 0, _NR)]


def _if_arg0_has(name: str, bits: int, action: int, *, missing: bool = False) -> list[Instruction]:
    """``action`` when the first argument has one of the bits (or, with ``missing``, none of them)."""
    nr = _nr(name)
    if nr is None:
        return []
    jump = (1, 0) if missing else (0, 1)
    return [(_JEQ, 0, 4, nr), (_LD, 0, 0, _ARG0), (_JSET, *jump, bits), (_RET, 0, 0, action), (_LD, 0, 0, _NR)]


def standing_filter(*, unix_sockets: bool, own_pid: int | None, loopback: bool = False) -> list[Instruction]:
    """What holds from the start. ``own_pid``: signals may go to this process only (where no pid namespace hides others).

    ``unix_sockets`` also lets a process bind and listen on one: without that CUDA does not start (error 304). There is no
    network in its namespace, and Landlock keeps abstract names apart. With ``loopback``, for a namespace of a tool's own,
    connections within it too.
    """
    code = _head()
    needed = _SERVERS_NEED if loopback else _CUDA_NEEDS if unix_sockets else ()
    for name in _TABLE:
        if name not in needed:
            code += _always(name, ERRNO | EPERM)
    families = (_AF_UNIX, _AF_INET, _AF_INET6) if loopback else (_AF_UNIX,) if unix_sockets else ()
    code += _unless_arg0("socket", families, ERRNO | EPERM)
    code += _if_arg0_has("clone", _NEW_NAMESPACES, ERRNO | EPERM)
    code += _always("clone3", ERRNO | ENOSYS)  # its flags lie in memory, out of a filter's sight; libc falls back
    if own_pid is not None:
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            code += _unless_arg0(name, (own_pid,), ERRNO | EPERM)
        code += _always("tkill", ERRNO | EPERM)
    return [*code, (_RET, 0, 0, ALLOW)]


def no_processes_filter() -> list[Instruction]:
    """After compilation: starting a program or forking kills the process (SIGSYS); threads stay allowed."""
    code = _head()
    for name in ("fork", "vfork", "execve", "execveat"):
        code += _always(name, KILL_PROCESS)
    code += _always("clone3", ERRNO | ENOSYS)
    code += _if_arg0_has("clone", _CLONE_THREAD, KILL_PROCESS, missing=True)
    return [*code, (_RET, 0, 0, ALLOW)]


def available() -> bool:
    """Whether the architecture is known and the kernel has filters."""
    if syscalls.MACHINE not in _AUDIT_ARCH:
        return False
    try:
        syscalls.syscall("seccomp", syscalls.number("seccomp"), 2, 0, struct.pack("I", KILL_PROCESS))
    except OSError:
        return False
    return True


def install(program: list[Instruction]) -> None:
    """Put a filter in force for every thread of this process, for ever.

    Raises:
        OSError: if the kernel refuses or a thread cannot be brought under it.
    """
    blob = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(blob, len(blob))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    stuck = syscalls.syscall("seccomp", syscalls.number("seccomp"), 1, 1, header)
    if stuck != 0:
        raise OSError(EPERM, f"thread {stuck} could not be brought under the seccomp filter")
