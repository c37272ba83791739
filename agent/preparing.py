"""Before the first proposal: is the reference usable, how fast are the baselines; charged, recorded, done once a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tilecast.agent.budget import Amount
from tilecast.agent.flying import hand_on
from tilecast.agent.progress import BaselineKnown, Step
from tilecast.agent.record.events import BaselinesDone, PreflightDone
from tilecast.agent.state import Services
from tilecast.sandbox.base import EvaluationOptions, works_elsewhere
from tilecast.sandbox.errors import EnvironmentFailure, NothingMeasured, ProblemError, WorkLeft
from tilecast.sandbox.schema import EvaluationStatus

Answer = TypeVar("Answer")


def prepare(services: Services) -> None:
    """Preflight and baselines, as far as the record does not have them.

    Raises:
        ProblemError: INVALID_REFERENCE, with the reason.
        NothingMeasured: if the budget does not even pay for this.
        EnvironmentFailure: if the machine cannot do it.
    """
    if works_elsewhere(services.sandbox):
        hand_on(services)
    _preflight(services)
    services.knowledge.settle_device(services.sandbox.device)
    _baselines(services)


def _preflight(services: Services) -> None:
    state = services.log.state
    if state.preflight is not None and not services.sandbox.device.recorded:
        return
    services.tell(Step("checking the reference"))
    answer = _within(services, lambda: services.sandbox.preflight(services.problem, _say(services)))
    if answer.status is EvaluationStatus.INVALID_REFERENCE:
        raise ProblemError(f"{services.problem.path}: INVALID_REFERENCE: {answer.reason}")
    if answer.status is not EvaluationStatus.PASSED:
        raise EnvironmentFailure(f"{services.problem.path}: {answer.status}: {answer.reason}")
    if state.preflight is not None:
        return
    estimate = services.sandbox.estimate(services.problem)
    done = PreflightDone(
        device=services.sandbox.device, preflight=answer, estimate=estimate, charged_gpu_s=answer.seconds
    )
    services.log.append(done)
    services.ledger.charge(Amount(gpu_seconds=answer.seconds))


def _baselines(services: Services) -> None:
    done = services.log.state.baselines
    if done is None:
        services.tell(Step("timing the baselines"))
        with services.device_turn():
            found = _within(
                services,
                lambda: services.sandbox.baselines(services.problem, services.options, _say(services)),
            )
        done = BaselinesDone(baselines=found, charged_gpu_s=found.seconds)
        services.log.append(done)
        services.ledger.charge(Amount(gpu_seconds=found.seconds))
    services.options = against(services.options, done.baselines.fastest)
    services.tell(BaselineKnown(done.baselines))
    services.tell_spent()


def against(options: EvaluationOptions, fastest: str) -> EvaluationOptions:
    """Options in which ``auto`` is settled, so that every candidate of a run meets the same baseline."""
    return options.model_copy(update={"baseline": fastest}) if options.baseline == "auto" else options


def _within(services: Services, work: Callable[[], Answer]) -> Answer:
    """Do set-up work, ended where the budget of device seconds or minutes ends."""
    left_s = min(services.ledger.left("gpu_seconds"), services.ledger.left("minutes") * 60)
    if works_elsewhere(services.sandbox):
        left_s = services.ledger.left("minutes") * 60
    if left_s == float("inf") or services.sandbox.device.recorded:
        return work()
    cut = threading.Event()

    def end() -> None:
        cut.set()
        services.sandbox.interrupt()

    timer = threading.Timer(left_s, end)
    timer.daemon = True
    timer.start()
    try:
        answer = work()
    except WorkLeft:
        raise
    except EnvironmentFailure:
        if not cut.is_set():
            raise
        services.ledger.charge(Amount(gpu_seconds=left_s))
        raise NothingMeasured(
            f"the budget ended before the baselines were timed ({left_s:.3g} s of device time)"
        ) from None
    finally:
        timer.cancel()
    return answer


def _say(services: Services) -> Callable[[str], None]:
    def say(text: str) -> None:
        services.tell(Step(text))
        if works_elsewhere(services.sandbox):
            hand_on(services)  # days may pass here: a refusal is in the record at once

    return say
