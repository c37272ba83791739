"""Which files a candidate may have written: those in the worker's private folders, without the packages that lie below them.

A virtual environment below ``/tmp`` is in view there, read-only; what comes from it is no candidate's.
"""

from __future__ import annotations

import os
import sys


def _installed() -> tuple[str, ...]:
    """Folders that packages were imported from before any candidate was: of this process, when this module is imported."""
    places = {os.path.abspath(place) for place in (*sys.path, sys.prefix, sys.base_prefix) if place}
    return tuple(sorted(os.path.join(place, "") for place in places))


_INSTALLED = _installed()


def private_folders() -> tuple[str, ...]:
    """Where a worker may write: for temporary files, and for extensions that it builds."""
    places = {os.environ.get(name, "/tmp") for name in ("TMPDIR", "TORCH_EXTENSIONS_DIR")}
    return tuple(sorted(os.path.join(place, "") for place in places))


def is_private(file: str) -> bool:
    """Whether a file lies where a candidate may have put it."""
    private = private_folders()
    # A folder for packages that holds a private one, or is one, says nothing of what is in there.
    installed = [place for place in _INSTALLED if not any(own.startswith(place) for own in private)]
    return file.startswith(private) and not file.startswith(tuple(installed))
