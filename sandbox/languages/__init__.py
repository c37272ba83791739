"""The languages in which candidates are written, as the host sees them: recognised and turned as text."""

from __future__ import annotations

from functools import lru_cache

from tilecast.sandbox.languages.base import Language, ParsedSource, Tunables
from tilecast.sandbox.languages.cutile import CuTile
from tilecast.sandbox.languages.native import Cpp, Cuda
from tilecast.sandbox.languages.torch import PyTorch
from tilecast.sandbox.languages.triton import Triton
from tilecast.sandbox.source import Candidate, parsed

__all__ = [
    "LANGUAGES",
    "Language",
    "Tunables",
    "find_tunables",
    "language_named",
    "language_of",
    "languages_in",
]

LANGUAGES: dict[str, Language] = {
    language.name: language for language in (CuTile(), Triton(), Cuda(), Cpp(), PyTorch())
}
"""By name, the more particular first: a text in several is called by the first that recognises it."""


@lru_cache(maxsize=256)
def _parse(source: str) -> ParsedSource | None:
    """None for what is no Python."""
    try:
        return ParsedSource(source, parsed(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def language_named(name: str) -> Language:
    """Look one up.

    Raises:
        KeyError: naming the known ones.
    """
    if name not in LANGUAGES:
        raise KeyError(f"unknown language {name!r}: known are {', '.join(LANGUAGES)}")
    return LANGUAGES[name]


def languages_in(source: str) -> list[str]:
    """Names of all languages with kernels in the text; ``torch`` only if there are no others; none of unparsable text."""
    parsed = _parse(source)
    if parsed is None:
        return []
    found = [name for name, language in LANGUAGES.items() if name != "torch" and language.recognises(parsed)]
    return found or ["torch"]


def language_of(source: str) -> str:
    """The language of a text; ``torch`` for what is recognised as nothing else, ``unknown`` if it does not parse."""
    return next(iter(languages_in(source)), "unknown")


def find_tunables(candidate: Candidate) -> Tunables | None:
    """Literals to turn in a candidate without CONFIG, by its language; None if it declares CONFIG, or has none."""
    parsed = _parse(candidate.source)
    if parsed is None or candidate.config is not None:
        return None
    for name in languages_in(candidate.source):
        if (found := LANGUAGES[name].tunables(candidate, parsed)) is not None:
            return found
    return None
