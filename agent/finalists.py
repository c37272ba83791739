"""A candidate about to take the lead is examined a second time: a fresh process, other call counts, a soak.

Of many candidates the fastest one looks faster than it is, and a cheat that times well is the one that would win.
"""

from __future__ import annotations

from tilecast.agent.evaluating import attempt, sink
from tilecast.agent.progress import Step
from tilecast.agent.record.fold import CandidateState
from tilecast.agent.state import Services
from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.schema import EvaluationStatus, Measurement
from tilecast.sandbox.source import Candidate


def confirm(
    services: Services, candidate: CandidateState, first: Measurement, used_s: float
) -> tuple[Measurement, float]:
    """The measurement that counts, and the device seconds of the whole evaluation.

    It is the second one, whatever it says: a rejection, or another speedup. The first one stands, with a note, only if
    the budget or the machine did not allow a second.

    Args:
        services: of the run.
        candidate: whose evaluation is under way.
        first: its measurement.
        used_s: device seconds so far.
    """
    text = services.knowledge.candidate(candidate)
    assert text is not None
    services.tell(Step(f"confirming {text.name} in a fresh process", candidate.index))
    step = attempt(services, candidate, used_s, lambda options: _again(services, candidate, text, options))
    if step.answer is None:
        return _noted(first, f"not confirmed in a fresh process: {step.ended_by} ended it"), used_s + step.seconds
    if step.answer.status is EvaluationStatus.ENVIRONMENT_ERROR:
        return _noted(first, f"not confirmed in a fresh process: {step.answer.reason}"), used_s + step.seconds
    return step.answer, used_s + step.seconds


def _again(services: Services, candidate: CandidateState, text: Candidate, options: EvaluationOptions) -> Measurement:
    confirming = options.model_copy(update={"confirm": True})
    return services.sandbox.benchmark(services.problem, text, confirming, sink(services, candidate))


def _noted(result: Measurement, note: str) -> Measurement:
    notes = [*result.details.get("notes", []), note]
    return result.model_copy(update={"details": {**result.details, "notes": notes}})
