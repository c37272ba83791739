"""The loop's decisions, as pure functions of a state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tilecast.agent.archive import Archive, Entry, choose_parent
from tilecast.agent.policy import Rules, choose, expected_seconds, judge, may_ask, resume_at, screen, stop_of
from tilecast.agent.record.events import (
    Chosen,
    EvaluationDone,
    EvaluationLost,
    EvaluationStarted,
    Event,
    Forecasted,
    Judged,
    ProposalAsked,
    Proposed,
    Stored,
)
from tilecast.agent.record.fold import CandidateState, RunState
from tilecast.sandbox.schema import EvaluationStatus, Forecast, Interval, LatencyPair, Measurement, Range
from tilecast.tools.forecast.selection import BudgetLeft


def measured(ratio: float, spread: float = 0.01, status: EvaluationStatus = EvaluationStatus.PASSED) -> Measurement:
    if status is not EvaluationStatus.PASSED:
        return Measurement(status=status, source_sha256="0" * 64, reason="as told")
    return Measurement(
        status=status,
        source_sha256="0" * 64,
        verdict="faster" if ratio > 1 else "slower",
        speedup=Interval(ratio=ratio, low=ratio - spread, high=ratio + spread),
        latency_ms=LatencyPair(candidate=1 / ratio, baseline=1.0),
        baseline="eager",
    )


def folded(*events: Event) -> RunState:
    state = RunState()
    for seq, event in enumerate(events, 1):
        state.apply(Stored(seq=seq, elapsed_s=float(seq), at="", event=event))
    return state


def life(index: int, result: Measurement, best: bool, parent: str | None = None) -> list[Event]:
    """A candidate from question to judgement."""
    sha256 = f"{index:064d}"
    return [
        ProposalAsked(index=index, parent_sha256=parent),
        Proposed(index=index, name=f"c{index}", source_sha256=sha256, canonical=f"k{index}"),
        Chosen(index=index, action="measure", why=""),
        EvaluationStarted(index=index, reserved_gpu_s=1.0),
        EvaluationDone(index=index, result=result, counted=True, charged_gpu_s=2.0),
        Judged(index=index, keep=best, best=best, why=""),
    ]


def forecast(median: float, low: float, high: float, abstain: bool = False, **more: Any) -> Forecast:
    ms = Range(median=median, low=low, high=high)
    fields = {"p_faster": 0.5, "p_valid": 1.0, "source": "learned", "source_sha256": "a" * 64, **more}
    return Forecast(
        latency_ms=ms,
        baseline="eager",
        baseline_ms=1.0,
        bins=[],
        speedup=None,
        abstain=abstain,
        why="because",
        **fields,
    )


def pending(result: Measurement | None) -> CandidateState:
    return CandidateState(7, chosen=Chosen(index=7, action="measure", why=""), result=result)


def test_the_first_one_measured_is_best_however_slow() -> None:
    found = judge(RunState(), pending(measured(0.2)))
    assert found.best and found.keep and found.why == "first one measured: 0.2x the baseline"


def test_a_faster_one_takes_the_place() -> None:
    state = folded(*life(0, measured(1.2), True))
    found = judge(state, pending(measured(1.3)))
    assert found.best and found.why == "fastest so far: 1.3x the baseline, before it 1.2x (candidate 0)"


def test_one_that_cannot_be_told_apart_is_kept_and_a_slower_one_dropped() -> None:
    state = folded(*life(0, measured(1.2), True))
    assert (judge(state, pending(measured(1.19))).keep, judge(state, pending(measured(1.19))).best) == (True, False)
    assert not judge(state, pending(measured(1.1))).keep


@pytest.mark.parametrize("status", sorted(set(EvaluationStatus) - {EvaluationStatus.PASSED}))
def test_no_rejecting_status_is_ever_best(status: EvaluationStatus) -> None:
    found = judge(RunState(), pending(measured(9.0, status=status)))
    assert not found.best and not found.keep and found.why == f"{status}: as told"


def test_passed_without_a_time_is_not_best() -> None:
    found = judge(RunState(), pending(Measurement(status=EvaluationStatus.PASSED, source_sha256="0" * 64)))
    assert not found.best and found.why == "correct, but not timed"


def test_a_log_that_calls_an_unmeasured_one_best_is_not_believed() -> None:
    lie = life(0, measured(9.0, status=EvaluationStatus.TIMEOUT), True)
    assert folded(*lie).best is None


def test_no_code_and_old_code_are_dropped_before_any_forecast() -> None:
    state = folded(*life(0, measured(1.0), True), Proposed(index=1, reason="an empty answer"))
    assert screen(state, state.candidates[1]) == Chosen(index=1, action="drop", why="no candidate: an empty answer")
    again = Proposed(index=2, name="c", source_sha256="f" * 64, canonical="k0")
    state = folded(*life(0, measured(1.0), True), again)
    assert screen(state, state.candidates[2]) == Chosen(index=2, action="drop", why="the same as candidate 0")
    new = Proposed(index=3, name="c", source_sha256="f" * 64, canonical="other")
    state = folded(*life(0, measured(1.0), True), new)
    assert screen(state, state.candidates[3]) is None


def test_a_confident_loser_is_skipped_or_audited_and_never_without_an_incumbent() -> None:
    loser = forecast(10.0, 9.0, 11.0)
    actions = Counter(
        choose(pending(None), loser.model_copy(update={"source_sha256": f"{n:064x}"}), 1.0, BudgetLeft(), 1).action
        for n in range(400)
    )
    assert set(actions) == {"skip", "audit"} and 5 <= actions["audit"] <= 45
    assert choose(pending(None), loser, None, BudgetLeft(), 1).action == "measure"


def test_why_it_was_measured_names_the_chance_that_decided() -> None:
    chosen = choose(pending(None), forecast(1.1, 0.8, 1.5), 1.0, BudgetLeft(), 1)
    assert chosen.action == "measure" and "by its interval and the margin, skipped below 0.05" in chosen.why


def test_an_abstention_and_no_forecast_are_measured() -> None:
    assert choose(pending(None), forecast(10.0, 9.0, 11.0, abstain=True), 1.0, BudgetLeft(), 1).action == "measure"
    assert choose(pending(None), None, 1.0, BudgetLeft(), 1).action == "measure"


def test_stop_reasons() -> None:
    state = folded(*life(0, measured(1.5), True), *life(1, measured(1.1), False), *life(2, measured(1.1), False))
    assert stop_of(state, Rules(), False) is None
    assert stop_of(state, Rules(patience=3), False) is None
    for rules, interrupted, by in [
        (Rules(patience=2), False, "patience"),
        (Rules(target_speedup=1.5), False, "target"),
        (Rules(target_speedup=1.5), True, "interrupted"),
    ]:
        found = stop_of(state, rules, interrupted)
        assert found is not None and found.by == by


def test_exhausted_waits_for_what_was_asked_before() -> None:
    done = Proposed(index=1, exhausted=True)
    state = folded(ProposalAsked(index=0, parent_sha256=None), ProposalAsked(index=1, parent_sha256=None), done)
    assert stop_of(state, Rules(), False) is None
    state.apply(Stored(seq=9, elapsed_s=9, at="", event=Proposed(index=0, reason="nothing")))
    assert stop_of(state, Rules(), False) is not None


def test_no_more_questions_than_evaluations_left() -> None:
    assert may_ask(RunState(), waiting=1, pool_size=4, evals_left=2)
    assert not may_ask(RunState(), waiting=2, pool_size=4, evals_left=2)
    assert not may_ask(RunState(), waiting=4, pool_size=4, evals_left=float("inf"))


def test_the_estimate_gives_way_to_what_is_seen() -> None:
    assert expected_seconds(10.0, 0, 0.0) == 10.0
    assert expected_seconds(10.0, 9, 9.0) == pytest.approx(1.9)


def test_where_a_run_goes_on() -> None:
    whole = life(0, measured(1.0), True)
    assert resume_at(folded()) == ("propose", None)
    assert resume_at(folded(whole[0])) == ("propose", None)
    assert resume_at(folded(*whole[:2])) == ("forecast", 0)
    assert resume_at(folded(*whole[:3])) == ("verify", 0)
    lost = EvaluationLost(index=0, charged_gpu_s=1.0, why="", again=True)
    assert resume_at(folded(*whole[:4], lost)) == ("verify", 0)
    assert resume_at(folded(*whole[:4], lost.model_copy(update={"again": False}))) == ("decide", 0)
    assert resume_at(folded(*whole[:5])) == ("decide", 0)
    assert resume_at(folded(*whole)) == ("propose", None)
    skipped = Chosen(index=0, action="skip", why="")
    forecasted = Forecasted(index=0, forecast=forecast(1, 1, 1))
    assert resume_at(folded(*whole[:2], forecasted)) == ("forecast", 0)
    assert resume_at(folded(*whole[:2], forecasted, skipped)) == ("decide", 0)


def test_the_archive_holds_what_was_measured_and_counts_its_children() -> None:
    first = f"{0:064d}"
    state = folded(
        *life(0, measured(1.5), True),
        *life(1, measured(1.2), False, parent=first),
        *life(2, measured(1.0, status=EvaluationStatus.RUNTIME_ERROR), False, parent=first),
        ProposalAsked(index=3, parent_sha256=first),
    )
    assert state.archive.entries == [Entry(first, 1.5, 3), Entry(f"{1:064d}", 1.2, 0)]


def test_parents_are_drawn_by_value_and_against_tries() -> None:
    fresh = Archive([Entry("best", 2.0, 0), Entry("good", 1.9, 0), Entry("poor", 1.0, 0)])
    drawn = Counter(choose_parent(fresh, None, 0, index) for index in range(2000))
    assert drawn["best"] > drawn["good"] > 10 * drawn["poor"]
    assert 120 < drawn[None] < 280
    worn = Archive([Entry("best", 2.0, 20), Entry("good", 1.9, 0), Entry("poor", 1.0, 0)])
    drawn = Counter(choose_parent(worn, None, 0, index) for index in range(2000))
    assert drawn["good"] > 5 * drawn["best"]


def test_parents_depend_on_seed_and_index_only() -> None:
    archive = Archive([Entry(str(n), 1.0 + n / 10, n) for n in range(9)])
    once = [choose_parent(archive, None, 3, index) for index in range(30)]
    assert once == [choose_parent(archive, None, 3, index) for index in range(30)]
    assert once != [choose_parent(archive, None, 4, index) for index in range(30)]
    assert choose_parent(Archive(), "start", 3, 0) == "start"
