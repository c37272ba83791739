"""A model and a program together: the model writes structure, the program turns the knobs of what was measured well."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilecast.sandbox.source import Candidate
from tilecast.tools.model.base import CallJournal
from tilecast.tools.propose.base import Proposal, ProposalContext, ProposalRequest, Proposer, Tried
from tilecast.tools.propose.builtin import BuiltinProposer
from tilecast.tools.propose.history import Follower

EVERY = 2
"""While there are knobs worth turning, every second proposal turns one."""
CLOSE = 1.15
"""Only a kernel within this factor of the best is worth it."""
PATIENCE = 5
"""Turns without an improvement after which a kernel's knobs are left alone."""


class MixedProposer:
    """Alternates between a model and the builtin search, so that no tokens are spent on CONFIG values.

    Which of the two is asked depends on the index and on what was tried, and on nothing else.
    """

    def __init__(self, model: Proposer, knobs: BuiltinProposer) -> None:
        self._model, self._knobs = model, knobs
        self._families = _Families(knobs.family)
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def costs_money(self) -> bool:
        """As the model does."""
        return self._model.costs_money

    def interrupt(self) -> None:
        """Cancel the model's requests in flight."""
        stop = getattr(self._model, "interrupt", None)
        if stop is not None:
            stop()

    def propose(self, request: ProposalRequest, context: ProposalContext, journal: CallJournal) -> Proposal:
        """A CONFIG neighbour of a kernel measured well, or a kernel by the model.

        Raises:
            BudgetRefused, EnvironmentFailure, RequestCancelled: from the model.
        """
        if request.index % EVERY == EVERY - 1:
            with self._lock:
                kernels = self._families.promising(context.tried)
            for kernel in kernels:
                proposal = self._knobs.turn(kernel, request, context)
                if proposal is not None:
                    return proposal
        return self._model.propose(request, context, journal)


def promising(context: ProposalContext, family_of: Callable[[Candidate], str]) -> list[Candidate]:
    """Kernels whose knobs are worth turning, fastest first: close to the best, and still improving under the last turns.

    Args:
        context: what was tried.
        family_of: a name that the variants of one kernel share.
    """
    return _Families(family_of).promising(context.tried)


@dataclass
class _Family:
    """The variants of one kernel: how many were tried, which is the fastest, and how many were tried before that one."""

    count: int = 0
    fastest: Candidate | None = None
    fastest_ms: float = math.inf
    before_it: int = 0


class _Families:
    """Families of what was tried, as of the last place of the run that was asked for."""

    def __init__(self, family_of: Callable[[Candidate], str]) -> None:
        self._family_of = family_of
        self._follower = Follower()
        self._all: dict[str, _Family] = {}

    def promising(self, tried: Sequence[Tried]) -> list[Candidate]:
        """As :func:`promising`."""
        anew, items = self._follower.news(tried)
        if anew:
            self._all = {}
        for item in items:
            family = self._all.setdefault(self._family_of(item.candidate), _Family())
            if item.latency_ms is not None and item.latency_ms < family.fastest_ms:
                family.fastest, family.fastest_ms, family.before_it = item.candidate, item.latency_ms, family.count
            family.count += 1
        best_ms = min((family.fastest_ms for family in self._all.values()), default=math.inf)
        found = [
            family
            for family in self._all.values()
            if family.fastest_ms <= CLOSE * best_ms and family.count - 1 - family.before_it < PATIENCE
        ]
        return [f.fastest for f in sorted(found, key=lambda f: f.fastest_ms) if f.fastest is not None]
