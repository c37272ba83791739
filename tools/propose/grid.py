"""The points of one kernel's SPACE, addressed by index so that a space of a million points is never listed.

A recorded kernel is the same thing with ``members``: only the points that were measured exist.
"""

from __future__ import annotations

import ast
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from tilecast.sandbox.source import REMEMBERED, Candidate, Config, parsed, read_literal, source_sha256

Point = tuple[int, ...]
"""One index into the options of each tunable, in the order of :attr:`Grid.names`."""

NEAREST_MEMBERS = 8
"""How many recorded points count as neighbours where none differs by a single step."""


@lru_cache(maxsize=REMEMBERED)
def skeleton_key(source: str) -> str:
    """Identity of a kernel up to its CONFIG, comments and whitespace: variants of one kernel share it."""
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return "text:" + source_sha256(source)
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "CONFIG" for t in node.targets):
            node.value = ast.Constant(value=None)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "CONFIG":
            node.value = ast.Constant(value=None)
    return "tree:" + source_sha256(ast.unparse(tree))


@lru_cache(maxsize=REMEMBERED)
def config_of(source: str) -> Config | None:
    """The CONFIG of a kernel's text, read once; not to be changed by the caller."""
    return read_literal(source, "CONFIG")


class Grid:
    """The cartesian product of the tunables' options around one kernel; optionally only some of its points.

    Args:
        base: the kernel; its own values are the starting point.
        current: the values in force in ``base``.
        space: options of each tunable, in the order in which steps make sense.
        write: gives the kernel with some values changed.
        members: the only points that exist, or None for all.
    """

    def __init__(
        self,
        base: Candidate,
        current: Config,
        space: dict[str, list[Any]],
        write: Callable[[Config], Candidate],
        members: Sequence[Config] | None = None,
    ) -> None:
        self.base, self.current, self.write = base, current, write
        self.names = list(space)
        self.options = [_distinct(values) for values in space.values()]
        self.skeleton = skeleton_key(base.source)
        self._ordered = [all(map(_is_number, values)) for values in self.options]
        self._near: dict[Point, list[Point]] = {}
        points = None if members is None else [self.point(values) for values in members]
        self.members = None if points is None else list(dict.fromkeys(p for p in points if p is not None))
        self._exists = None if self.members is None else frozenset(self.members)

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(map(len, self.options)) if self.members is None else len(self.members)

    def point(self, config: Config) -> Point | None:
        """Where a CONFIG lies, or None if one of its values is not among the options."""
        found = []
        for name, values in zip(self.names, self.options, strict=True):
            if name not in config or config[name] not in values:
                return None
            found.append(values.index(config[name]))
        return tuple(found)

    def nearest(self, config: Config) -> Point:
        """The point closest to a CONFIG whose values need not be options; numbers by size, others by first option."""
        found = []
        for name, values in zip(self.names, self.options, strict=True):
            value = config.get(name)
            if value in values:
                found.append(values.index(value))
            elif _is_number(value) and all(map(_is_number, values)):
                distances = [abs(option - value) for option in values]
                found.append(distances.index(min(distances)))
            else:
                found.append(0)
        return tuple(found)

    def values(self, point: Point) -> Config:
        """The CONFIG values of a point."""
        return {name: options[i] for name, options, i in zip(self.names, self.options, point, strict=True)}

    def candidate(self, point: Point, name: str) -> Candidate:
        """The kernel with a point's values written in."""
        return Candidate(name=name, source=self.write(self.values(point)).source)

    def change(self, point: Point) -> str:
        """What a point changes against the kernel's own values, in words."""
        parts = [f"{k} {self.current.get(k)} to {v}" for k, v in self.values(point).items() if self.current.get(k) != v]
        return ", ".join(parts) or "its own values"

    def at(self, number: int) -> Point:
        """The ``number``-th point, ``0 <= number < size``."""
        if self.members is not None:
            return self.members[number]
        digits = []
        for values in reversed(self.options):
            number, digit = divmod(number, len(values))
            digits.append(digit)
        return tuple(reversed(digits))

    def walk(self, rng: random.Random) -> Iterator[Point]:
        """Every point once, in an order of the generator's choosing, without listing them."""
        size = self.size
        # A step without a common factor visits all residues before it comes back.
        step = rng.randrange(size) | 1
        while math.gcd(step, size) != 1:
            step += 1
        start = rng.randrange(size)
        for count in range(size):
            yield self.at((start + count * step) % size)

    def sample(self, rng: random.Random) -> Point:
        """One point, each as likely as the other."""
        return self.at(rng.randrange(self.size))

    def neighbours(self, point: Point) -> list[Point]:
        """Points one step away: the next smaller and larger value of one tunable, or any other value of a name or flag."""
        if self.members is None:
            return self._nearby(point)
        if point not in self._near:
            self._near[point] = self._nearby(point)
        return self._near[point]

    def pairs(self, point: Point) -> list[Point]:
        """Points that differ by one step in each of two tunables."""
        if self.members is not None:
            return [other for other in self.members if 1 < self.distance(point, other) <= 2]
        found = []
        for first, second in itertools.combinations(range(len(point)), 2):
            for i in self._steps(first, point[first]):
                once = self._moved(point, first, i)
                found += [self._moved(once, second, j) for j in self._steps(second, point[second])]
        return found

    def distance(self, one: Point, other: Point) -> int:
        """Steps between two points; a name or flag counts one however it differs."""
        total = 0
        for d, (a, b) in enumerate(zip(one, other, strict=True)):
            total += abs(a - b) if self._ordered[d] else int(a != b)
        return total

    def _nearby(self, point: Point) -> list[Point]:
        moves = [self._moved(point, d, i) for d in range(len(point)) for i in self._steps(d, point[d])]
        if self._exists is None or self.members is None:
            return moves
        near = sorted(move for move in moves if move in self._exists)
        if near:
            return near
        others = heapq.nsmallest(
            NEAREST_MEMBERS, ((self.distance(point, other), other) for other in self.members if other != point)
        )
        return [other for _, other in others]

    def _steps(self, dimension: int, index: int) -> list[int]:
        count = len(self.options[dimension])
        if not self._ordered[dimension]:
            return [i for i in range(count) if i != index]
        return [i for i in (index - 1, index + 1) if 0 <= i < count]

    @staticmethod
    def _moved(point: Point, dimension: int, index: int) -> Point:
        return (*point[:dimension], index, *point[dimension + 1 :])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _distinct(values: list[Any]) -> list[Any]:
    """Without repetitions; numbers in rising order, so that a step is a step."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return sorted(found) if all(map(_is_number, found)) else found
