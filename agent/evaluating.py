"""One step on the device, within what is left of the budget: set aside, watched, charged; the budget may end it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tilecast.agent.budget import Amount
from tilecast.agent.policy import expected_seconds
from tilecast.agent.progress import Step
from tilecast.agent.record.events import EvaluationDone, EvaluationLost, EvaluationStarted
from tilecast.agent.record.fold import CandidateState
from tilecast.agent.state import Services
from tilecast.sandbox.base import EvaluationOptions, ProgressSink, Sandbox, works_elsewhere
from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification

Answer = TypeVar("Answer", bound=Verification)
LEAST_S = 0.001


def next_cost(services: Services) -> tuple[Amount, float]:
    """What one more evaluation is expected to take: ledger amount, and minutes of the user's time (0 for a record)."""
    state = services.log.state
    estimate_s = state.preflight.estimate.seconds_per_eval if state.preflight else 0.0
    expected_s = expected_seconds(estimate_s, state.evaluated, state.evaluated_gpu_s)
    live = not services.sandbox.device.recorded
    return Amount(evals=1, gpu_seconds=expected_s), expected_s / 60 if live else 0.0


def benchmark_verifies(sandbox: Sandbox) -> bool:
    """Whether its benchmark is a whole verification first, so that a separate one would only cost device time."""
    return bool(getattr(sandbox, "benchmark_verifies", False))


def begin(services: Services, candidate: CandidateState) -> None:
    """Set one evaluation aside, in the ledger and then in the record.

    Raises:
        BudgetRefused: if it does not fit in what is left.
    """
    amount, minutes = next_cost(services)
    services.ledger.reserve(_key(candidate), amount, minutes)
    services.log.append(EvaluationStarted(index=candidate.index, reserved_gpu_s=amount.gpu_seconds))


def on_device(
    services: Services, candidate: CandidateState, used_s: float, work: Callable[[EvaluationOptions], Answer]
) -> Answer | None:
    """Do one step of an evaluation on the device; None if the budget ended it (recorded and charged here).

    Args:
        services: of the run.
        candidate: whose evaluation was begun.
        used_s: device seconds of its earlier steps.
        work: the step, given options whose times fit in what is left.

    Raises:
        EnvironmentFailure: if the machine is broken.
    """
    step = attempt(services, candidate, used_s, work)
    if step.answer is None:
        lose(services, candidate, used_s + step.seconds, f"the budget ended its evaluation ({step.ended_by})")
    return step.answer


@dataclass(frozen=True)
class Attempt(Generic[Answer]):
    """One step on the device: its answer, or None with the meter that ended it; device seconds within what was left."""

    answer: Answer | None
    seconds: float
    ended_by: str = ""


def attempt(
    services: Services, candidate: CandidateState, used_s: float, work: Callable[[EvaluationOptions], Answer]
) -> Attempt[Answer]:
    """As :func:`on_device`, leaving it to the caller what an end by the budget means."""
    left_s, minutes_left_s = _left_s(services, candidate) - used_s, services.ledger.left("minutes") * 60
    with services.device_turn():
        began = time.monotonic()
        answer = _watched(services, max(LEAST_S, min(left_s, minutes_left_s)), work)
        took_s = time.monotonic() - began
    timed_elsewhere = services.sandbox.device.recorded or works_elsewhere(services.sandbox)
    if answer is not None and not (timed_elsewhere and answer.seconds > left_s):
        return Attempt(answer, answer.seconds)
    spent_s = answer.seconds if answer is not None else took_s
    return Attempt(None, min(spent_s, max(0.0, left_s)), "minutes" if minutes_left_s < left_s else "gpu_seconds")


def finish(services: Services, candidate: CandidateState, result: Measurement, seconds: float) -> None:
    """Record a finished evaluation and charge it; NOT_RECORDED costs nothing and is no evaluation."""
    counted = result.status is not EvaluationStatus.NOT_RECORDED
    charged = seconds if counted else 0.0
    services.log.append(EvaluationDone(index=candidate.index, result=result, counted=counted, charged_gpu_s=charged))
    services.ledger.settle(_key(candidate), Amount(evals=int(counted), gpu_seconds=charged))


def lose(services: Services, candidate: CandidateState, charged_s: float, why: str) -> None:
    """Record and charge an evaluation that ended without a result."""
    services.log.append(EvaluationLost(index=candidate.index, charged_gpu_s=charged_s, why=why, again=False))
    services.ledger.settle(_key(candidate), Amount(evals=1, gpu_seconds=charged_s))


def total_seconds(verification: Verification | None, result: Measurement) -> float:
    """Device seconds of a whole evaluation: a recorded one is one figure, else what each step took."""
    return result.seconds if result.recorded or verification is None else verification.seconds + result.seconds


def sink(services: Services, candidate: CandidateState) -> ProgressSink:
    """Hands the sandbox's progress lines on."""
    return lambda text: services.tell(Step(text, candidate.index))


def _watched(services: Services, allowed_s: float, work: Callable[[EvaluationOptions], Answer]) -> Answer | None:
    options = services.options
    if works_elsewhere(services.sandbox):
        return _until(services, work)
    if allowed_s == float("inf") or services.sandbox.device.recorded:
        return work(options)
    cut = threading.Event()

    def end() -> None:
        cut.set()
        services.sandbox.interrupt()

    limits = {"timeout_s": min(options.timeout_s, allowed_s), "max_seconds": min(options.max_seconds, allowed_s)}
    timer = threading.Timer(allowed_s, end)
    timer.daemon = True
    timer.start()
    try:
        answer = work(options.model_copy(update=limits))
    except EnvironmentFailure:
        if not cut.is_set():
            raise
        return None
    finally:
        timer.cancel()
    # A time-out under a limit shortened by the budget says nothing about the candidate.
    shortened = answer.status is EvaluationStatus.TIMEOUT and limits["timeout_s"] < options.timeout_s
    return None if cut.is_set() or shortened else answer


def _until(services: Services, work: Callable[[EvaluationOptions], Answer]) -> Answer:
    """Wait for work that is done elsewhere, no longer than the run has minutes: the wait is no device time."""
    minutes_left_s = services.ledger.left("minutes") * 60
    if minutes_left_s == float("inf"):
        return work(services.options)
    timer = threading.Timer(max(LEAST_S, minutes_left_s), services.sandbox.interrupt)
    timer.daemon = True
    timer.start()
    try:
        return work(services.options)
    finally:
        timer.cancel()


def _left_s(services: Services, candidate: CandidateState) -> float:
    """Device seconds that this evaluation may take: what is free, and what was set aside for it."""
    return services.ledger.left("gpu_seconds") + (candidate.in_flight_gpu_s or 0.0)


def _key(candidate: CandidateState) -> str:
    return f"eval:{candidate.index}"
