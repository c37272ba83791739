"""What is known of one grid, kept ready for the next question: after ten thousand points it takes as long as after ten."""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Callable, Iterator

from tilecast.tools.propose.grid import Grid, Point

CROWDING = 0.02
"""Each neighbour already tried makes a centre look this much slower, so that one idea is not polished for ever."""
FAILURE_FACTOR = 2.0
"""A failed point counts as this many times the slowest."""


class Effects:
    """Main effect of each value on the logarithm of time, shrunk towards none where data are few; from running sums."""

    def __init__(self) -> None:
        self._all = _Sum()
        self._of: dict[tuple[int, int], _Sum] = {}
        self.slowest_ms = 0.0
        """0 while nothing has a time."""

    def add(self, point: Point, ms: float | None) -> None:
        """One more measured point; None is one that failed."""
        self.slowest_ms = max(self.slowest_ms, ms or 0.0)
        self._all.add(ms)
        for place in enumerate(point):
            self._of.setdefault(place, _Sum()).add(ms)

    def expected(self) -> Callable[[Point], float]:
        """Expected logarithm of a point's time: the mean and the sum of the effects of its values."""
        if not self._all.count:
            return lambda point: 0.0
        failed_log = math.log(FAILURE_FACTOR * (self.slowest_ms or 1.0))
        mean = self._all.total(failed_log) / self._all.count

        def effect(place: tuple[int, int]) -> float:
            found = self._of.get(place)
            return 0.0 if found is None else (found.total(failed_log) - found.count * mean) / (found.count + 1)

        return lambda point: mean + sum(effect(place) for place in enumerate(point))


class _Sum:
    """Logarithms of times: their sum, how many, and how many failed."""

    def __init__(self) -> None:
        self.count = self._failed = 0
        self._log = 0.0

    def add(self, ms: float | None) -> None:
        """One more."""
        self.count += 1
        if ms is None:
            self._failed += 1
        else:
            self._log += math.log(ms)

    def total(self, failed_log: float) -> float:
        """Sum of the logarithms, those that failed counting as ``failed_log``."""
        return self._log + self._failed * failed_log


class Seen:
    """Points given out, and milliseconds of those measured (None if they failed). Points only become taken, never free.

    Args:
        grid: the points there are.
        allowed: a further test that a point must pass; its answer for a point never changes.
    """

    def __init__(self, grid: Grid, allowed: Callable[[Point], bool] = lambda point: True) -> None:
        self.grid, self._allowed = grid, allowed
        self.taken: set[Point] = set()
        self.measured_ms: dict[Point, float | None] = {}
        self.effects = Effects()
        self._centres: list[tuple[float, Point]] = []
        self._ranked: list[tuple[float, int, Point]] = []

    def take(self, point: Point) -> None:
        """A point that was given out."""
        self.taken.add(point)

    def measured(self, point: Point, ms: float | None) -> None:
        """A point that was measured, or failed. Of two texts at one point the first one counts."""
        self.taken.add(point)
        if point in self.measured_ms:
            return
        self.measured_ms[point] = ms
        self.effects.add(point, ms)
        if ms is not None:
            heapq.heappush(self._centres, (self._crowded_ms(point), point))
            insort(self._ranked, (ms, len(self.measured_ms), point))

    def free(self, point: Point) -> bool:
        """Whether a point may still be proposed."""
        return point not in self.taken and self._allowed(point)

    @property
    def timed(self) -> bool:
        """Whether any point has a time."""
        return self.effects.slowest_ms > 0

    @property
    def left(self) -> int:
        """Upper bound of the points still free."""
        return self.grid.size - len(self.taken)

    def free_moves(self, centre: Point) -> list[Point]:
        """Free points one step away from a centre; two steps where those are used up."""
        single = [point for point in self.grid.neighbours(centre) if self.free(point)]
        return single or [point for point in self.grid.pairs(centre) if self.free(point)]

    def moves_of_best(self) -> list[Point]:
        """Free moves of the measured point that is best by time, each made to look slower by its tried neighbours.

        The order is a heap of scores that only grow: one that is out of date is put back; a centre without moves is done with.
        """
        while self._centres:
            known_ms, point = self._centres[0]
            now_ms = self._crowded_ms(point)
            if now_ms > known_ms:
                heapq.heapreplace(self._centres, (now_ms, point))
                continue
            moves = self.free_moves(point)
            if moves:
                return moves
            heapq.heappop(self._centres)
        return []

    def by_time(self) -> Iterator[tuple[float, int, Point, list[Point]]]:
        """Measured points with free moves, fastest first: milliseconds, number, point and moves."""
        place = 0
        while place < len(self._ranked):
            ms, number, point = self._ranked[place]
            moves = self.free_moves(point)
            if moves:
                place += 1
                yield ms, number, point, moves
            else:
                del self._ranked[place]

    def _crowded_ms(self, point: Point) -> float:
        crowd = sum(1 for other in self.grid.neighbours(point) if other in self.taken)
        return (self.measured_ms[point] or 0.0) * (1 + CROWDING * crowd)
