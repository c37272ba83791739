"""A model and a program together: the model writes structure, the program turns the knobs of what was measured well."""

from __future__ import annotations

from collections.abc import Callable

from tilecast.sandbox.source import Candidate
from tilecast.tools.model.base import CallJournal
from tilecast.tools.propose.base import Proposal, ProposalContext, ProposalRequest, Proposer, Tried
from tilecast.tools.propose.builtin import BuiltinProposer

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
            for kernel in promising(context, self._knobs.family):
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
    families: dict[str, list[Tried]] = {}
    for tried in context.tried:
        families.setdefault(family_of(tried.candidate), []).append(tried)
    best = min((t.latency_ms for t in context.tried if t.latency_ms is not None), default=None)
    found = []
    for family in families.values():
        fastest = min((t for t in family if t.latency_ms is not None), key=lambda t: t.latency_ms or 0.0, default=None)
        if fastest is None or best is None or (fastest.latency_ms or 0.0) > CLOSE * best:
            continue
        if len(family) - 1 - family.index(fastest) < PATIENCE:
            found.append(fastest)
    return [tried.candidate for tried in sorted(found, key=lambda t: t.latency_ms or 0.0)]
