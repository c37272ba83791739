"""A record in place of a device: times, intervals and verdicts by hand-computed numbers; what is not recorded is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilecast.sandbox.base import EvaluationOptions, Preflight, ProgressSink
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.problem import Problem, ProblemFacts, TensorFacts, WorkloadFacts, load_problem
from tilecast.sandbox.replay import ReplaySandbox
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import Candidate

REFERENCE = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
KERNEL = 'CONFIG = {"B": 1}\nclass ModelNew: ...\n'
ROWS = [
    {"candidate": "__ref__", "status": "BASELINE", "ms": 2.0, "p10": 1.9, "p90": 2.1},
    {"candidate": "__compile__", "status": "BASELINE", "ms": 1.0, "p10": 0.99, "p90": 1.01},
    {"candidate": "kernel", "config": {}, "status": "PASSED", "ms": 0.5, "p10": 0.48, "p90": 0.55, "first_call_s": 3.0},
    {
        "candidate": "kernel",
        "config": {"B": 2},
        "status": "PASSED",
        "ms": 1.0,
        "p10": 0.99,
        "p90": 1.02,
        "seconds": 7.5,
    },
    {"candidate": "kernel", "config": {"B": 3}, "status": "TIMEOUT", "error": "killed"},
    {"candidate": "kernel", "config": {"B": 4}, "status": "PASSED", "ms": 1.001, "p10": 1.0, "p90": 1.002},
]


def facts(problem: Problem, progress: ProgressSink) -> Preflight:
    full = WorkloadFacts(
        name="full",
        inputs=[TensorFacts(name="x", shape=[1], dtype="float32")],
        outputs=[],
        min_bytes=int(4800e9 * 0.25e-3),
        flops=0,
    )
    return Preflight(
        status=EvaluationStatus.PASSED, facts=ProblemFacts(workloads=[full], tolerance=None, domain="open")
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "toy"
    place.mkdir()
    (place / "reference.py").write_text(REFERENCE)
    (place / "kernel.py").write_text(KERNEL)
    (place / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (place / "corpus.toml").write_text('gpu = "NVIDIA H200"\n')
    return place


def quiet(text: str) -> None:
    """Nobody listens."""


def measure(folder: Path, source: str, **options: object) -> object:
    sandbox, problem = ReplaySandbox(folder, facts), load_problem(folder)
    sandbox.preflight(problem, quiet)
    candidate = Candidate(name="c", source=source)
    return sandbox.benchmark(problem, candidate, EvaluationOptions.model_validate(options), quiet)


def test_recorded_time_interval_and_light(folder: Path) -> None:
    result = measure(folder, KERNEL + "# a comment\n")
    document = result.model_dump(mode="json")  # type: ignore[attr-defined]
    assert document["recorded"] is True
    assert (document["baseline"], document["verdict"]) == ("max-autotune", "faster")
    assert document["speedup"] == {"ratio": 2.0, "low": 0.99 / 0.55, "high": 1.01 / 0.48}
    assert document["latency_ms"] == {"candidate": 0.5, "baseline": 1.0}
    assert document["speed_of_light"] == {"fraction": pytest.approx(0.5), "bound": "memory"}
    assert document["seconds"] == pytest.approx(3.0 + 72 * 0.5e-3)


@pytest.mark.parametrize(("block", "verdict"), [(2, "undecided"), (4, "undecided")])
def test_a_wide_interval_decides_nothing(folder: Path, block: int, verdict: str) -> None:
    result = measure(folder, KERNEL.replace("1", str(block)))
    assert result.verdict == verdict  # type: ignore[attr-defined]


def test_named_baseline_and_margin(folder: Path) -> None:
    result = measure(folder, KERNEL.replace("1", "4"), margin=0.02)
    assert result.verdict == "same"  # type: ignore[attr-defined]
    result = measure(folder, KERNEL.replace("1", "4"), baseline="eager")
    assert result.verdict == "faster"  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="recorded are eager, max-autotune"):
        measure(folder, KERNEL, baseline="compile")


def test_a_baseline_file_is_named_as_it_was_given(folder: Path) -> None:
    slower = KERNEL.replace("1", "2")
    result = measure(folder, KERNEL, baseline="base/kernel.py", baseline_source=slower)
    assert (result.baseline, result.latency_ms.baseline) == ("base/kernel.py", 1.0)  # type: ignore[attr-defined]


def test_failed_and_unknown_candidates_carry_no_time(folder: Path) -> None:
    failed = measure(folder, KERNEL.replace("1", "3"), timeout_s=11.0)
    assert (failed.status, failed.latency_ms, failed.seconds) == (EvaluationStatus.TIMEOUT, None, 11.0)  # type: ignore[attr-defined]
    unknown = measure(folder, KERNEL.replace("1", "5"))
    assert (unknown.status, unknown.latency_ms, unknown.seconds) == (EvaluationStatus.NOT_RECORDED, None, 0.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A = 1\ndef f(:\n", ":2: the candidate does not parse: invalid syntax"),
        ("A = 1\0\n", ": the candidate does not parse: source code string cannot contain null bytes"),
        ("A = " + "-" * 100_000 + "1\n", ": the candidate does not parse: nested too deeply for Python's parser"),
    ],
)
def test_a_candidate_that_is_no_python_is_told_so_and_not_that_it_is_not_recorded(
    folder: Path, text: str, told: str
) -> None:
    broken = measure(folder, text)
    assert (broken.status, broken.seconds) == (EvaluationStatus.COMPILE_ERROR, 0.0)  # type: ignore[attr-defined]
    assert broken.reason.removeprefix("c") == told  # type: ignore[attr-defined]


def test_a_record_of_another_reference_is_refused(folder: Path) -> None:
    sandbox = ReplaySandbox(folder, facts)
    (folder / "reference.py").write_text(REFERENCE + "# changed\n")
    with pytest.raises(UsageError, match=r"another reference\.py"):
        sandbox.preflight(load_problem(folder), quiet)


def test_the_shared_corpus_finds_every_variant(shared_dir: Path) -> None:
    from tilecast.sandbox.corpus import load_recorded

    record = load_recorded(shared_dir / "corpus" / "softmax")
    assert len(record.by_key) == len(record.rows)
    assert all(record.find(record.variant(row)) is row for row in record.rows[::7])
