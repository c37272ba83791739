"""The loop on a machine that breaks, is slow, cannot time, or contradicts itself: who is to blame, and what is charged."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from loop_parts import (
    FASTEST,
    OTHER,
    Scripted,
    WatchedReplay,
    go,
    make_request,
    making,
    variant,
)

from tilecast.agent.budget import Limits
from tilecast.agent.engine import Engine
from tilecast.sandbox.base import DeviceFacts, Estimate, EvaluationOptions
from tilecast.sandbox.errors import EnvironmentFailure, ProblemError
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification


class Broken(WatchedReplay):
    """A machine that fails from the second candidate on."""

    def verify(self, *args: Any) -> Verification:
        found = super().verify(*args)
        if len(self.sent) == 2:
            raise EnvironmentFailure("the GPU has fallen off the bus")
        return found


def test_a_broken_machine_ends_the_session_and_the_run_goes_on_later() -> None:
    script = [FASTEST, variant(64, 1), OTHER]
    engine = Engine(make_request(), make=making(Scripted(script), Broken()))
    with pytest.raises(EnvironmentFailure, match="fallen off"):
        engine.run()
    assert engine.run_id is not None
    sandbox = WatchedReplay()
    result = Engine(make_request(), resume=engine.run_id, make=making(Scripted(script), sandbox)).run()
    assert result.best is not None and result.best.source_sha256 == OTHER.sha256
    assert FASTEST.sha256 not in sandbox.sent
    assert result.ledger.evals.spent == 4  # the one that was cut off is charged, and made again


class Live(WatchedReplay):
    """A device whose seconds are real: an evaluation takes ``takes_s`` and can be interrupted."""

    benchmark_verifies = True

    def __init__(self, takes_s: float) -> None:
        super().__init__()
        self.takes_s, self.stop = takes_s, threading.Event()
        self.options: list[EvaluationOptions] = []
        self.not_again: dict[str, EvaluationStatus] = {}

    @property
    def device(self) -> DeviceFacts:
        return super().device.model_copy(update={"kind": "cuda", "recorded": False, "uuid": "GPU-of-this-test"})

    def estimate(self, problem: Any) -> Estimate:
        return Estimate(seconds_per_eval=0.05, setup_seconds=0.0, basis="measured")

    def verify(self, *args: Any) -> Verification:
        assert self._inside, "a benchmark that verifies makes this a waste of device time"
        return super().verify(*args)

    def benchmark(self, problem: Any, candidate: Any, options: EvaluationOptions, progress: Any) -> Measurement:
        self.sent.append(candidate.sha256)
        self.options.append(options)
        if self.stop.wait(self.takes_s):
            self.stop.clear()
            raise EnvironmentFailure("interrupted")
        found = super().benchmark(problem, candidate, options, progress)
        if options.confirm and candidate.sha256 in self.not_again:
            found = Measurement(
                status=self.not_again[candidate.sha256], source_sha256=candidate.sha256, reason="not again"
            )
        return found.model_copy(update={"seconds": self.takes_s, "recorded": False})

    def interrupt(self) -> None:
        self.stop.set()


def test_a_real_device_is_taken_away_where_its_seconds_end() -> None:
    sandbox = Live(takes_s=60.0)
    began = time.monotonic()
    result, _, _ = go(Scripted([FASTEST, OTHER]), sandbox, limits=Limits(gpu_seconds=0.5))
    assert time.monotonic() - began < 20
    assert result.stopped_by == "gpu_seconds" and result.best is None
    assert result.ledger.gpu_seconds.spent is not None and 0.4 < result.ledger.gpu_seconds.spent <= 0.5
    assert len(sandbox.sent) == 1 and sandbox.options[0].timeout_s <= 0.5


def test_minutes_end_an_evaluation_too() -> None:
    result, _, _ = go(Scripted([FASTEST, OTHER]), Live(takes_s=60.0), limits=Limits(minutes=1 / 60))
    assert result.stopped_by == "minutes" and result.best is None
    assert result.ledger.minutes.spent is not None and result.ledger.minutes.spent < 10 / 60


def test_real_seconds_are_charged_once_for_the_benchmark_that_verifies() -> None:
    sandbox = Live(takes_s=0.01)
    result, _, _ = go(Scripted([FASTEST, OTHER]), sandbox, limits=Limits(evals=2), confirm=False)
    assert result.ledger.gpu_seconds.spent == pytest.approx(0.02) and len(sandbox.sent) == 2
    assert result.best is not None and not result.best.recorded


def test_a_new_best_is_examined_twice_within_one_evaluation_and_others_once() -> None:
    sandbox, slower = Live(takes_s=0.01), variant(64, 8)
    result, log, _ = go(Scripted([slower, FASTEST, variant(128, 1), OTHER]), sandbox)
    # Slower than the baseline, a best that is faster, no best, the final best.
    assert [o.confirm for o in sandbox.options] == [False, False, True, False, False, True]
    assert result.ledger.evals.spent == 4 and len(log.events("evaluated")) == 4
    assert result.ledger.gpu_seconds.spent == pytest.approx(0.06)


def test_a_best_that_does_not_stand_up_to_a_second_look_is_rejected() -> None:
    sandbox = Live(takes_s=0.01)
    sandbox.not_again = {OTHER.sha256: EvaluationStatus.REWARD_HACK}
    result, log, _ = go(Scripted([FASTEST, OTHER]), sandbox)
    assert result.best is not None and result.best.source_sha256 == FASTEST.sha256
    assert log.state.candidates[1].judged is not None and log.state.candidates[1].judged.why == "REWARD_HACK: not again"


def test_a_second_look_that_the_machine_fails_leaves_the_first_with_a_note() -> None:
    sandbox = Live(takes_s=0.01)
    sandbox.not_again = {FASTEST.sha256: EvaluationStatus.ENVIRONMENT_ERROR}
    result, log, _ = go(Scripted([FASTEST]), sandbox)
    found = log.state.candidates[0].result
    assert result.best is not None and found is not None
    assert found.details["notes"] == ["not confirmed in a fresh process: not again"]


class Says(WatchedReplay):
    """Gives one status to everything."""

    def __init__(self, status: EvaluationStatus) -> None:
        super().__init__()
        self.status = status

    def verify(self, problem: Any, candidate: Any, options: Any, progress: Any) -> Verification:
        return Verification(status=self.status, reason="so it is", source_sha256=candidate.sha256)


def test_a_machine_that_fails_every_candidate_is_given_up() -> None:
    script = [variant(b, w) for b in (64, 128, 256) for w in (1, 2, 4)]
    with pytest.raises(EnvironmentFailure, match="3 evaluations in a row"):
        go(Scripted(script), Says(EvaluationStatus.ENVIRONMENT_ERROR))


class Untimed(WatchedReplay):
    """A machine that can check and not time."""

    def benchmark(self, *args: Any) -> Measurement:
        found = super().benchmark(*args)
        return Measurement(
            status=found.status, source_sha256=found.source_sha256, details={"notes": ["only an interpreter"]}
        )


def test_a_machine_that_can_time_nothing_is_given_up() -> None:
    script = [variant(b, w) for b in (64, 128, 256) for w in (1, 2, 4)]
    with pytest.raises(
        EnvironmentFailure, match=r"3 candidates were correct and none could be timed here: .*interpreter"
    ):
        go(Scripted(script), Untimed())


def test_an_invalid_reference_found_late_is_the_problems_fault() -> None:
    with pytest.raises(ProblemError, match="INVALID_REFERENCE: so it is"):
        go(Scripted([FASTEST]), Says(EvaluationStatus.INVALID_REFERENCE))
