"""Neighbourhood search with restarts over one or several grids, as pure functions of what was tried and a generator.

Local search with random restarts (Lourenço, Martin and Stützle 2003, "Iterated local search"); moves are ordered by
the main effect of each value seen so far, a failed point counting as twice the slowest.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tilecast.tools.propose.grid import Grid, Point

RESTART_SHARE = 0.1
"""Share of proposals that look elsewhere although the neighbourhood of the best is not used up."""
GREEDY_SHARE = 0.7
"""Share of moves that take the most promising neighbour instead of any."""
SPREAD_OF = 8
"""A restart takes the point farthest from what is known among this many drawn."""
CROWDING = 0.02
"""Each neighbour already tried makes a centre look this much slower, so that one idea is not polished for ever."""
FAILURE_FACTOR = 2.0
PROBES = 20_000
"""Most points looked at to find a free one; beyond this the space counts as used up."""


@dataclass
class Seen:
    """What is known of one grid: points given out, and milliseconds of those measured (None if they failed)."""

    grid: Grid
    taken: set[Point] = field(default_factory=set)
    measured_ms: dict[Point, float | None] = field(default_factory=dict)
    allowed: Callable[[Point], bool] = lambda point: True

    def free(self, point: Point) -> bool:
        """Whether a point may still be proposed."""
        return point not in self.taken and self.allowed(point)

    @property
    def left(self) -> int:
        """Upper bound of the points still free."""
        return self.grid.size - len(self.taken)


def next_point(seen: Seen, centre: Point | None, rng: random.Random) -> Point | None:
    """The next point to try in a grid, or None when none is left.

    Args:
        seen: what is known.
        centre: the point to start from, if the caller has chosen one.
        rng: the only source of chance.
    """
    if seen.left <= 0:
        return None
    if rng.random() >= RESTART_SHARE:
        for place in _centres(seen, centre):
            moves = free_moves(seen, place)
            if moves:
                return _choose(seen, moves, rng)
    return _restart(seen, rng)


def free_moves(seen: Seen, centre: Point) -> list[Point]:
    """Free points one step away from a centre; two steps where those are used up."""
    single = [point for point in seen.grid.neighbours(centre) if seen.free(point)]
    return single or [point for point in seen.grid.pairs(centre) if seen.free(point)]


def expected_log_ms(seen: Seen) -> Callable[[Point], float]:
    """Sum of the main effects of a point's values on the logarithm of time, shrunk towards none where data are few."""
    logs = _log_times(seen)
    if not logs:
        return lambda point: 0.0
    mean = sum(logs.values()) / len(logs)
    sums: dict[tuple[int, int], list[float]] = {}
    for point, value in logs.items():
        for place in enumerate(point):
            sums.setdefault(place, []).append(value - mean)
    effects = {place: sum(values) / (len(values) + 1) for place, values in sums.items()}
    return lambda point: mean + sum(effects.get(place, 0.0) for place in enumerate(point))


def spread(seen: Seen, rng: random.Random, limit: int) -> list[Point]:
    """Up to ``limit`` free points drawn without repetition, all of them where the grid is that small."""
    found: list[Point] = []
    for count, point in enumerate(seen.grid.walk(rng)):
        if len(found) >= limit or count >= PROBES + limit + len(seen.taken):
            break
        if seen.free(point):
            found.append(point)
    return found


def _log_times(seen: Seen) -> dict[Point, float]:
    good = [ms for ms in seen.measured_ms.values() if ms is not None]
    failed_ms = FAILURE_FACTOR * max(good, default=1.0)
    return {point: math.log(failed_ms if ms is None else ms) for point, ms in seen.measured_ms.items()}


def _centres(seen: Seen, chosen: Point | None) -> Iterable[Point]:
    """The caller's choice, then the measured points by time, each made to look slower by its tried neighbours."""
    if chosen is not None:
        yield chosen
    ranked = []
    for point, ms in seen.measured_ms.items():
        if ms is not None:
            crowd = sum(1 for other in seen.grid.neighbours(point) if other in seen.taken)
            ranked.append((ms * (1 + CROWDING * crowd), point))
    for _, point in sorted(ranked):
        yield point


def _choose(seen: Seen, moves: list[Point], rng: random.Random) -> Point:
    if rng.random() < GREEDY_SHARE:
        expected = expected_log_ms(seen)
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
    known = list(seen.measured_ms)[-64:]
    if not known:
        return drawn[0]
    return max(drawn, key=lambda point: min(seen.grid.distance(point, other) for other in known))
