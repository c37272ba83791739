"""The steps of the loop. Each takes up the candidate that the state names, does one thing, appends it to the record,
and says where to go on."""

from __future__ import annotations

from tilecast.agent.evaluating import begin, benchmark_verifies, finish, next_cost, on_device, sink, total_seconds
from tilecast.agent.finalists import confirm
from tilecast.agent.flying import hand_on, rejected, take_off
from tilecast.agent.flying import land as take_down
from tilecast.agent.policy import Stop, choose, is_finalist, judge, machine_failure, resume_at, screen, stop_of
from tilecast.agent.pool import Outcome
from tilecast.agent.progress import Finished, Step
from tilecast.agent.proposing import START_ORIGIN, received, top_up
from tilecast.agent.record.events import Forecasted, Stopped, Verified
from tilecast.agent.record.fold import CandidateState
from tilecast.agent.state import LoopState, Services
from tilecast.sandbox.errors import EnvironmentFailure, ProblemError
from tilecast.sandbox.schema import EvaluationStatus, Forecast
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.selection import BudgetLeft
from tilecast.tools.model.base import BudgetRefused

CLOCK_TICK_S = 0.5
"""How often a wait for answers looks at the clock, where there is a limit of minutes."""


def enter(state: LoopState, services: Services) -> LoopState:
    """Where to go on, by the record alone: a fresh and a resumed run both begin here."""
    phase, index = resume_at(services.log.state)
    return {"run": services.log.run_id, "phase": phase, "index": index}


def propose(state: LoopState, services: Services) -> LoopState:
    """Keep the pool full and take the next answer; where evaluations are in the air, take the next that is done; or stop."""
    flights = services.flights
    while True:
        hand_on(services)
        if flights.landed is not None:
            return {**state, "phase": "land", "index": flights.landed}
        stop = _stop(services)
        if stop is None and flights.room:
            phase, index = resume_at(services.log.state, flights.flying)
            if index is not None:
                return {**state, "phase": phase, "index": index}
            top_up(services)
            if not (services.pool.waiting or services.deferred or flights.flying):
                stop = Stop("exhausted", "there is nothing more to propose")
        if stop is not None and not flights.flying:
            return _stopped(state, services, stop)
        outcome = _await(services, stop)
        if outcome is None:
            continue
        services.refused = received(services, outcome)
        if services.log.state.candidates[outcome.index].proposed is not None:
            return {**state, "phase": "forecast", "index": outcome.index}


def _await(services: Services, stop: Stop | None) -> Outcome | None:
    """The next proposal; None if there is something else to look at first. Nothing is taken that nobody could evaluate."""
    flights, pool = services.flights, services.pool
    services.tell_spent()
    if flights.flying and (stop is not None or not flights.room or not pool.waiting):
        flights.wait(CLOCK_TICK_S)
        return None
    if pool.in_flight:
        services.tell(Step(_waiting(pool.in_flight)))
    ticking = services.ledger.limits.minutes is not None or flights.sandbox is not None
    return pool.take(CLOCK_TICK_S if ticking else None)


def forecast(state: LoopState, services: Services) -> LoopState:
    """Decide whether the candidate deserves the device."""
    candidate = _current(state, services)
    chosen = screen(services.log.state, candidate)
    if chosen is None:
        found = candidate.forecast or _forecast(services, candidate)
        # The user's own kernel is where the search starts: it is measured whatever is forecast.
        given = candidate.proposed is not None and candidate.proposed.origin == START_ORIGIN
        incumbent_ms = None if given else services.knowledge.incumbent_ms
        chosen = choose(candidate, found, incumbent_ms, _left(services), services.seed)
    services.log.append(chosen)
    return {**state, "phase": "verify" if chosen.action in ("measure", "audit") else "decide"}


def verify(state: LoopState, services: Services) -> LoopState:
    """Send the candidate to the device; go on to the benchmark only if it is right.

    Where the benchmark itself begins with the whole verification, it is the gate, and this step only sets the budget aside.
    Where the sandbox has several places, the whole evaluation begins beside the loop, which goes on with the next proposal.
    """
    candidate = _current(state, services)
    text = _text(services, candidate)
    try:
        if services.flights.sandbox is not None:
            take_off(services, candidate, text)
            return {**state, "phase": "propose", "index": None}
        begin(services, candidate)
    except BudgetRefused as error:
        if services.flights.flying:
            return {**state, "phase": "propose", "index": None}
        return _stopped(state, services, Stop(error.meter, str(error)))  # type: ignore[arg-type]
    if benchmark_verifies(services.sandbox):
        return {**state, "phase": "benchmark"}
    services.tell(Step(f"verifying {text.name}", candidate.index))
    verification = on_device(
        services,
        candidate,
        0.0,
        lambda options: services.sandbox.verify(services.problem, text, options, sink(services, candidate)),
    )
    if verification is None:
        return {**state, "phase": "decide"}
    if verification.status is EvaluationStatus.PASSED:
        services.log.append(Verified(index=candidate.index, verification=verification))
        return {**state, "phase": "benchmark"}
    finish(services, candidate, rejected(services, verification), verification.seconds)
    return {**state, "phase": "decide"}


def benchmark(state: LoopState, services: Services) -> LoopState:
    """Measure a candidate; the benchmark verifies what it times and may still reject it."""
    candidate = _current(state, services)
    text, verification = _text(services, candidate), candidate.verification
    services.tell(Step(f"benchmarking {text.name}", candidate.index))
    used_s = 0.0 if verification is None or services.sandbox.device.recorded else verification.seconds
    result = on_device(
        services,
        candidate,
        used_s,
        lambda options: services.sandbox.benchmark(services.problem, text, options, sink(services, candidate)),
    )
    if result is not None:
        seconds = total_seconds(verification, result)
        if services.rules.confirm and benchmark_verifies(services.sandbox) and is_finalist(services.log.state, result):
            result, seconds = confirm(services, candidate, result, seconds)
        finish(services, candidate, result, seconds)
    return {**state, "phase": "decide"}


def land(state: LoopState, services: Services) -> LoopState:
    """Record an evaluation that was done beside the loop."""
    assert state["index"] is not None
    take_down(services, state["index"])
    return {**state, "phase": "decide"}


def decide(state: LoopState, services: Services) -> LoopState:
    """Keep or drop, and why."""
    candidate = _current(state, services)
    services.log.append(judge(services.log.state, candidate))
    services.knowledge.judged(candidate)
    services.tell(Finished(candidate))
    services.tell_spent()
    _check_machine(services, candidate)
    return {**state, "phase": "propose", "index": None}


def _current(state: LoopState, services: Services) -> CandidateState:
    assert state["index"] is not None
    return services.log.state.candidates[state["index"]]


def _text(services: Services, candidate: CandidateState) -> Candidate:
    text = services.knowledge.candidate(candidate)
    assert text is not None, "screened before"
    return text


def _stopped(state: LoopState, services: Services, stop: Stop) -> LoopState:
    services.log.append(Stopped(stopped_by=stop.by, why=stop.why))
    return {**state, "phase": "stopped", "index": None}


def _stop(services: Services) -> Stop | None:
    stop = stop_of(services.log.state, services.rules, services.interrupted.is_set())
    if stop is not None:
        return stop
    meter = services.ledger.blocked_by(*next_cost(services)) or services.refused
    if meter is None:
        return None
    left, limit = services.ledger.left(meter), services.ledger.limits.of(meter)
    used_up = left <= 0
    why = (
        f"all {limit:.4g} {meter} are spent"
        if used_up
        else f"{left:.4g} of {limit:.4g} {meter} left: too little for one more"
    )
    return Stop(meter, why)


def _left(services: Services) -> BudgetLeft:
    ledger = services.ledger
    return BudgetLeft(
        evals=None if ledger.limits.evals is None else int(ledger.left("evals")),
        gpu_seconds=None if ledger.limits.gpu_seconds is None else ledger.left("gpu_seconds"),
        seconds_per_eval=next_cost(services)[0].gpu_seconds,
    )


def _forecast(services: Services, candidate: CandidateState) -> Forecast | None:
    text = _text(services, candidate)
    services.tell(Step(f"forecasting {text.name}", candidate.index))
    try:
        found = services.forecaster.forecast([text], services.knowledge.for_forecaster(services.evidence))[0]
    except BudgetRefused:
        # That a forecast cannot be paid for is no reason not to measure.
        return None
    services.log.append(Forecasted(index=candidate.index, forecast=found))
    return found


def _check_machine(services: Services, candidate: CandidateState) -> None:
    result = candidate.result
    if result is None:
        return
    if result.status is EvaluationStatus.INVALID_REFERENCE:
        raise ProblemError(f"{services.problem.path}: INVALID_REFERENCE: {result.reason}")
    failure = machine_failure(services.log.state)
    if failure is not None:
        raise EnvironmentFailure(failure)


def _waiting(count: int) -> str:
    return f"waiting for {count} proposal{'s' if count > 1 else ''}"
