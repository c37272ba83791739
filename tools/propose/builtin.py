"""`builtin`: a program that rewrites CONFIG within SPACE. It needs no key and costs nothing.

What it proposes depends on the seed, the proposal's index and what the run has tried; nothing else is remembered but the
points already given out, so that a resumed run continues as an undisturbed one would.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilecast.sandbox.languages import find_tunables
from tilecast.sandbox.source import Candidate, Config
from tilecast.tools.model.base import CallJournal
from tilecast.tools.propose.base import Proposal, ProposalContext, ProposalRequest
from tilecast.tools.propose.grid import Grid, Point, config_of, skeleton_key
from tilecast.tools.propose.history import Follower
from tilecast.tools.propose.knobs import NoTunables, TunableFinder, grid_of, recorded_grids
from tilecast.tools.propose.search import next_point, spread
from tilecast.tools.propose.seen import Seen

NEIGHBOUR_SHARE = 0.5
"""Share of a pool that lies around the best; the rest is spread over the space."""
LOCATED = 1024
"""Texts whose place in a grid is remembered."""


@dataclass(frozen=True)
class Spot:
    """A point in one of the grids."""

    grid: int
    point: Point


class BuiltinProposer:
    """Neighbourhood search with restarts over the SPACE of the user's kernel, or over what is recorded of it.

    Args:
        start: the kernel to turn the knobs of; None takes the parent of each request, or the record.
        recorded: variants that were measured: only these are proposed (an empty list means that there is no limit).
        allowed: a further test that a candidate must pass.
        finder: finds tunables where a kernel declares none.
    """

    def __init__(
        self,
        start: Candidate | None = None,
        recorded: Sequence[Candidate] = (),
        allowed: Callable[[Candidate], bool] | None = None,
        finder: TunableFinder = find_tunables,
    ) -> None:
        self._start, self._allowed = start, allowed
        self._finder = lru_cache(maxsize=LOCATED)(finder)
        self._located = lru_cache(maxsize=LOCATED)(self._read)
        self._lock = threading.Lock()
        self._given: dict[Spot, None] = {}
        self._follower = Follower()
        self._states: list[Seen] = []
        self._grids: list[Grid] = []
        self._barren: set[str] = set()
        self._open = not recorded
        self._trouble = ""
        self._set_up(start, recorded)

    @property
    def name(self) -> str:
        """``builtin``."""
        return "builtin"

    @property
    def costs_money(self) -> bool:
        """Never."""
        return False

    @property
    def size(self) -> int:
        """Number of points there are to propose."""
        return sum(grid.size for grid in self._grids)

    @property
    def trouble(self) -> str:
        """Why there is nothing to turn, or an empty text."""
        return "" if self._grids else self._trouble

    def propose(self, request: ProposalRequest, context: ProposalContext, journal: CallJournal) -> Proposal:
        """The next point; ``exhausted`` when all were given out or the kernel has no tunables."""
        with self._lock:
            self._adopt(request.parent)
            if not self._grids:
                return Proposal(candidate=None, reason=self._trouble, origin=self.name, exhausted=True)
            seen = self._seen(context)
            spot = self._next(request, seen)
            if spot is None:
                reason = f"all {self.size} points of the space were proposed"
                return Proposal(candidate=None, reason=reason, origin=self.name, exhausted=True)
            return self._proposal(spot, request)

    def family(self, candidate: Candidate) -> str:
        """A name that all variants of one kernel share, whether their tunables are declared or found."""
        with self._lock:
            self._adopt(candidate)
            spot = self._spot(candidate, exact=False)
            return skeleton_key(candidate.source) if spot is None else self._grids[spot.grid].skeleton

    def turn(self, kernel: Candidate, request: ProposalRequest, context: ProposalContext) -> Proposal | None:
        """A variant of this very kernel that was not proposed yet; None if it has no tunables or none are left."""
        with self._lock:
            self._adopt(kernel)
            spot = self._spot(kernel, exact=False)
            if spot is None:
                return None
            rng = random.Random(f"{request.seed}:{request.index}")
            point = next_point(self._seen(context)[spot.grid], spot.point, rng)
            if point is None:
                return None
            return self._proposal(Spot(spot.grid, point), request.model_copy(update={"parent": kernel}))

    def neighbours(self, candidate: Candidate, context: ProposalContext, limit: int) -> list[Candidate]:
        """Up to ``limit`` candidates one step from ``candidate`` that were not proposed yet (empty for a foreign kernel)."""
        with self._lock:
            self._adopt(candidate)
            spot = self._spot(candidate, exact=False)
            if spot is None:
                return []
            moves = self._seen(context)[spot.grid].free_moves(spot.point)
            return [self._candidate(Spot(spot.grid, point)) for point in moves[:limit]]

    def pool(self, request: ProposalRequest, context: ProposalContext, limit: int) -> list[Candidate]:
        """Up to ``limit`` candidates not proposed yet: around the parent and the best measured, the rest spread."""
        with self._lock:
            self._adopt(request.parent)
            seen = self._seen(context)
            rng = random.Random(f"pool:{request.seed}:{request.index}")
            spots = dict.fromkeys(self._near(request, seen, int(limit * NEIGHBOUR_SHARE)))
            for number, state in enumerate(seen):
                share = max(1, round((limit - len(spots)) / (len(seen) - number)))
                drawn = (Spot(number, point) for point in spread(state, rng, share + len(spots)))
                spots.update(dict.fromkeys([spot for spot in drawn if spot not in spots][:share]))
            return [self._candidate(spot) for spot in list(spots)[:limit]]

    def claim(self, candidate: Candidate, request: ProposalRequest, context: ProposalContext) -> Proposal:
        """The proposal for a candidate of :meth:`pool`.

        Raises:
            ValueError: if the candidate is not a point of this space.
        """
        with self._lock:
            spot = self._spot(candidate, exact=True)
            if spot is None:
                raise ValueError(f"{candidate.name}: not a point of this space; claim takes candidates of pool()")
            return self._proposal(spot, request)

    def _set_up(self, start: Candidate | None, recorded: Sequence[Candidate]) -> None:
        if recorded:
            self._grids = recorded_grids(recorded, start)
            self._trouble = "" if self._grids else f"no variant of {start.name if start else 'any kernel'} is recorded"
            return
        if start is None:
            self._trouble = "there is no kernel whose CONFIG could be rewritten; give one with --kernel FILE"
            return
        try:
            self._grids = [grid_of(start, self._finder)]
        except NoTunables as problem:
            self._trouble = str(problem)

    def _adopt(self, parent: Candidate | None) -> None:
        """Take in a parent of another structure (a model's kernel) as a further grid."""
        if parent is None or not self._open or parent.source in self._barren:
            return
        if any(grid.skeleton == skeleton_key(parent.source) for grid in self._grids):
            return
        if any(self._located(grid, parent.source) is not None for grid in self._grids):
            return
        try:
            self._grids.append(grid_of(parent, self._finder))
        except NoTunables as problem:
            self._barren.add(parent.source)
            self._trouble = self._trouble or str(problem)

    def _next(self, request: ProposalRequest, seen: list[Seen]) -> Spot | None:
        rng = random.Random(f"{request.seed}:{request.index}")
        first = None if self._start is None else self._spot(self._start, exact=True)
        if first is not None and seen[first.grid].free(first.point):
            return first
        chosen = None if request.parent is None else self._spot(request.parent, exact=False)
        for number in self._order(chosen, seen, rng):
            centre = chosen.point if chosen is not None and chosen.grid == number else None
            if centre is None and not seen[number].taken:
                centre = self._own(number)
            point = next_point(seen[number], centre, rng)
            if point is not None:
                return Spot(number, point)
        return None

    def _order(self, chosen: Spot | None, seen: list[Seen], rng: random.Random) -> list[int]:
        """Grids to look in: mostly the parent's, sometimes the one least tried, then the others."""
        others = sorted(range(len(seen)), key=lambda number: (len(seen[number].taken), rng.random()))
        if chosen is None or (len(seen) > 1 and rng.random() < 1 / 3 and not self._open):
            return others
        return [chosen.grid, *(number for number in others if number != chosen.grid)]

    def _own(self, number: int) -> Point:
        grid = self._grids[number]
        return grid.nearest(grid.current)

    def _near(self, request: ProposalRequest, seen: list[Seen], limit: int) -> list[Spot]:
        parent = None if request.parent is None else self._spot(request.parent, exact=False)
        if parent is None and not any(state.timed for state in seen):
            parent = Spot(0, self._own(0))
        found: dict[Spot, None] = {}
        if parent is not None:
            found.update((Spot(parent.grid, point), None) for point in seen[parent.grid].free_moves(parent.point))
        for _, number, _, _, moves in heapq.merge(*(_ranked(number, state) for number, state in enumerate(seen))):
            if len(found) >= limit:
                break
            found.update((Spot(number, point), None) for point in moves)
        return list(found)[:limit]

    def _seen(self, context: ProposalContext) -> list[Seen]:
        """What is known of each grid at this place of the run: only what is new is taken in, where it is a later one."""
        anew, items = self._follower.news(context.tried)
        if anew or len(self._states) != len(self._grids):
            self._states = [Seen(grid, self._test(number)) for number, grid in enumerate(self._grids)]
            items = context.tried
            for given in self._given:
                self._states[given.grid].take(given.point)
        for item in items:
            if (spot := self._spot(item.candidate, exact=True)) is not None:
                state = self._states[spot.grid]
                if item.status is None:
                    state.take(spot.point)
                else:
                    state.measured(spot.point, item.latency_ms)
        for candidate in context.pending:
            if (spot := self._spot(candidate, exact=True)) is not None:
                self._states[spot.grid].take(spot.point)
        return self._states

    def _test(self, number: int) -> Callable[[Point], bool]:
        test = self._allowed
        if test is None:
            return lambda point: True
        return lambda point: test(self._candidate(Spot(number, point)))

    def _spot(self, candidate: Candidate, exact: bool) -> Spot | None:
        for number, grid in enumerate(self._grids):
            values = self._located(grid, candidate.source)
            if values is None:
                continue
            point = grid.point(values) if exact else grid.nearest(values)
            return None if point is None else Spot(number, point)
        return None

    def _read(self, grid: Grid, source: str) -> Config | None:
        """The tunables' values if a text is a variant of the grid's kernel."""
        config = config_of(source)
        if config is not None:
            return config if skeleton_key(source) == grid.skeleton else None
        if source == grid.base.source:
            return grid.current
        if config_of(grid.base.source) is not None or not grid.names:
            return None
        found = self._finder(Candidate(name="", source=source))
        if found is None or list(found.values) != list(grid.current):
            return None
        return found.values if grid.write(found.values).source == source else None

    def _candidate(self, spot: Spot) -> Candidate:
        grid = self._grids[spot.grid]
        number = "_".join(map(str, spot.point))
        return grid.candidate(spot.point, f"{grid.base.name}-{number}" if number else grid.base.name)

    def _proposal(self, spot: Spot, request: ProposalRequest) -> Proposal:
        self._given[spot] = None
        if spot.grid < len(self._states):
            self._states[spot.grid].take(spot.point)
        grid, parent = self._grids[spot.grid], request.parent
        return Proposal(
            candidate=self._candidate(spot),
            parent_sha256=None if parent is None else parent.sha256,
            origin=self.name,
            note=f"{grid.base.name}: {grid.change(spot.point)}",
        )


def _ranked(number: int, state: Seen) -> Iterator[tuple[float, int, int, Point, list[Point]]]:
    """Measured points of one grid that still have free moves, fastest first, so that grids can be merged."""
    return ((ms, number, order, point, moves) for ms, order, point, moves in state.by_time())
