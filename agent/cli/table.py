"""Columns of text in the width there is: cells fold between words, whole columns are left out, and nothing is ever cut off."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

GAP = 2
TIE = "\u00a0"
"""Between two words that stay in one line, a number and its unit; printed as a space."""
LEAST_BROKEN = 12
"""A cell that may be broken inside of a word is still given this many characters."""


@dataclass(frozen=True)
class Column:
    """One column; ``dropped`` is its turn to be left out, the lowest first, 0 for one that always stays."""

    head: str
    right: bool = False
    whole: bool = False
    """Never folded: an id that people copy."""
    breaks: bool = False
    """Folded inside of words where there is no other way."""
    dropped: int = 0


def terminal_width() -> int | None:
    """Characters in a line; None where the output is no terminal and nobody says how wide it is."""
    if "COLUMNS" not in os.environ and not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lines of the table, heads first.

    Args:
        columns: what there is.
        rows: a cell a column.
        width: characters in a line; None for as many as it takes.
    """
    cells = [[column.head, *(row[i] for row in rows)] for i, column in enumerate(columns)]
    least = [_least(column, texts) for column, texts in zip(columns, cells, strict=True)]
    shown = list(range(len(columns)))
    for i in sorted((i for i in shown if columns[i].dropped), key=lambda i: columns[i].dropped):
        if width is None or _total([least[j] for j in shown]) <= width:
            break
        shown.remove(i)
    widths = {i: max(map(len, cells[i])) for i in shown}
    if width is not None:
        # Between words first; inside of one only where that is not enough.
        _narrow(widths, [_longest_word(texts) for texts in cells], width)
        _narrow(widths, least, width)
    lines: list[str] = []
    for number in range(len(rows) + 1):
        folded = [_fold(columns[i], cells[i][number], widths[i]) for i in shown]
        for parts in zip_longest(*folded, fillvalue=""):
            padded = (
                part.rjust(widths[i]) if columns[i].right else part.ljust(widths[i])
                for i, part in zip(shown, parts, strict=True)
            )
            lines.append((" " * GAP).join(padded).rstrip().replace(TIE, " "))
    return lines


def _narrow(widths: dict[int, int], floors: Sequence[int], width: int) -> None:
    """Take from the widest column that is above its floor, until all fit or none is."""
    while _total(list(widths.values())) > width:
        slack = [i for i in widths if widths[i] > floors[i]]
        if not slack:
            return
        widths[max(slack, key=lambda i: widths[i])] -= 1


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _least(column: Column, texts: Sequence[str]) -> int:
    """Characters below which a cell of the column cannot go."""
    if column.whole:
        return max(map(len, texts))
    word = _longest_word(texts)
    return min(word, LEAST_BROKEN) if column.breaks else word


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split(" ")), default=0)


def _fold(column: Column, text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=column.breaks, break_on_hyphens=False)
