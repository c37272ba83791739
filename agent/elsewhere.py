"""Evaluations that go on without this process (bundles): how a run leaves them, takes them up again, and settles its device."""

from __future__ import annotations

from tilecast.agent.budget import Amount
from tilecast.agent.flying import hand_on
from tilecast.agent.progress import Said
from tilecast.agent.record.events import EvaluationLeft, EvaluationLost, Stopped
from tilecast.agent.record.store import RunLog
from tilecast.agent.state import Services
from tilecast.sandbox.base import Sandbox, works_elsewhere
from tilecast.sandbox.errors import WorkLeft


def take_up(log: RunLog, sandbox: Sandbox) -> None:
    """What was in flight when the last process ended: still to be had if it went on elsewhere, else charged as lost."""
    for candidate in list(log.state.candidates.values()):
        if candidate.in_flight_gpu_s is None:
            continue
        if works_elsewhere(sandbox):
            log.append(EvaluationLeft(index=candidate.index))
            continue
        why = "its evaluation was cut off when the process ended"
        charged = candidate.in_flight_gpu_s
        log.append(EvaluationLost(index=candidate.index, charged_gpu_s=charged, why=why, again=True))


def bind_device(log: RunLog, sandbox: Sandbox) -> None:
    """Tell a sandbox that knows its device from results alone which one the run was measured on: the results may be gone."""
    bind = getattr(sandbox, "bind", None)
    if bind is not None and log.state.preflight is not None:
        bind(log.state.preflight.device)


def leave(services: Services, left: WorkLeft) -> None:
    """End the session with evaluations under way elsewhere: nothing is charged for them, and they are asked for again."""
    for candidate in list(services.log.state.candidates.values()):
        if candidate.in_flight_gpu_s is not None:
            services.log.append(EvaluationLeft(index=candidate.index))
            if services.ledger.holds(f"eval:{candidate.index}"):
                services.ledger.settle(f"eval:{candidate.index}", Amount())
    hand_on(services)
    minutes_over = services.ledger.left("minutes") <= 0 and not services.interrupted.is_set()
    services.log.append(Stopped(stopped_by="minutes" if minutes_over else "interrupted", why=str(left)))
    services.tell(Said(f"{left}; to go on: tilecast optimize --resume {services.log.run_id}"))


def stop_waiting(sandbox: Sandbox) -> None:
    """Let a wait for work elsewhere end; safe in a signal handler."""
    if works_elsewhere(sandbox):
        sandbox.interrupt()


def no_more_wanted(services: Services) -> None:
    """The run stopped by itself: what is still open elsewhere need not be done."""
    stopped = services.log.state.stopped
    finished = getattr(services.sandbox, "finished", None)
    if finished is not None and stopped is not None and stopped.stopped_by != "interrupted":
        finished()
        hand_on(services)
