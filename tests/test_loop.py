"""The graph from end to end, with a scripted proposer and recorded measurements."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from loop_parts import (
    KERNEL,
    OTHER,
    SLOW,
    TINY,
    WRONG,
    Scripted,
    WatchedReplay,
    make_request,
    making,
    unrecorded,
    variant,
)

from tilecast.agent.budget import Limits
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import Finished, Progress, Said
from tilecast.agent.record.store import RunLog
from tilecast.sandbox.base import DeviceFacts, Estimate, EvaluationOptions
from tilecast.sandbox.errors import EnvironmentFailure, ProblemError, UsageError
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus, Measurement, OptimizeResult, Verification

FASTEST = variant(256, 2)


def go(
    proposer: Scripted, sandbox: Any = None, in_flight: int = 1, **request: Any
) -> tuple[OptimizeResult, RunLog, Engine]:
    engine = Engine(make_request(**request), make=making(proposer, sandbox, in_flight))
    result = engine.run()
    log = open_record(None, engine.request.home).open(result.run, lambda: 0.0)
    return result, log, engine


def test_the_fastest_correct_candidate_is_best_and_written() -> None:
    result, log, _ = go(Scripted([variant(64, 1), FASTEST, variant(128, 1)]))
    assert result.best is not None and result.best.source_sha256 == FASTEST.sha256
    assert result.improved and result.best.recorded and result.stopped_by == "exhausted"
    assert Path(result.best.path).read_text() == FASTEST.source
    assert [c.judged.best for c in log.state.candidates.values() if c.judged] == [True, True, False, False]
    assert result.candidates.measured == 3


def test_the_users_own_kernel_is_measured_first() -> None:
    result, log, _ = go(Scripted(["never asked", FASTEST]), start=KERNEL)
    assert log.state.candidates[0].proposed is not None and log.state.candidates[0].proposed.origin == "start"
    assert result.candidates.measured == 2


@pytest.mark.parametrize("bad", [WRONG, SLOW, variant(512, 8), unrecorded(1)])
def test_what_was_not_verified_and_measured_is_never_best(bad: Any) -> None:
    result, log, _ = go(Scripted([bad]))
    assert result.best is None and not result.improved
    assert not (log.run_dir / "best.py").exists()
    assert result.notes[-1].startswith("nothing could be measured: 1 ")


def test_a_slow_best_is_best_all_the_same_and_not_an_improvement() -> None:
    result, _, _ = go(Scripted([variant(64, 8)]))
    assert result.best is not None and result.best.verdict == "slower" and not result.improved


def test_what_is_not_recorded_costs_nothing_and_is_no_evaluation() -> None:
    result, _, _ = go(Scripted([unrecorded(1), FASTEST, unrecorded(2)]), limits=Limits(evals=1))
    assert result.stopped_by == "evals"
    assert (result.ledger.evals.spent, result.ledger.gpu_seconds.spent) == (1, 0.5)
    assert result.candidates.not_recorded == 1


def test_the_same_candidate_again_is_dropped_without_an_evaluation() -> None:
    same = FASTEST.model_copy(update={"source": FASTEST.source + "\n# said again\n"})
    sandbox = WatchedReplay()
    result, log, _ = go(Scripted([FASTEST, same]), sandbox)
    assert len(sandbox.sent) == 1 and result.ledger.evals.spent == 1
    assert log.state.candidates[1].judged is not None
    assert log.state.candidates[1].judged.why == "the same as candidate 0"


def test_the_record_sums_to_the_ledger_exactly() -> None:
    script = [FASTEST, WRONG, "no code in the answer", SLOW, OTHER, unrecorded(1), variant(64, 1)]
    result, log, _ = go(Scripted(script, costs_money=True), in_flight=3)
    assert result.ledger.evals.spent == sum(c.counted for c in log.state.candidates.values()) == 5
    assert result.ledger.gpu_seconds.spent == sum(c.charged_gpu_s for c in log.state.candidates.values()) == 4.0
    assert result.ledger.tokens.spent == 100 * log.state.calls
    assert result.ledger.usd.spent == pytest.approx(0.005 * log.state.calls)


@pytest.mark.parametrize("seed", range(3))
def test_eight_in_flight_start_no_more_evaluations_than_the_budget_has(seed: int) -> None:
    chance = random.Random(seed)
    blocks = [(b, w) for b in (64, 128, 256, 512) for w in (1, 2, 4, 8)]
    latency = [chance.uniform(0, 0.03) for _ in range(40)]
    proposer = Scripted([variant(*p) for p in blocks] + [OTHER] * 20, True, lambda index: latency[index])
    sandbox = WatchedReplay(hold_s=0.002)
    result, log, _ = go(proposer, sandbox, in_flight=8, limits=Limits(evals=10), seed=seed)
    assert result.stopped_by == "evals"
    assert len(sandbox.sent) == result.ledger.evals.spent == 10
    assert sandbox.most_at_once == 1
    assert proposer.most_in_flight > 1 and max(proposer.asked) < 18
    assert len(log.events(kind="evaluation_started")) == 10
    assert result.ledger.tokens.spent == 100 * log.state.calls + 150 * log.state.lost_calls


def test_a_slow_answer_holds_up_nobody() -> None:
    order: list[int] = []
    others_done = threading.Event()

    def listen(event: Progress) -> None:
        if isinstance(event, Finished):
            order.append(event.candidate.index)
            if len(order) == 3:
                others_done.set()

    def slow_first(index: int) -> float:
        assert index > 0 or others_done.wait(60), "the others waited for it"
        return 0.0

    script = [variant(64, 1), FASTEST, OTHER, variant(128, 1)]
    Engine(make_request(), [listen], make=making(Scripted(script, True, slow_first), None, 2)).run()
    assert order.index(0) >= 3


def test_answers_in_order_give_the_same_run_twice() -> None:
    script = [variant(b, w) for b in (64, 128, 256) for w in (1, 2, 4)]
    runs = []
    for _ in range(2):
        proposer = Scripted(script, costs_money=True)
        go(proposer, in_flight=1, seed=5)
        runs.append({i: (len(c.tried), c.start) for i, c in proposer.contexts.items()})
    assert runs[0] == runs[1]


def test_device_seconds_end_the_run_before_one_more_would_not_fit() -> None:
    result, _, _ = go(
        Scripted([variant(b, w) for b in (64, 128, 256) for w in (1, 2, 4)]), limits=Limits(gpu_seconds=2.2)
    )
    assert result.stopped_by == "gpu_seconds"
    assert result.ledger.gpu_seconds.spent is not None and result.ledger.gpu_seconds.spent <= 2.2


def test_an_evaluation_that_the_budget_ends_has_no_result() -> None:
    result, log, _ = go(Scripted([SLOW, FASTEST]), limits=Limits(gpu_seconds=1.0))
    assert result.best is None and result.stopped_by == "gpu_seconds"
    assert result.ledger.gpu_seconds.spent == 1.0
    assert log.state.candidates[0].judged is not None
    assert "the budget ended its evaluation" in log.state.candidates[0].judged.why


def test_tokens_end_the_run_only_when_nothing_in_flight_could_give_some_back() -> None:
    script = [variant(b, w) for b in (64, 128, 256) for w in (1, 2, 4)]
    result, _, _ = go(Scripted(script, costs_money=True), in_flight=4, limits=Limits(tokens=500))
    assert result.stopped_by == "tokens"
    # Four times 100 are spent; a fifth needs 150 set aside and 100 are left.
    assert result.ledger.tokens.spent == 400 and result.candidates.measured == 4


def test_the_target_stops_the_run() -> None:
    result, _, _ = go(Scripted([variant(64, 1), FASTEST, OTHER]), target_speedup=1.5)
    assert result.stopped_by == "target" and result.ledger.evals.spent == 2


def test_patience_counts_evaluations_without_a_better_one() -> None:
    script = [FASTEST, variant(64, 1), WRONG, variant(64, 2), OTHER]
    result, _, _ = go(Scripted(script), patience=3)
    assert result.stopped_by == "patience" and result.ledger.evals.spent == 4


def test_proposals_that_lead_nowhere_end_a_paid_run() -> None:
    result, _, _ = go(Scripted(["nothing"] * 50, costs_money=True), limits=Limits(tokens=10**9))
    assert result.stopped_by == "exhausted" and result.best is None
    assert "led to no evaluation" in result.notes[0]


def test_an_interrupt_finishes_the_step_and_keeps_the_result() -> None:
    engine: Engine

    def listen(event: Progress) -> None:
        if isinstance(event, Finished) and event.candidate.index == 1:
            engine.interrupt()

    script = [FASTEST, variant(64, 1), OTHER]
    engine = Engine(make_request(), [listen], make=making(Scripted(script)))
    result = engine.run()
    assert result.stopped_by == "interrupted" and result.best is not None
    assert result.ledger.evals.spent == 2
    again = Engine(make_request(), resume=result.run, make=making(Scripted(script))).run()
    assert again.best is not None and again.best.source_sha256 == OTHER.sha256
    assert again.ledger.evals.spent == 3


def test_marks_of_the_budget_are_told() -> None:
    told: list[str] = []
    script = [variant(b, w) for b in (64, 128, 256) for w in (1, 2, 4)]
    listen = [lambda event: told.append(event.text) if isinstance(event, Said) and event.warning else None]
    Engine(make_request(limits=Limits(evals=6)), listen, make=making(Scripted(script))).run()
    assert told == ["50 % of evals is spent (3 of 6)", "83 % of evals is spent (5 of 6)"], "and nothing at the end"


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


def test_a_run_is_refused_on_another_problem_naming_it(tmp_path: Path) -> None:
    result, _, _ = go(Scripted([FASTEST]))
    for name in ("reference.py", "measurements.jsonl", "kernel.py"):
        (tmp_path / name).write_text((TINY / name).read_text())
    (tmp_path / "reference.py").write_text((TINY / "reference.py").read_text() + "\n# changed\n")
    other = make_request(problem=load_problem(tmp_path))
    with pytest.raises(UsageError, match=r"problem: scale then, .* now; text of the problem"):
        Engine(other, resume=result.run, make=making(Scripted([FASTEST])))


def test_a_run_is_refused_on_another_device_naming_it() -> None:
    result, _, _ = go(Scripted([FASTEST]))

    class Elsewhere(WatchedReplay):
        @property
        def device(self) -> Any:
            return super().device.model_copy(update={"name": "NVIDIA A100"})

    with pytest.raises(UsageError, match="device: NVIDIA H200 then, NVIDIA A100 now"):
        Engine(make_request(), resume=result.run, make=making(Scripted([FASTEST]), Elsewhere()))


def test_a_run_that_is_being_worked_on_is_not_taken_up() -> None:
    seen: list[str] = []

    def listen(event: Progress) -> None:
        if isinstance(event, Finished):
            second = Engine(make_request(), resume=engine.run_id, make=making(Scripted([FASTEST])))
            with pytest.raises(UsageError, match="is being worked on by process"):
                second.run()
            seen.append("refused")

    engine = Engine(make_request(), [listen], make=making(Scripted([FASTEST])))
    engine.run()
    assert seen and set(seen) == {"refused"}


def test_the_graphs_checkpoint_holds_ids_and_the_phase_only() -> None:
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver

    result, log, _ = go(Scripted([FASTEST, OTHER]))
    connection = sqlite3.connect(log.run_dir / "checkpoint.sqlite", check_same_thread=False)
    last = SqliteSaver(connection).get({"configurable": {"thread_id": result.run}})
    connection.close()
    assert last is not None
    kept = {k: v for k, v in last["channel_values"].items() if not k.startswith(("branch:", "__"))}
    assert kept == {"run": result.run, "phase": "stopped", "index": None}
