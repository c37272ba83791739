"""What a worker sees of the file system: a new root made of read-only binds, with a private ``/tmp``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tilecast.sandbox.harness import syscalls

SYSTEM_FILES = (
    "/usr",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full")
_PLACES = ("/mnt", "/media", "/srv", "/home", "/var/tmp", "/tmp")
_PROC_ORDERS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "driver", "scsi", "acpi")
"""What of /proc takes orders for the whole machine."""
_NAMES = {"/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n", "/etc/nsswitch.conf": "hosts: files\n"}
_PLAIN = syscalls.MS_NOSUID | syscalls.MS_NODEV


def build_root(
    readonly: Sequence[str], devices: Sequence[str], cache: str | None, tmp_bytes: int, *, names: bool = False
) -> str:
    """Assemble the new root in this mount namespace and return where; ``cache`` is bound writable at ``/cache``.

    With ``names`` it knows its own host by name: ``localhost`` and nothing else.

    Raises:
        OSError: if a mount is refused, or every place to build it in is itself to be seen.
    """
    wanted = [*readonly, *devices, *([cache] if cache else [])]
    root = _place(wanted)
    syscalls.mount("tmpfs", root, "tmpfs", _PLAIN, "size=16m,mode=755")
    for name in ("/proc", "/tmp", "/dev/shm", "/cache"):
        os.makedirs(root + name, exist_ok=True)
    # Before the binds: what is to be seen may itself lie in /tmp, and must not be covered.
    for name in ("/tmp", "/dev/shm"):
        syscalls.mount("tmpfs", root + name, "tmpfs", _PLAIN, f"size={tmp_bytes},mode=1777")
    for path in (*SYSTEM_FILES, *readonly):
        bind(path, root + path)
    for name in ("/bin", "/sbin", "/lib", "/lib64"):
        if os.path.islink(name):
            os.symlink(os.readlink(name), root + name)
        else:
            bind(name, root + name)
    for path in (*_DEVICES, *devices):
        bind(path, root + path, writable=True)
    if cache is not None:
        bind(cache, f"{root}/cache", writable=True)
    for path, text in _NAMES.items() if names else ():
        with open(root + path, "w", encoding="ascii") as file:
            file.write(text)
    return root


def _place(wanted: Sequence[str]) -> str:
    for place in _PLACES:
        if os.path.isdir(place) and not any(path == place or path.startswith(f"{place}/") for path in wanted):
            return place
    raise OSError(f"no place to build a root in: all of {', '.join(_PLACES)} are missing or in use")


def bind(source: str, target: str, *, writable: bool = False) -> None:
    """Bind one path, read-only unless said otherwise; a missing source is skipped."""
    if not os.path.exists(source):
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a", encoding="ascii"):
            pass
    syscalls.mount(source, target, None, syscalls.MS_BIND | syscalls.MS_REC)
    if not writable:
        # Flags that a more privileged owner locked must be repeated, or the remount is refused.
        locked = os.statvfs(source).f_flag & syscalls.LOCKED_FLAGS
        flags = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | syscalls.MS_NOSUID | locked
        syscalls.mount(None, target, None, flags)


def enter_root(root: str, *, names_threads: bool = False) -> None:
    """Make ``root`` the root of this process (first in a new pid namespace), with a new /proc, read-only.

    ``names_threads`` leaves processes' own folders in it writable: CUDA does not start where it cannot name its threads.
    """
    # Read-only: user id 0 may write to /proc/sys without any capability, and some workers keep it.
    flags = _PLAIN | syscalls.MS_NOEXEC
    syscalls.mount("proc", f"{root}/proc", "proc", flags if names_threads else flags | syscalls.MS_RDONLY)
    for name in _PROC_ORDERS if names_threads else ():
        bind(f"{root}/proc/{name}", f"{root}/proc/{name}")
    os.chdir(root)
    syscalls.pivot_root(".", ".")
    syscalls.umount(".")
    os.chdir("/tmp")
    syscalls.mount(None, "/", None, syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _PLAIN)
