"""Neighbourhood search with restarts over one or several grids, as functions of what was tried and a generator.

Local search with random restarts (Lourenço, Martin and Stützle 2003, "Iterated local search"); moves are ordered by
the main effect of each value seen so far, a failed point counting as twice the slowest.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice

from tilecast.tools.propose.grid import Point
from tilecast.tools.propose.seen import Seen

__all__ = ["Seen", "next_point", "spread"]

RESTART_SHARE = 0.1
"""Share of proposals that look elsewhere although the neighbourhood of the best is not used up."""
GREEDY_SHARE = 0.7
"""Share of moves that take the most promising neighbour instead of any."""
SPREAD_OF = 8
"""A restart takes the point farthest from what is known among this many drawn."""
FAR_FROM = 64
"""Points measured last that a restart keeps away from."""
PROBES = 20_000
"""Most points looked at to find a free one; beyond this the space counts as used up."""


def next_point(seen: Seen, centre: Point | None, rng: random.Random) -> Point | None:
    """The next point to try in a grid, or None when none is left.

    Args:
        seen: what is known.
        centre: the point to start from, if the caller has chosen one; then the measured ones, the best first.
        rng: the only source of chance.
    """
    if seen.left <= 0:
        return None
    if rng.random() >= RESTART_SHARE:
        moves = [] if centre is None else seen.free_moves(centre)
        moves = moves or seen.moves_of_best()
        if moves:
            return _choose(seen, moves, rng)
    return _restart(seen, rng)


def spread(seen: Seen, rng: random.Random, limit: int) -> list[Point]:
    """Up to ``limit`` free points drawn without repetition, all of them where the grid is that small."""
    found: list[Point] = []
    for count, point in enumerate(seen.grid.walk(rng)):
        if len(found) >= limit or count >= PROBES + limit + len(seen.taken):
            break
        if seen.free(point):
            found.append(point)
    return found


def _choose(seen: Seen, moves: list[Point], rng: random.Random) -> Point:
    if rng.random() < GREEDY_SHARE:
        expected: Callable[[Point], float] = seen.effects.expected()
        return min(moves, key=lambda point: (expected(point), rng.random()))
    return rng.choice(moves)


def _restart(seen: Seen, rng: random.Random) -> Point | None:
    drawn = []
    for _ in range(4 * SPREAD_OF):
        point = seen.grid.sample(rng)
        if seen.free(point):
            drawn.append(point)
        if len(drawn) == SPREAD_OF:
            break
    if not drawn:
        return next(iter(spread(seen, rng, 1)), None)
    known = list(islice(reversed(seen.measured_ms), FAR_FROM))
    if not known:
        return drawn[0]
    return max(drawn, key=lambda point: min(seen.grid.distance(point, other) for other in known))
