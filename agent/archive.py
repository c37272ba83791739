"""What was measured, and which of it to build on next: by value and by how often it was tried. Seeded; a draw takes O(log n)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

VALUE_POWER = 6.0
"""A parent half as fast as the best is chosen 2^6 times less often, tries being equal."""
FRESH_SHARE = 0.1
"""Share of proposals that start afresh although there is something to build on."""
SPEEDUP_BOUND = 1e30
"""Beyond this a speedup weighs no more, so that weights stay finite."""


@dataclass(frozen=True)
class Entry:
    """One measured candidate: its speedup over the baseline, and how many proposals were built on it."""

    sha256: str
    speedup: float
    tries: int


class Archive:
    """Everything verified and measured, in the order of the candidates, ready to be drawn from."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._tries: Counter[str] = Counter()
        self._speedups: dict[str, float] = {}
        self._places: dict[str, int] = {}
        self._at: dict[int, str] = {}
        self._weights = _Sums()
        for place, entry in enumerate(entries):
            self._tries[entry.sha256] = entry.tries
            self.measured(place, entry.sha256, entry.speedup)

    def __len__(self) -> int:
        return len(self._at)

    @property
    def entries(self) -> list[Entry]:
        """All of them, in the order of the candidates."""
        return [Entry(sha, self._speedups[sha], self._tries[sha]) for _, sha in sorted(self._at.items())]

    def built_on(self, sha256: str) -> None:
        """One more proposal was asked to build on it."""
        self._tries[sha256] += 1
        self._weigh(sha256)

    def measured(self, index: int, sha256: str, speedup: float) -> None:
        """Take in a candidate that may be built on from now on."""
        self._speedups[sha256] = speedup
        self._at[self._places.setdefault(sha256, index)] = sha256
        self._weigh(sha256)

    def draw(self, chance: random.Random) -> str:
        """One entry, with weight ``speedup^6 / (1 + tries)``."""
        return self._at[self._weights.find(chance.random() * self._weights.total)]

    def _weigh(self, sha256: str) -> None:
        place = self._places.get(sha256)
        if place is not None:
            speedup = min(self._speedups[sha256], SPEEDUP_BOUND)
            self._weights.put(place, speedup**VALUE_POWER / (1 + self._tries[sha256]))


def choose_parent(archive: Archive, start: str | None, seed: int, index: int) -> str | None:
    """The parent of the ``index``-th proposal, or None for a fresh start.

    Each entry is drawn with weight ``(speedup / best)^6 / (1 + tries)``: the fast ones first, but an idea that was built
    on often gives way to the next best. With nothing measured yet it is ``start``.
    """
    if not len(archive):
        return start
    chance = random.Random(f"parent:{seed}:{index}")
    return None if chance.random() < FRESH_SHARE else archive.draw(chance)


class _Sums:
    """A binary tree of sums over a growing row of weights. Sums are always of the children, so that no error builds up."""

    def __init__(self) -> None:
        self._size = 1
        self._tree = [0.0, 0.0]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return self._tree[1]

    def put(self, place: int, weight: float) -> None:
        """Set one weight."""
        while place >= self._size:
            self._grow()
        node = self._size + place
        self._tree[node] = weight
        while node > 1:
            node //= 2
            self._tree[node] = self._tree[2 * node] + self._tree[2 * node + 1]

    def find(self, amount: float) -> int:
        """The place in whose share of the running sum ``amount`` lies; never one of weight 0."""
        node = 1
        while node < self._size:
            node *= 2
            # Rounding may leave a little more than all there is: there is nothing to the right then.
            if amount >= self._tree[node] and self._tree[node + 1] > 0:
                amount -= self._tree[node]
                node += 1
        return node - self._size

    def _grow(self) -> None:
        leaves = self._tree[self._size :]
        self._size *= 2
        self._tree = [0.0] * self._size + leaves + [0.0] * len(leaves)
        for node in range(self._size - 1, 0, -1):
            self._tree[node] = self._tree[2 * node] + self._tree[2 * node + 1]
