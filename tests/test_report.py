"""Reports: figures by hand, hostile text inert, recorded figures called recorded."""

from __future__ import annotations

import re

import pytest
from loop_parts import OTHER, WRONG, Scripted, make_request, making, variant

from tilecast.agent.engine import Engine, open_record
from tilecast.agent.record.events import Chosen, Judged
from tilecast.agent.record.fold import CandidateState
from tilecast.agent.report import wording
from tilecast.agent.report.build import RunReport, build_report
from tilecast.agent.report.honesty import honesty
from tilecast.agent.report.markdown import escape, markdown
from tilecast.sandbox import bins
from tilecast.sandbox.schema import (
    EvaluationStatus,
    Forecast,
    ForecastBin,
    Interval,
    LatencyPair,
    Measurement,
    Meter,
    Range,
)


def a_report(script: list[object]) -> RunReport:
    result = Engine(make_request(), make=making(Scripted(script))).run()  # type: ignore[arg-type]
    record = open_record(None, make_request().home)
    return build_report(record.open(result.run, lambda: 0.0))


def test_every_time_in_the_report_of_a_recorded_run_is_called_recorded() -> None:
    text = markdown(a_report([variant(64, 1), OTHER, WRONG]))
    figures = [line for line in text.splitlines() if re.search(r"\d ms", line)]
    assert len(figures) >= 5
    assert all("(recorded)" in line for line in figures)


def test_text_of_others_is_inert() -> None:
    odd = OTHER.model_copy(update={"name": "<script>alert(1)</script>|@everyone [x](http://evil) `code`\n# head"})
    text = markdown(a_report([odd]))
    assert "<script>" not in text and "@everyone" not in text
    assert re.search(r"(?<!\\)\]\(http", text) is None
    row = next(line for line in text.splitlines() if "alert" in line)
    assert row.count("|") - row.count("\\|") == 9


def test_escape_keeps_words() -> None:
    assert escape("a_b *c* | d\ne") == "a\\_b \\*c\\* \\| d e"


def test_a_run_without_a_result_says_why() -> None:
    report = a_report([WRONG])
    assert report.best is None and "**No result**: nothing could be measured: 1 INCORRECT" in markdown(report).replace(
        "\\", ""
    )


def test_languages_are_compared() -> None:
    report = a_report([variant(64, 1), OTHER, WRONG, "nothing"])
    assert [(x.language, x.proposed, x.measured, x.rejected) for x in report.languages] == [("torch", 3, 2, 1)]
    assert report.languages[0].best_ms == 0.45


def told(index: int, likeliest: int, actual: float | None, action: str = "measure", **more: float) -> CandidateState:
    """A candidate whose forecast put most on one bin, and what was measured."""
    edges = [bins.bounds(i) for i in range(bins.COUNT)]
    p = [0.65 if i == likeliest else 0.05 for i in range(bins.COUNT)]
    fields = {"p_faster": 0.8, "p_valid": 0.9, **more}
    forecast = Forecast(
        latency_ms=None,
        baseline="eager",
        baseline_ms=1.0,
        bins=[ForecastBin(low=low, high=high, p=x) for (low, high), x in zip(edges, p, strict=True)],
        speedup=Range(median=1.2, low=1.0, high=1.5),
        abstain=False,
        why="",
        source="learned",
        **fields,
    )
    result = None
    if actual is not None:
        result = Measurement(
            status=EvaluationStatus.PASSED,
            source_sha256="0" * 64,
            verdict="same",
            speedup=Interval(ratio=actual, low=actual, high=actual),
            latency_ms=LatencyPair(candidate=1 / actual, baseline=1.0),
        )
    chosen = Chosen(index=index, action=action, why="")  # type: ignore[arg-type]
    judged = Judged(index=index, keep=False, best=action == "audit", why="")
    return CandidateState(
        index, forecast=forecast, result=result, chosen=chosen, judged=judged, counted=actual is not None
    )


def test_honesty_by_hand() -> None:
    # 1.2 lies in bin 4 (1 to 1.41), 0.8 in bin 3, 3.0 in bin 6.
    found = honesty(
        [told(0, 4, 1.2), told(1, 4, 0.8), told(2, 4, 3.0), told(3, 4, None, "skip"), told(4, 4, 1.1, "audit")]
    )
    assert found is not None
    assert (found.forecast, found.skipped, found.compared) == (5, 1, 4)
    assert found.exact_bin == pytest.approx(2 / 4)
    assert found.within_one_bin == pytest.approx(3 / 4)
    assert found.within_interval == pytest.approx(2 / 4)
    assert found.faster_brier == pytest.approx((0.04 + 0.64 + 0.04 + 0.04) / 4)
    assert found.valid_brier == pytest.approx(0.01)
    assert (found.audited, found.audited_wins) == (1, 1)


def test_what_skipping_cost_and_saved() -> None:
    def shown(index: int, actual: float | None, action: str = "measure", charged: float = 0.0) -> CandidateState:
        state = told(index, 4, actual, action)
        assert state.forecast is not None
        latency = Range(median=0.8, low=0.7, high=0.9)
        state.forecast = state.forecast.model_copy(update={"latency_ms": latency})
        state.judged_seq, state.charged_gpu_s = index + 1, charged
        return state

    # Speedup 1.2 to 2 over 1 ms: the second one measured is an audit that halves the best time.
    found = honesty([shown(0, 1.0, charged=2.0), shown(1, 2.0, "audit", 4.0), shown(2, None, "skip")])
    assert found is not None
    assert (found.false_skip_rate, found.gpu_seconds_saved) == (1.0, 3.0)
    assert found.regret == pytest.approx(0.6931, abs=1e-3)
    right, wrong = 0.5 * (0.35**2 + 7 * 0.05**2), 0.5 * (0.65**2 + 0.95**2 + 6 * 0.05**2)
    assert found.brier == pytest.approx((right + wrong) / 2)
    assert found.ece == pytest.approx(abs(0.5 - 0.65))


def test_without_forecasts_there_is_nothing_to_compare() -> None:
    assert honesty([CandidateState(0)]) is None


def test_wording_of_figures() -> None:
    assert wording.milliseconds(0.0512) == "51.2 µs" and wording.milliseconds(1.23456) == "1.235 ms"
    assert wording.ratio(12.34) == "12.3x" and wording.ratio(0.5) == "0.5x"
    assert wording.meter("usd", Meter(spent=None, limit=None)) == "USD unknown"
    assert wording.meter("evals", Meter(spent=3.0, limit=40)) == "evals 3 of 40"


def test_a_best_that_is_undecided_is_not_called_slower_and_times_that_lie_apart_are_explained() -> None:
    assert wording.not_faster("slower") == "not faster than the baseline"
    assert wording.not_faster("undecided") == "not shown to be faster than the baseline"
    between = Interval(ratio=0.956, low=0.583, high=1.14)
    assert wording.apart(between, LatencyPair(candidate=5.5, baseline=5.236)) == ""
    assert "medians over all calls" in wording.apart(between, LatencyPair(candidate=9.54, baseline=5.236))
