"""The documents and the exit codes of `verify` and `bench`, from results by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer
from loop_parts import TINY

from tilecast.agent.cli.verdicts import TIMING, finish, show_measurement
from tilecast.agent.judging import Inputs
from tilecast.sandbox.errors import EnvironmentFailure, InvalidReference
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import Interval, LatencyPair, Measurement
from tilecast.sandbox.source import Candidate

TIMED: dict[str, Any] = {
    "status": "PASSED",
    "verdict": "faster",
    "speedup": Interval(ratio=2, low=1.9, high=2.1),
    "latency_ms": LatencyPair(candidate=1, baseline=2),
    "baseline": "eager",
    "samples": 9,
}
UNTIMED, REJECTED = {"status": "PASSED"}, {"status": "TIMEOUT"}


def measured(**fields: Any) -> Measurement:
    return Measurement(**{"source_sha256": "0" * 64, "device": "cpu", **fields})


def ended(results: Sequence[Measurement], asked: int, error: BaseException | None = None, as_json: bool = True) -> int:
    """The exit code."""

    def run(say: Any) -> Iterator[Measurement]:
        yield from results
        if error is not None:
            raise error

    inputs = Inputs(load_problem(TINY), [Candidate(name=f"c{n}", source="") for n in range(asked)])
    try:
        finish(inputs, run, show_measurement, as_json)
    except typer.Exit as left:
        return left.exit_code
    return 0


@pytest.mark.parametrize(
    ("device", "given", "code"),
    [
        ("cpu", [TIMED], 0),
        ("cpu", [UNTIMED], 3),
        ("NVIDIA H200", [UNTIMED], 1),
        ("cpu", [TIMED, UNTIMED], 3),
        ("cpu", [UNTIMED, REJECTED], 1),
        ("cpu", [UNTIMED, {"status": "ENVIRONMENT_ERROR"}], 3),
    ],
)
def test_what_was_not_timed_is_no_success(device: str, given: list[dict[str, Any]], code: int, capsys: Any) -> None:
    assert ended([measured(device=device, **fields) for fields in given], len(given)) == code
    assert capsys.readouterr().err.count("and was not timed: ") == given.count(UNTIMED)


def test_times_are_in_the_document_only_if_it_passed(capsys: Any) -> None:
    ended([measured(**TIMED), measured(**REJECTED)], 2)
    passed, rejected = json.loads(capsys.readouterr().out)
    assert set(passed) >= TIMING and passed["baseline"] == "eager"
    assert not TIMING & set(rejected) and rejected["recorded"] is False


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EnvironmentFailure("the GPU is gone")])
def test_what_ends_the_work_early_leaves_what_was_judged(error: BaseException, capsys: Any) -> None:
    with pytest.raises(type(error)):
        ended([measured(**TIMED)], 2, error)
    printed = capsys.readouterr()
    assert [item["verdict"] for item in json.loads(printed.out)] == ["faster"]
    assert "1 of 2 candidate(s) were judged" in printed.err


def test_nothing_judged_is_nothing_printed(capsys: Any) -> None:
    with pytest.raises(EnvironmentFailure):
        ended([], 2, EnvironmentFailure("no GPU"))
    assert capsys.readouterr() == ("", "")


def test_a_reference_refused_late_does_not_take_back_what_was_judged(capsys: Any) -> None:
    with pytest.raises(InvalidReference):
        ended([measured(**TIMED)], 2, InvalidReference("gone"))
    assert [item["status"] for item in json.loads(capsys.readouterr().out)] == ["PASSED", "INVALID_REFERENCE"]
