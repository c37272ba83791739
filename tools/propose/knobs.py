"""Where a kernel's tunables come from: its CONFIG and SPACE, CONFIG alone, or literals found by the language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilecast.sandbox.source import Candidate, Config
from tilecast.tools.propose.grid import Grid

FoundTunables = tuple[Config, dict[str, list[Any]], Callable[[Config], Candidate]]
"""Values in force, options of each, and how to write others."""
TunableFinder = Callable[[Candidate], FoundTunables | None]
"""Finds tunables in a kernel that has no CONFIG, or None; a language's host half provides it."""

WARPS, STAGES = [1, 2, 4, 8, 16], [1, 2, 3, 4, 5]
OCTAVES = 2
"""A block size without SPACE may go this many powers of two either way."""


class NoTunables(Exception):
    """The kernel has nothing that a program could turn; the message says why and what would help."""


def grid_of(candidate: Candidate, finder: TunableFinder | None = None) -> Grid:
    """The tunables of a kernel as a grid.

    Raises:
        NoTunables: if none are declared and none were found.
    """
    config, space = candidate.config, candidate.space
    if config is not None:
        options = _checked(candidate, space) if space else _derived(config)
        if options:
            return Grid(candidate, config, options, candidate.with_config)
        raise NoTunables(
            f"{candidate.name}: SPACE is missing and no CONFIG value is a power of two, num_warps or num_stages"
        )
    if space is not None:
        raise NoTunables(
            f"{candidate.name}: has SPACE but no module-level CONFIG dict literal; add the values in force"
        )
    found = finder(candidate) if finder is not None else None
    if found is None:
        raise NoTunables(
            f"{candidate.name}: no CONFIG dict literal, and no tunable literals were found in it; "
            "add CONFIG = {...} and SPACE = {...} at module level, or name a model that rewrites kernels"
        )
    current, options, write = found
    if not options:
        raise NoTunables(f"{candidate.name}: its tunables have no other values to try")
    return Grid(candidate, current, options, write)


def _checked(candidate: Candidate, space: dict[str, Any]) -> dict[str, list[Any]]:
    for name, values in space.items():
        if not isinstance(values, list | tuple) or not values:
            raise NoTunables(f"{candidate.name}: SPACE[{name!r}] = {values!r} must be a list of at least one value")
    return {name: list(values) for name, values in space.items()}


def _derived(config: Config) -> dict[str, list[Any]]:
    """Options for a CONFIG without SPACE: powers of two around each power of two, and the usual warps and stages."""
    options: dict[str, list[Any]] = {}
    for name, value in config.items():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if name in ("num_warps", "warps"):
            options[name] = WARPS
        elif name in ("num_stages", "stages"):
            options[name] = STAGES
        elif value >= 8 and value & (value - 1) == 0:
            options[name] = [value << shift if shift > 0 else value >> -shift for shift in range(-OCTAVES, OCTAVES + 1)]
    return options
