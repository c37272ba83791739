"""What was measured, and which of it to build on next: by value and by how often it was tried. Pure and seeded."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tilecast.agent.record.fold import RunState

VALUE_POWER = 6.0
"""A parent half as fast as the best is chosen 2^6 times less often, tries being equal."""
FRESH_SHARE = 0.1
"""Share of proposals that start afresh although there is something to build on."""


@dataclass(frozen=True)
class Entry:
    """One measured candidate: its speedup over the baseline, and how many proposals were built on it."""

    sha256: str
    speedup: float
    tries: int


def entries(state: RunState) -> list[Entry]:
    """The archive of a run: everything verified and measured, in the order it was judged."""
    tries = Counter(c.parent_sha256 for c in state.candidates.values() if c.parent_sha256 is not None)
    found = []
    for candidate in state.candidates.values():
        result = candidate.result
        if candidate.judged is None or not candidate.timed or candidate.sha256 is None or result is None:
            continue
        assert result.speedup is not None
        found.append(Entry(candidate.sha256, result.speedup.ratio, tries[candidate.sha256]))
    return found


def choose_parent(archive: Sequence[Entry], start: str | None, seed: int, index: int) -> str | None:
    """The parent of the ``index``-th proposal, or None for a fresh start.

    Each entry is drawn with weight ``(speedup / best)^6 / (1 + tries)``: the fast ones first, but an idea that was built
    on often gives way to the next best. With nothing measured yet it is ``start``.
    """
    if not archive:
        return start
    chance = random.Random(f"parent:{seed}:{index}")
    if chance.random() < FRESH_SHARE:
        return None
    top = max(entry.speedup for entry in archive)
    weights = [(entry.speedup / top) ** VALUE_POWER / (1 + entry.tries) for entry in archive]
    return chance.choices([entry.sha256 for entry in archive], weights)[0]
