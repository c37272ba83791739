"""Asking for proposals: the pool is kept full as far as the budget can use the answers, and each answer is recorded."""

from __future__ import annotations

from functools import partial

from tilecast.agent.archive import choose_parent
from tilecast.agent.budget import MeterName
from tilecast.agent.policy import may_ask
from tilecast.agent.pool import Outcome
from tilecast.agent.record.events import ProposalAsked, Proposed
from tilecast.agent.record.store import text_sha256
from tilecast.agent.state import Services
from tilecast.sandbox.source import canonical_key
from tilecast.tools.forecast.selection import rank
from tilecast.tools.model.base import BudgetRefused
from tilecast.tools.propose.base import PoolProposer, Proposal, ProposalContext, ProposalRequest

START_ORIGIN = "start"
POOL_LIMIT = 64
"""Most free candidates that the forecaster ranks for one proposal."""
RANKING = frozenset({"learned", "ensemble"})
"""Forecasters that tell candidates of one problem apart without costing money."""


def top_up(services: Services) -> None:
    """Ask for as many proposals as there are free places and evaluations left; first those asked for and never answered."""
    waiting_for = {c.index for c in services.log.state.unanswered}
    for index in sorted(waiting_for):
        if not services.pool.knows(index) and index not in services.deferred and _room(services):
            _ask(services, index)
    while _room(services) and not services.deferred:
        index = services.log.state.next_index
        parent = None
        if index > 0 or services.knowledge.start is None:
            archive = services.log.state.archive
            parent = choose_parent(archive, services.log.header.start_sha256, services.seed, index)
        services.log.append(ProposalAsked(index=index, parent_sha256=parent))
        _ask(services, index)


def received(services: Services, outcome: Outcome) -> MeterName | None:
    """Record an answer. A question refused by the budget is put off; its meter is returned if nothing else is in flight.

    Raises:
        BaseException: whatever the proposer raised otherwise (a provider that is down).
    """
    if isinstance(outcome.error, BudgetRefused):
        services.deferred.append(outcome.index)
        return None if services.pool.waiting else _meter(outcome.error)
    if outcome.error is not None:
        raise outcome.error
    services.deferred.clear()
    assert outcome.proposal is not None
    record_proposal(services, outcome.index, outcome.proposal)
    return None


def record_proposal(services: Services, index: int, proposal: Proposal) -> None:
    """Append a proposal with its texts."""
    candidate = proposal.candidate
    texts = [text for text in (proposal.prompt, proposal.reply, candidate.source if candidate else "") if text]
    services.log.append(
        Proposed(
            index=index,
            name=candidate.name if candidate else "",
            source_sha256=candidate.sha256 if candidate else None,
            canonical=canonical_key(candidate.source) if candidate else None,
            parent_sha256=proposal.parent_sha256,
            origin=proposal.origin,
            note=proposal.note,
            reason=proposal.reason,
            cost=proposal.cost,
            prompt=_sha(proposal.prompt),
            reply=_sha(proposal.reply),
            exhausted=proposal.exhausted,
        ),
        texts,
    )


def _room(services: Services) -> bool:
    pool = services.pool
    return may_ask(services.log.state, pool.waiting, pool.size, services.ledger.left("evals"))


def _ask(services: Services, index: int) -> None:
    asked = services.log.state.candidates[index]
    context = services.knowledge.for_proposer(asked.asked_seq)
    if index == 0 and context.start is not None:
        own = Proposal(candidate=context.start, origin=START_ORIGIN, note="the kernel as it was given")
        services.pool.submit(index, lambda: own)
        return
    parent = services.knowledge.by_sha256(asked.parent_sha256)
    request = ProposalRequest(index=index, seed=services.seed, parent=parent)
    services.pool.submit(index, partial(_prepared, services, request, context))


def _prepared(services: Services, request: ProposalRequest, context: ProposalContext) -> Proposal:
    """A proposal; where several candidates are evaluated at once, with its evidence collected in this thread already."""
    found = _propose(services, request, context)
    if services.evidence is not None and services.flights.sandbox is not None and found.candidate is not None:
        services.evidence(found.candidate)
    return found


def _propose(services: Services, request: ProposalRequest, context: ProposalContext) -> Proposal:
    """One proposal; of many free ones the one that the forecaster values most."""
    proposer = services.proposer
    if not isinstance(proposer, PoolProposer) or services.forecaster.name not in RANKING or proposer.costs_money:
        return proposer.propose(request, context, services.journal)
    known = services.log.state.by_canonical
    offered = [c for c in proposer.pool(request, context, POOL_LIMIT) if canonical_key(c.source) not in known]
    if not offered or not context.tried:
        return proposer.propose(request, context, services.journal)
    forecasts = services.forecaster.forecast(offered, services.knowledge.for_forecaster(None))
    first = rank(forecasts, services.knowledge.incumbent_ms)[0]
    return proposer.claim(offered[first], request, context)


def _meter(error: BudgetRefused) -> MeterName:
    meter: MeterName = error.meter  # type: ignore[assignment]
    return meter


def _sha(text: str) -> str | None:
    return text_sha256(text) if text else None
