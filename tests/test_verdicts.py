"""The documents and the exit codes of `verify` and `bench`, from results by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer
from loop_parts import TINY

from tilecast.agent import judging
from tilecast.agent.cli.verdicts import TIMING, finish, show_measurement
from tilecast.agent.config import Settings
from tilecast.agent.devices import ChosenDevice
from tilecast.agent.judging import Inputs
from tilecast.sandbox.base import BaselineTimes, DeviceFacts, EvaluationOptions, Preflight
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


class NotingOrder:
    """A sandbox that notes in ``order`` what it is asked to do."""

    def __init__(self, kind: Any, order: list[str]) -> None:
        self.device, self.order = DeviceFacts(kind=kind, name=kind), order

    def preflight(self, *given: Any) -> Preflight:
        return Preflight(status="PASSED", reason="", facts=None, seconds=0.0)

    def baselines(self, *given: Any) -> BaselineTimes:
        self.order.append("baselines timed")
        return BaselineTimes(times_ms={"eager": 1.0}, fastest="eager", seconds=0.0)

    def benchmark(self, problem: Any, candidate: Candidate, *given: Any) -> Measurement:
        self.order.append(f"benchmark {candidate.name}")
        return measured(**UNTIMED)

    def close(self) -> None: ...


TEXTS = {
    "triton": "import triton",
    "cutile": "import cuda.tile as ct",
    "cuda": "from torch.utils.cpp_extension import load_inline\nCODE = '__global__ void f() {}'",
    "torch": "import torch",
    "cpp": "from torch.utils.cpp_extension import load_inline",
}


def order_of_bench(kind: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said and done, in order, when these candidates are benchmarked."""
    order: list[str] = []
    chosen = ChosenDevice(NotingOrder(kind, order), "", kind)  # type: ignore[arg-type]
    monkeypatch.setattr(judging, "make_sandbox", lambda *given, **more: chosen)
    inputs = Inputs(load_problem(TINY), [Candidate(name=name, source=TEXTS[name]) for name in names])
    list(judging.benchmark_all(inputs, Settings(), EvaluationOptions(), order.append))
    return [line for line in order if " is in " in line or line.startswith(("baselines timed", "benchmark "))]


@pytest.mark.parametrize(
    ("name", "title", "fate"),
    [
        ("triton", "Triton", "are checked in an interpreter and cannot be timed"),
        ("cutile", "cuTile", "are checked in an interpreter and cannot be timed"),
        ("cuda", "CUDA C++", "can be neither run nor timed"),
    ],
)
def test_a_kernel_that_a_cpu_cannot_time_is_told_so_and_no_baseline_is_timed(
    name: str, title: str, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, done = order_of_bench("cpu", [name], monkeypatch)
    assert said.startswith(f"{name} is in {title}: on a CPU its kernels {fate}. ")
    assert all(way in said for way in ("--device cuda", f"--device replay:{TINY}", "tilecast verify"))
    assert done == f"benchmark {name}"


def test_beside_a_kernel_that_a_cpu_can_time_it_is_told_before_the_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    said, *done = order_of_bench("cpu", ["torch", "triton"], monkeypatch)
    assert said.startswith("triton is in Triton: ")
    assert done == ["baselines timed", "benchmark torch", "benchmark triton"]


@pytest.mark.parametrize(("kind", "name"), [("cpu", "torch"), ("cpu", "cpp"), ("cuda", "triton"), ("replay", "triton")])
def test_what_can_be_timed_is_timed_without_a_word(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert order_of_bench(kind, [name], monkeypatch) == ["baselines timed", f"benchmark {name}"]
