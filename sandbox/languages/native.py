"""CUDA C++ and C++ for the CPU: text in Python strings, built by ``load_inline`` or NVRTC."""

from __future__ import annotations

import re
from collections import Counter

from tilecast.sandbox.languages.base import ParsedSource, Tunables, block_options, is_power_of_two
from tilecast.sandbox.source import Candidate, Config

_CONSTANT = re.compile(
    r"(?:#define[ \t]+(?P<macro>\w+)[ \t]+"
    r"|constexpr[ \t]+(?:static[ \t]+)?(?:unsigned|int|size_t|long)[ \t]+(?P<name>\w+)[ \t]*=[ \t]*)"
    r"(?P<value>\d+)\b"
)
_TUNABLE = re.compile(r"BLOCK|TILE|THREADS|UNROLL|VEC|ROWS|COLS|CHUNK|WARPS", re.I)


def _find(source: str) -> dict[str, re.Match[str]]:
    found: dict[str, re.Match[str]] = {}
    seen: Counter[str] = Counter()
    for match in _CONSTANT.finditer(source):
        name = match["macro"] or match["name"]
        seen[name] += 1
        if _TUNABLE.search(name) and is_power_of_two(int(match["value"])):
            found[name] = match
    # One that is defined twice belongs to two texts: leave it alone.
    return {name: match for name, match in found.items() if seen[name] == 1}


def _tunables(candidate: Candidate) -> Tunables | None:
    found = _find(candidate.source)
    if not found:
        return None
    values = {name: int(match["value"]) for name, match in found.items()}

    def write(wanted: Config) -> Candidate:
        text = candidate.source
        for name, match in sorted(found.items(), key=lambda item: -item[1].start()):
            text = text[: match.start("value")] + str(int(wanted.get(name, values[name]))) + text[match.end("value") :]
        return Candidate(name=candidate.name, source=text)

    return Tunables(dict(values), {name: block_options(value) for name, value in values.items()}, write)


class Cuda:
    """Host half of CUDA C++."""

    name = "cuda"
    title = "CUDA C++"

    def recognises(self, parsed: ParsedSource) -> bool:
        """Whether the text builds something that holds device functions."""
        builds = parsed.imports_from("torch.utils.cpp_extension") or parsed.imports_from("cuda.core")
        return builds and "__global__" in parsed.source

    def tunables(self, candidate: Candidate, parsed: ParsedSource) -> Tunables | None:
        """Block sizes that are macros or ``constexpr`` integers of the C++ text."""
        return _tunables(candidate)


class Cpp:
    """Host half of C++ for the CPU."""

    name = "cpp"
    title = "C++ (CPU)"

    def recognises(self, parsed: ParsedSource) -> bool:
        """Whether the text builds C++ that has no device functions."""
        return parsed.imports_from("torch.utils.cpp_extension") and "__global__" not in parsed.source

    def tunables(self, candidate: Candidate, parsed: ParsedSource) -> Tunables | None:
        """Block sizes that are macros or ``constexpr`` integers of the C++ text."""
        return _tunables(candidate)
