"""What the host knows of a language in which candidates are written. Pure text work: nothing is executed, torch is not needed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilecast.sandbox.source import Candidate, Config

WARPS = [1, 2, 4, 8, 16]
STAGES = [1, 2, 3, 4, 5]
_OCTAVES = 2
_LEAST_BLOCK = 8


@dataclass(frozen=True)
class Tunables:
    """Literals of a kernel that a program may turn."""

    values: Config
    """In force, by name; ``kernel.NAME`` where several kernels have one of that name."""
    options: dict[str, list[Any]]
    """What else each may be; holds the value in force."""
    write: Callable[[Config], Candidate] = field(repr=False)
    """The candidate with these values (all or some) written in; every other character stays."""


class ParsedSource:
    """A candidate's text with its syntax tree and what it imports."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self.source, self.tree = source, tree
        self.imports: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self.imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}

    def imports_from(self, package: str) -> bool:
        """Whether the package or something in it is imported."""
        return any(name == package or name.startswith(package + ".") for name in self.imports)


class Language(Protocol):
    """One language. ``name`` is what ``--language`` takes and the stem of its guide among the prompts."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    def recognises(self, parsed: ParsedSource) -> bool:
        """Whether kernels of this language are in the text."""
        ...

    def tunables(self, candidate: Candidate, parsed: ParsedSource) -> Tunables | None:
        """Literals to turn in a kernel that declares none; None if there are none that are safe to turn."""
        ...


def block_options(value: int) -> list[int]:
    """Powers of two around a block size, itself among them."""
    around = {value << shift if shift > 0 else value >> -shift for shift in range(-_OCTAVES, _OCTAVES + 1)}
    return sorted(size for size in around if size >= min(_LEAST_BLOCK, value))


def is_power_of_two(value: Any) -> bool:
    """Whole powers of two from 2 on; booleans are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 2 and value & (value - 1) == 0
