"""From a model's answer to a candidate's text: code fences, bare files, search/replace edits. Nothing is executed."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tilecast.sandbox.source import parsed
from tilecast.tools.model.reasoning import split_reasoning

CLASS = "ModelNew"
NOTE_LIMIT = 200
CONTEXT_LINES = 2

Trouble = Literal["", "empty", "truncated", "syntax", "no_class", "edit"]

_OPEN = re.compile(r"^ *(?P<marks>`{3,}|~{3,})[^`\n]*$|^.*?(?P<late>`{3,})(?:python|py)[ \t]*$", re.IGNORECASE)
"""The start of a fence; some models put it behind text on the same line."""
_SEARCH = re.compile(r"^[ \t]*<{5,9} ?SEARCH>?[ \t]*$")
_DIVIDE = re.compile(r"^[ \t]*={5,9}[ \t]*$")
_REPLACE = re.compile(r"^[ \t]*>{5,9} ?REPLACE[ \t]*$")


@dataclass(frozen=True)
class Reply:
    """What an answer holds: a file, or what is wrong with it.

    ``empty`` and ``truncated`` answers are worth asking again with more room; ``syntax``, ``no_class`` and ``edit`` are worth
    one repair turn with ``detail`` and ``snippet``.
    """

    source: str | None
    trouble: Trouble = ""
    detail: str = ""
    snippet: str = ""
    note: str = ""

    @property
    def repairable(self) -> bool:
        """Whether the model can be told what to mend."""
        return self.trouble in ("syntax", "no_class", "edit")


@dataclass(frozen=True)
class Edit:
    """One search/replace block."""

    search: str
    replace: str


class EditMiss(Exception):
    """A search text that does not occur, or more than once; ``snippet`` is that text."""

    def __init__(self, message: str, snippet: str) -> None:
        super().__init__(message)
        self.snippet = snippet


def read_reply(text: str, finish_reason: str, parent: str | None) -> Reply:
    """The candidate's file in an answer.

    Args:
        text: the answer; reasoning blocks that are still in it are ignored.
        finish_reason: as the provider gave it; ``length`` means cut off.
        parent: the text that edits apply to, if there is one.
    """
    visible = split_reasoning(text)[0]
    cut = finish_reason in ("length", "max_tokens", "lost")
    note = _note(visible)
    if not visible.strip():
        return Reply(
            None,
            "truncated" if cut else "empty",
            "the answer was cut off" if cut else "the answer was empty",
            note=note,
        )
    blocks = code_blocks(visible)
    texts = [block for block, _ in blocks] or [visible]
    for source in reversed(texts):
        if defines_class(source) and not (cut and source == texts[-1] and not _closed(blocks)):
            return Reply(_tidy(source), note=note)
    edits = read_edits(visible)
    if edits:
        return _edited(edits, parent, note)
    return _unusable(blocks, cut, note)


def code_blocks(text: str) -> list[tuple[str, bool]]:
    """Contents of the code fences in order, each with whether its fence was closed."""
    blocks: list[tuple[str, bool]] = []
    marks, lines = "", list[str]()
    for line in text.splitlines():
        opening = _OPEN.match(line)
        if marks:
            bare = line.strip()
            if bare and set(bare) == {marks[0]} and len(bare) >= len(marks):
                blocks.append(("\n".join(lines) + "\n", True))
                marks, lines = "", []
            else:
                lines.append(line)
        elif opening is not None:
            marks = opening["marks"] or opening["late"]
    if marks:
        blocks.append(("\n".join(lines) + "\n", False))
    return blocks


def defines_class(source: str) -> bool:
    """Whether a text parses as Python and defines ``ModelNew`` at module level."""
    tree, _ = _parsed(source)
    return tree is not None and any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in tree.body)


def read_edits(text: str) -> list[Edit]:
    """Complete search/replace blocks, wherever they stand; an unfinished one is left out."""
    edits: list[Edit] = []
    part, search, replace = "", list[str](), list[str]()
    for line in text.splitlines():
        if _SEARCH.match(line):
            part, search, replace = "search", [], []
        elif part == "search" and _DIVIDE.match(line):
            part = "replace"
        elif part == "replace" and _REPLACE.match(line):
            edits.append(Edit("\n".join(search), "\n".join(replace)))
            part = ""
        elif part:
            (search if part == "search" else replace).append(line)
    return edits


def apply_edits(source: str, edits: list[Edit]) -> str:
    """The text with every edit made, in order. Differences in trailing blanks and in a common indentation are forgiven.

    Raises:
        EditMiss: if a search text is empty, does not occur, or occurs more than once.
    """
    for edit in edits:
        source = _apply(source, edit)
    return source


def _apply(source: str, edit: Edit) -> str:
    lines, wanted = source.splitlines(), edit.search.splitlines()
    if not edit.search.strip():
        raise EditMiss("an edit has an empty SEARCH part; name the lines that it replaces", edit.replace[:400])
    places = _places(lines, wanted, str.rstrip)
    replacement = edit.replace.splitlines()
    if not places:
        places = _places(lines, wanted, str.strip)
        if len(places) == 1:
            replacement = _reindented(replacement, wanted, lines[places[0]])
    if len(places) != 1:
        found = "does not occur in the file" if not places else f"occurs {len(places)} times; add lines around it"
        raise EditMiss(f"the SEARCH text below {found}", edit.search)
    start = places[0]
    return "\n".join([*lines[:start], *replacement, *lines[start + len(wanted) :]]) + "\n"


def _places(lines: list[str], wanted: list[str], clean: Callable[[str], str]) -> list[int]:
    have, want = [clean(line) for line in lines], [clean(line) for line in wanted]
    return [i for i in range(len(have) - len(want) + 1) if have[i : i + len(want)] == want]


def _reindented(replacement: list[str], wanted: list[str], first: str) -> list[str]:
    """Shift a replacement by as much as the search text was shifted against the file."""
    shift = (len(first) - len(first.lstrip())) - (len(wanted[0]) - len(wanted[0].lstrip()))
    if shift >= 0:
        return [" " * shift + line if line.strip() else line for line in replacement]
    return [line[-shift:] if not line[:-shift].strip() else line.lstrip() for line in replacement]


def _edited(edits: list[Edit], parent: str | None, note: str) -> Reply:
    if parent is None:
        return Reply(None, "edit", "there is no file that edits could apply to; give the whole file", note=note)
    try:
        source = apply_edits(parent, edits)
    except EditMiss as miss:
        return Reply(None, "edit", str(miss), miss.snippet, note)
    if defines_class(source):
        return Reply(_tidy(source), note=note)
    return _broken(source, "with your edits, the file", note)


def _unusable(blocks: list[tuple[str, bool]], cut: bool, note: str) -> Reply:
    if cut:
        return Reply(None, "truncated", "the answer was cut off before the file was complete", note=note)
    if not blocks:
        return Reply(None, "empty", "the answer holds no code", note=note)
    naming = [source for source, _ in blocks if re.search(rf"class\s+{CLASS}\b", source)]
    longest = max((source for source, _ in blocks), key=len)
    return _broken(naming[-1] if naming else longest, "the code", note)


def _broken(source: str, what: str, note: str) -> Reply:
    tree, error = _parsed(source)
    if tree is not None:
        return Reply(None, "no_class", f"{what} does not define class {CLASS} at module level", note=note)
    return Reply(
        None, "syntax", f"{what} is not valid Python: {error[0]} (line {error[1]})", _around(source, error[1]), note
    )


def _parsed(source: str) -> tuple[ast.Module | None, tuple[str, int]]:
    try:
        with warnings.catch_warnings():
            # A candidate's invalid escape sequences are its own business.
            warnings.simplefilter("ignore")
            return parsed(_tidy(source)), ("", 0)
    except SyntaxError as error:
        return None, (error.msg, error.lineno or 0)
    except (ValueError, RecursionError, MemoryError) as error:
        return None, (f"{type(error).__name__}: {error}", 0)


def _tidy(source: str) -> str:
    """Without a common indentation, with one newline at the end."""
    return textwrap.dedent(source).strip("\n") + "\n"


def _closed(blocks: list[tuple[str, bool]]) -> bool:
    return bool(blocks) and blocks[-1][1]


def _around(source: str, line: int) -> str:
    lines = _tidy(source).splitlines()
    first, last = max(0, line - 1 - CONTEXT_LINES), min(len(lines), line + CONTEXT_LINES)
    return "\n".join(f"{number + 1}: {lines[number]}" for number in range(first, last))


def _note(text: str) -> str:
    """The first line that is prose: what the model says it changed."""
    inside = False
    for line in text.splitlines():
        if _OPEN.match(line):
            inside = not inside
        elif _SEARCH.match(line):
            return ""
        elif not inside and (words := line.strip().strip("#*> ").strip()):
            return words if len(words) <= NOTE_LIMIT else words[: NOTE_LIMIT - 1] + "…"
    return ""
