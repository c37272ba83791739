"""The graph from end to end, with a scripted proposer and recorded measurements."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from loop_parts import (
    FASTEST,
    KERNEL,
    OTHER,
    SLOW,
    TINY,
    WRONG,
    Scripted,
    WatchedReplay,
    go,
    make_request,
    making,
    unrecorded,
    variant,
)

from tilecast.agent.budget import Limits
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import Began, Finished, Progress, Said
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.problem import load_problem


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


def test_a_mistake_leaves_no_run_in_the_record(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown GPU 'H900'"):
        make_request(target="H900")
    (tmp_path / "file").write_text("")
    engine = Engine(make_request(run_dir=tmp_path / "file"), make=making(Scripted([FASTEST])))
    with pytest.raises(UsageError, match=f"--run-dir {tmp_path / 'file'}: "):
        engine.run()
    assert open_record(None, engine.request.home).runs() == []


def test_an_interrupt_while_the_run_is_being_opened_is_not_lost() -> None:
    def listen(event: Progress) -> None:
        if isinstance(event, Began):
            engine.interrupt()

    engine = Engine(make_request(), [listen], make=making(Scripted([FASTEST, variant(64, 1)])))
    result = engine.run()
    assert (result.stopped_by, result.candidates.measured) == ("interrupted", 0)
