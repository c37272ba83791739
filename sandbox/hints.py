"""Which known name was meant: the end of a message about one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

_CLOSE = 0.8
"""How alike two names are at least, by ``difflib``: one wrong letter in five, or one letter too many in four."""
_CLOSE_PATHS = 0.7
"""For names of files, of which a wrong guess misleads less: two letters swapped in four are near."""
_SIBLINGS = 5000
"""Entries of a folder that are looked at."""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` with the known name nearest to ``wrong``, whatever their case; empty where none is near."""
    close = nearest(wrong, known, _CLOSE)
    return "" if close is None else f"; did you mean {close}?"


def no_such_file(path: Path) -> str:
    """That there is no such file, with the path there is whose one wrong step, a folder or a Python file, is nearly so called."""
    try:
        close = _nearest_path(path)
    except (OSError, ValueError):
        close = None
    return f"{path}: no such file" + ("" if close is None else f"; did you mean {close}?")


def nearest(wrong: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name most like ``wrong``, whatever their case; None where none is as much alike as ``cutoff``."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wrong.lower(), names, 1, cutoff)
    return names[close[0]] if close else None


def _nearest_path(path: Path) -> Path | None:
    wrong = path
    while not wrong.parent.is_dir():
        wrong = wrong.parent
        if wrong == wrong.parent:
            return None
    rest = path.relative_to(wrong)
    beside = [near for near in islice(wrong.parent.iterdir(), _SIBLINGS) if near.suffix == ".py" or near.is_dir()]
    close = nearest(wrong.name, [near.name for near in beside if (near / rest).exists()], _CLOSE_PATHS)
    return None if close is None else wrong.parent / close / rest
