"""Telling a model's thinking from its answer: ``<think>`` blocks, closed or not, whole or arriving piece by piece."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["text", "reasoning"]
NAMES = "think|thinking|thought|reasoning"
_TAG = re.compile(rf"<(?P<end>/?)(?:{NAMES})>", re.IGNORECASE)
_FENCE_OR_TAG = re.compile(rf"(?P<fence>^[ \t]*(?:```|~~~))|<(?P<end>/?)(?:{NAMES})>", re.IGNORECASE | re.MULTILINE)
_PARTIAL = re.compile(r"(?:</?[a-z]{0,9}|^[ \t]*[`~]{0,2})\Z", re.IGNORECASE | re.MULTILINE)


class ReasoningSplitter:
    """Splits a stream of text into pieces of text and of reasoning; a tag cut in two is waited for.

    A tag inside a code fence of the answer is code, not a tag; fences inside reasoning are reasoning.
    """

    def __init__(self) -> None:
        self._all = ""
        self._done = 0
        self._depth = 0
        self._in_fence = False

    def feed(self, piece: str) -> list[tuple[Kind, str]]:
        """Pieces that are certain after this one."""
        self._all += piece
        found: list[tuple[Kind, str]] = []
        while (match := self._pattern().search(self._all, self._done)) is not None:
            self._take(match, found)
        held = _PARTIAL.search(self._all, self._done)
        self._emit(found, len(self._all) if held is None else held.start())
        return found

    def finish(self) -> list[tuple[Kind, str]]:
        """What was held back."""
        found: list[tuple[Kind, str]] = []
        self._emit(found, len(self._all))
        return found

    def _pattern(self) -> re.Pattern[str]:
        return _TAG if self._depth else _FENCE_OR_TAG

    def _take(self, match: re.Match[str], found: list[tuple[Kind, str]]) -> None:
        if not self._depth and match["fence"] is not None:
            self._in_fence = not self._in_fence
            self._emit(found, match.end())
        elif self._in_fence:
            self._emit(found, match.end())
        else:
            self._emit(found, match.start())
            self._done = match.end()
            self._depth = max(0, self._depth - 1) if match["end"] else self._depth + 1

    def _emit(self, found: list[tuple[Kind, str]], end: int) -> None:
        if end > self._done:
            found.append(("reasoning" if self._depth else "text", self._all[self._done : end]))
            self._done = end


def split_reasoning(content: str) -> tuple[str, str]:
    """Text and reasoning of a whole answer.

    A closing tag without an opening one ends a block that the server's template had opened; an opening tag without a
    closing one means that the answer stopped while thinking.
    """
    first = _TAG.search(content)
    before = ""
    if first is not None and first["end"]:
        before, content = content[: first.start()], content[first.end() :]
    splitter = ReasoningSplitter()
    pieces = splitter.feed(content) + splitter.finish()
    text = "".join(piece for kind, piece in pieces if kind == "text")
    reasoning = "".join(piece for kind, piece in pieces if kind == "reasoning")
    return text.strip("\n"), (before + reasoning).strip("\n")
