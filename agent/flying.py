"""One whole evaluation for a place of its own, and what the loop's thread does when it begins, goes on and ends."""

from __future__ import annotations

from dataclasses import replace

from tilecast.agent.evaluating import attempt, begin, benchmark_verifies, finish, lose, sink, total_seconds
from tilecast.agent.finalists import confirm
from tilecast.agent.flights import Landed
from tilecast.agent.policy import is_finalist
from tilecast.agent.progress import Fleet, Said, Step
from tilecast.agent.record.events import Noted, Verified
from tilecast.agent.record.fold import CandidateState
from tilecast.agent.state import Services
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification
from tilecast.sandbox.source import Candidate


def take_off(services: Services, candidate: CandidateState, text: Candidate) -> None:
    """Set the evaluation aside in ledger and record, and begin it beside the loop.

    Raises:
        BudgetRefused: if it does not fit in what is left.
    """
    flights = services.flights
    assert flights.sandbox is not None
    begin(services, candidate)
    slot = flights.sandbox.slot()
    # A view of the services: the same ledger and record, a place of its own, and nobody told but the flights.
    own = replace(services, sandbox=slot, device_turn=slot.turn, listeners=[flights.say])
    flights.begin(candidate.index, lambda: evaluate(own, candidate, text))


def evaluate(services: Services, candidate: CandidateState, text: Candidate) -> Landed:
    """Verify, benchmark, and confirm one that is about to take the lead; nothing is recorded here.

    Raises:
        EnvironmentFailure: if the machines cannot go on.
    """
    index, sandbox = candidate.index, services.sandbox
    verification: Verification | None = None
    if not benchmark_verifies(sandbox):
        services.tell(Step(f"verifying {text.name}", index))
        checked = attempt(
            services, candidate, 0.0, lambda o: sandbox.verify(services.problem, text, o, sink(services, candidate))
        )
        verification = checked.answer
        if verification is None:
            return Landed(index, seconds=checked.seconds, ended_by=checked.ended_by)
        if verification.status is not EvaluationStatus.PASSED:
            return Landed(index, rejected(services, verification), seconds=verification.seconds)
    used_s = 0.0 if verification is None or services.sandbox.device.recorded else verification.seconds
    services.tell(Step(f"benchmarking {text.name}", index))
    timed = attempt(
        services, candidate, used_s, lambda o: sandbox.benchmark(services.problem, text, o, sink(services, candidate))
    )
    result = timed.answer
    if result is None:
        return Landed(index, None, verification, used_s + timed.seconds, timed.ended_by)
    seconds = total_seconds(verification, result)
    # The best so far only ever gets faster, so that whatever takes the lead when it lands was examined here.
    if services.rules.confirm and not result.recorded and is_finalist(services.log.state, result):
        result, seconds = confirm(services, candidate, result, seconds)
    return Landed(index, result, verification, seconds)


def rejected(services: Services, verification: Verification) -> Measurement:
    """The result of a candidate that did not pass its verification."""
    result = Measurement(**verification.model_dump(exclude={"schema_version"}))
    return result.model_copy(update={"recorded": services.sandbox.device.recorded})


def land(services: Services, index: int) -> None:
    """Record and charge, once, what came of an evaluation.

    Raises:
        BaseException: what the evaluation raised (a broken machine, a reference that is refused).
    """
    landed = services.flights.take(index)
    candidate = services.log.state.candidates[index]
    if landed.result is None:
        lose(services, candidate, landed.seconds, f"the budget ended its evaluation ({landed.ended_by})")
        return
    if landed.verification is not None:
        services.log.append(Verified(index=index, verification=landed.verification))
    finish(services, candidate, landed.result, landed.seconds)


def hand_on(services: Services) -> None:
    """Tell listeners what flights said and how the evaluators are; what happened to one is recorded with its log."""
    flights = services.flights
    for event in flights.told():
        services.tell(event)
    sandbox = flights.sandbox
    if sandbox is None:
        return
    for incident in sandbox.incidents():
        figures = incident.model_dump(mode="json", exclude={"text"})
        services.log.append(Noted(text=incident.text, figures=figures))
        services.tell(Said(incident.text, warning=incident.warning))
    fleet = Fleet(tuple(sandbox.workers()), sandbox.dashboard)
    if fleet != services.last_fleet:
        services.last_fleet = fleet
        services.tell(fleet)
