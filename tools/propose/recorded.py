"""`replay:DIR`: the recorded candidates of a problem, in an order given by the seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from itertools import chain

from tilecast.sandbox.source import Candidate, canonical_key
from tilecast.tools.model.base import CallJournal
from tilecast.tools.propose.base import Proposal, ProposalContext, ProposalRequest
from tilecast.tools.propose.history import Follower


class RecordedProposer:
    """Gives the recorded variants out once each; proposal ``index`` is the ``index``-th of the seeded order.

    Where that one was tried already (the user's own kernel, say) the next free one is taken.
    """

    def __init__(self, candidates: Sequence[Candidate], label: str) -> None:
        self._candidates = {canonical_key(item.source): item for item in candidates}
        self._label = label
        self._orders: dict[int, list[str]] = {}
        self._given: set[str] = set()
        self._known: set[str] = set()
        self._follower = Follower()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """``replay:DIR`` as it was given."""
        return self._label

    @property
    def costs_money(self) -> bool:
        """Never."""
        return False

    @property
    def size(self) -> int:
        """Number of recorded candidates."""
        return len(self._candidates)

    def propose(self, request: ProposalRequest, context: ProposalContext, journal: CallJournal) -> Proposal:
        """The next recorded candidate; ``exhausted`` when all were given out."""
        with self._lock:
            key = self._next(request, context)
            if key is None:
                reason = f"all {self.size} recorded candidates were proposed"
                return Proposal(candidate=None, reason=reason, origin="replay", exhausted=True)
            return self._proposal(key)

    def pool(self, request: ProposalRequest, context: ProposalContext, limit: int) -> list[Candidate]:
        """Up to ``limit`` candidates that were not proposed yet, in the seeded order."""
        with self._lock:
            taken = self._taken(context)
            return [self._candidates[key] for key in self._order(request.seed) if key not in taken][:limit]

    def claim(self, candidate: Candidate, request: ProposalRequest, context: ProposalContext) -> Proposal:
        """The proposal for a candidate of :meth:`pool`.

        Raises:
            ValueError: if it is not a recorded one.
        """
        key = canonical_key(candidate.source)
        if key not in self._candidates:
            raise ValueError(f"{candidate.name}: not recorded in {self._label}; claim takes candidates of pool()")
        with self._lock:
            return self._proposal(key)

    def _proposal(self, key: str) -> Proposal:
        self._given.add(key)
        self._known.add(key)
        candidate = self._candidates[key]
        note = ", ".join(f"{key} {value}" for key, value in (candidate.config or {}).items())
        return Proposal(candidate=candidate, origin="replay", note=note)

    def _next(self, request: ProposalRequest, context: ProposalContext) -> str | None:
        order, taken = self._order(request.seed), self._taken(context)
        start = min(request.index, len(order))
        for place in chain(range(start, len(order)), range(start)):
            if order[place] not in taken:
                return order[place]
        return None

    def _taken(self, context: ProposalContext) -> set[str]:
        anew, items = self._follower.news(context.tried)
        if anew:
            self._known = set(self._given)
        self._known.update(canonical_key(item.candidate.source) for item in items)
        self._known.update(canonical_key(candidate.source) for candidate in context.pending)
        return self._known

    def _order(self, seed: int) -> list[str]:
        if seed not in self._orders:
            order = list(self._candidates)
            random.Random(seed).shuffle(order)
            self._orders[seed] = order
        return self._orders[seed]
