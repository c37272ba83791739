"""Whose turn it is: one evaluation at a time on a device (see :mod:`tilecast.sandbox.turns`), one process on a run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.sandbox.turns import device_turn, lock_file, sandbox_turn

__all__ = ["RunLock", "device_turn", "is_worked_on", "lock_file", "make_folder", "sandbox_turn"]


class RunLock:
    """Held by the process that works on a run; released by the system when the process ends, however it ends."""

    def __init__(self, run_dir: Path, run_id: str) -> None:
        """Take it.

        Raises:
            UsageError: if another process holds it.
            EnvironmentFailure: if the folder cannot be written.
        """
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise EnvironmentFailure(f"the run's folder {run_dir} cannot be written: {error}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise UsageError(f"run {run_id} is being worked on by process {holder or '?'}; stop it first") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let another process take the run up."""
        os.close(self._descriptor)


def make_folder(run_dir: Path, named: bool) -> None:
    """Before there is a run in the record: a mistake leaves none behind.

    Raises:
        UsageError: if the folder that the user named cannot be made.
        EnvironmentFailure: if the one in the user's own folder cannot.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if named:
            raise UsageError(
                f"--run-dir {run_dir.parent}: {error.strerror}; name a folder that you may write to"
            ) from error
        raise EnvironmentFailure(
            f"the run's folder {run_dir} cannot be made ({error.strerror}); set TILECAST_HOME to a folder that you may write to"
        ) from error


def is_worked_on(run_dir: Path) -> bool:
    """Whether a process holds the run's lock now."""
    try:
        descriptor = os.open(run_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
