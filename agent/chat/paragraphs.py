"""A streamed text cut into paragraphs that can be shown for good: code fences stay whole."""

from __future__ import annotations

import re

FENCE = re.compile(r"^\s*(`{3,}|~{3,})")


class Paragraphs:
    """Takes pieces, gives finished paragraphs."""

    def __init__(self) -> None:
        self._text = ""

    @property
    def tail(self) -> str:
        """What has come of the paragraph that is not finished."""
        return self._text

    def add(self, piece: str) -> list[str]:
        """Take in a piece; gives the paragraphs that are finished with it."""
        self._text += piece
        found = []
        while (end := _end(self._text)) is not None:
            paragraph, self._text = self._text[:end], self._text[end:].lstrip("\n")
            if paragraph.strip():
                found.append(paragraph.rstrip("\n"))
        return found

    def rest(self) -> str:
        """What is left at the end."""
        rest, self._text = self._text, ""
        return rest.strip("\n")


def _end(text: str) -> int | None:
    """Where the first paragraph ends: at an empty line outside of a fence."""
    fence, at = "", 0
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            return None
        mark = FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence):
            fence = ""
        elif not fence and not line.strip() and at:
            return at
        at += len(line)
    return None
