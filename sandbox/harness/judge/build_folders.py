"""Folders for what candidates' compilers write: one for each candidate text, kept for its next evaluation if it passed.

Nothing in a folder is trusted, so it is given to workers of the very same text only: what one candidate wrote is never loaded
for another. Only candidates that build with ``torch.utils.cpp_extension`` are worth keeping; all else compiles in a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

KEPT = 8
_PREFIX = "tilecast-builds-"


class BuildFolders:
    """Gives folders out and takes them back; the least recently used of more than ``kept`` are removed.

    ``seed`` puts into a new folder what the judge itself has built.
    """

    def __init__(self, kept: int = KEPT, seed: Callable[[str], None] = lambda folder: None) -> None:
        self._kept, self._seed = kept, seed
        self._home: Path | None = None
        self._folders: dict[str, str] = {}

    def take(self, source: str) -> str:
        """The folder kept for this text, else a new one; it is the caller's until given back."""
        known = self._folders.pop(_key(source), None)
        if known is not None:
            return known
        folder = self.fresh()
        self.furnish(folder)
        return folder

    def knows(self, source: str) -> bool:
        """Whether one is kept for this text."""
        return _key(source) in self._folders

    def fresh(self) -> str:
        """A new folder that belongs to no text yet and holds nothing."""
        folder = tempfile.mkdtemp(dir=self._place())
        os.chmod(folder, 0o777)  # workers have user ids of their own
        return folder

    def furnish(self, folder: str) -> None:
        """Put into a new folder what the judge itself has built."""
        self._seed(folder)

    def drop(self, folder: str) -> None:
        """Remove one."""
        shutil.rmtree(folder, ignore_errors=True)

    def give_back(self, source: str, folder: str, *, passed: bool) -> None:
        """Keep it for the next evaluation of this text, or remove it."""
        if not passed or "cpp_extension" not in source:
            self.drop(folder)
            return
        self._folders[_key(source)] = folder
        while len(self._folders) > self._kept:
            self.drop(self._folders.pop(next(iter(self._folders))))

    def close(self) -> None:
        """Remove all of them."""
        self._folders.clear()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None

    def _place(self) -> Path:
        if self._home is None:
            _remove_orphans(Path(tempfile.gettempdir()))
            self._home = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
            self._home.chmod(0o711)
        return self._home


def _key(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _remove_orphans(place: Path) -> None:
    """Folders of judges that were killed. Another judge may be at it too: what is gone meanwhile is gone."""
    for folder in place.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(FileNotFoundError):
            if pid.isdigit() and folder.stat().st_uid == os.getuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)
