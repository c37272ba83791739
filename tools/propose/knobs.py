"""Where a kernel's tunables come from: its CONFIG and SPACE, CONFIG alone, or literals that its language finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilecast.sandbox.languages import Tunables, find_tunables
from tilecast.sandbox.languages.base import STAGES, WARPS, block_options, is_power_of_two
from tilecast.sandbox.source import Candidate, Config
from tilecast.tools.propose.grid import Grid, skeleton_key

TunableFinder = Callable[[Candidate], Tunables | None]
"""Finds tunables in a kernel that has no CONFIG, or None."""

LEAST_SIZE = 8
"""Smaller powers of two in a CONFIG without SPACE are switches or counts, not sizes."""


class NoTunables(Exception):
    """The kernel has nothing that a program could turn; the message says why and what would help."""


def grid_of(candidate: Candidate, finder: TunableFinder = find_tunables) -> Grid:
    """The tunables of a kernel as a grid.

    Raises:
        NoTunables: if none are declared and none were found.
    """
    name, config, space = candidate.name, candidate.config, candidate.space
    if config is not None:
        options = _checked(candidate, space) if space else _derived(config)
        if options:
            return Grid(candidate, config, options, candidate.with_config)
        raise NoTunables(f"{name}: SPACE is missing and no CONFIG value is a block size, num_warps or num_stages")
    if space is not None:
        raise NoTunables(f"{name}: has SPACE but no module-level CONFIG dict literal; add the values in force")
    found = finder(candidate)
    if found is None or not found.options:
        raise NoTunables(
            f"{name}: no CONFIG dict literal, and no tunable literals were found in it; "
            "add CONFIG = {...} and SPACE = {...} at module level, or name a model that rewrites kernels"
        )
    return Grid(candidate, found.values, found.options, found.write)


def _checked(candidate: Candidate, space: dict[str, Any]) -> dict[str, list[Any]]:
    for name, values in space.items():
        if not isinstance(values, list | tuple) or not values:
            raise NoTunables(f"{candidate.name}: SPACE[{name!r}] = {values!r} must be a list of at least one value")
    return {name: list(values) for name, values in space.items()}


def _derived(config: Config) -> dict[str, list[Any]]:
    """Options for a CONFIG without SPACE: powers of two around each size, and the usual warps and stages."""
    options: dict[str, list[Any]] = {}
    for name, value in config.items():
        if name in ("num_warps", "warps"):
            options[name] = WARPS
        elif name in ("num_stages", "stages"):
            options[name] = STAGES
        elif is_power_of_two(value) and value >= LEAST_SIZE:
            options[name] = block_options(value)
    return options


def recorded_grids(recorded: Sequence[Candidate], start: Candidate | None) -> list[Grid]:
    """One grid a kernel, holding its recorded variants only; just the user's kernel where one was given."""
    families: dict[str, list[Candidate]] = {}
    for item in recorded:
        families.setdefault(skeleton_key(item.source), []).append(item)
    wanted = list(families) if start is None else [key for key in families if key == skeleton_key(start.source)]
    grids = []
    for key in wanted:
        variants = families[key]
        base = start or variants[0]
        configs = [item.config or {} for item in variants]
        names = list(configs[0])
        space = {name: [config[name] for config in configs if name in config] for name in names}
        grids.append(Grid(base, base.config or {}, space, base.with_config, members=configs))
    return grids
