"""Which known name was meant: the end of a message about one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CLOSE = 0.8
"""How alike two names are at least, by ``difflib``: one wrong letter in five, or one letter too many in four."""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` with the known name nearest to ``wrong``, whatever their case; empty where none is near."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wrong.lower(), names, 1, _CLOSE)
    return f"; did you mean {names[close[0]]}?" if close else ""
