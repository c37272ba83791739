"""Text that others wrote, made harmless inside a comment: no mention, no link, no markup, no line of its own."""

from __future__ import annotations

import html
import re
import unicodedata

MOST = 120
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, marks that turn or hide text, halves of characters: nothing that a reader would see."""


def clean(text: object, limit: int = MOST) -> str:
    """One line of visible characters, cut to ``limit``."""
    spaced = " ".join(str(text).split())
    line = "".join(sign for sign in spaced if unicodedata.category(sign) not in _HIDDEN)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def code(text: object, limit: int = MOST) -> str:
    """A code span, in which GitHub links, mentions and renders nothing; safe in a table's cell, too."""
    # A pipe ends a cell even in a code span, and a backslash before one would undo its escape.
    line = clean(text, limit).replace("`", "'").replace("\\", "/").replace("|", "\\|")
    return f"`{line}`" if line.strip() else "(no name)"


def summary_code(text: object, limit: int = MOST) -> str:
    """The same for inside of an HTML tag, where Markdown does not apply."""
    return f"<code>{html.escape(clean(text, limit))}</code>"


def block(text: str, language: str = "", limit: int = 6_000) -> str:
    """Several lines in a fence that nothing in them can close."""
    shown = "".join(
        sign for sign in text[:limit] if sign in "\n\t" or unicodedata.category(sign) not in _HIDDEN
    ).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def log_text(text: str) -> str:
    """One line for a log that GitHub reads commands from (``::command::``)."""
    return clean(text, 1_000).replace("::", ": :")
