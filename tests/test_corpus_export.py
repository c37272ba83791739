"""A run's measurements written as a record: replayed, each candidate has the status, time, ratio and interval it had."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from loop_parts import KNOWN, OTHER, TINY, WRONG, Scripted, WatchedReplay, make_request, making, variant

from tilecast.agent.engine import Engine, open_record
from tilecast.agent.record.store import RunLog
from tilecast.agent.report.corpus import write_corpus
from tilecast.sandbox.base import BaselineTimes, DeviceFacts, EvaluationOptions, ProgressSink
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.replay import ReplaySandbox
from tilecast.sandbox.schema import EvaluationStatus, Interval, LatencyPair, Measurement
from tilecast.sandbox.source import Candidate

BASE_MS = 0.83
START, FASTER = variant(64, 1), variant(256, 2)


class Device(WatchedReplay):
    """Answers as a device that measures does: nothing recorded, a baseline time and an interval of each window's own."""

    @property
    def device(self) -> DeviceFacts:
        """A card that is no record."""
        return super().device.model_copy(update={"recorded": False})

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """Of this machine."""
        return super().baselines(problem, options, progress).model_copy(update={"recorded": False})

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """The recorded time in a window where the baseline took 0.83 ms instead of the 0.8 measured alone."""
        found = super().benchmark(problem, candidate, options, progress).model_copy(update={"recorded": False})
        if found.latency_ms is None:
            return found
        ratio = BASE_MS / found.latency_ms.candidate
        return found.model_copy(
            update={
                "speedup": Interval(ratio=ratio, low=ratio * 0.97, high=ratio * 1.05),
                "latency_ms": LatencyPair(candidate=found.latency_ms.candidate, baseline=BASE_MS),
                "samples": 37,
            }
        )


def finished(script: list[Candidate | str], start: Candidate | None, sandbox: Any) -> RunLog:
    request = make_request(start)
    result = Engine(request, make=making(Scripted(script), sandbox)).run()
    return open_record(None, request.home).open(result.run, lambda: 0.0)


@pytest.fixture
def log() -> RunLog:
    return finished([START, FASTER, WRONG, OTHER, variant(512, 8), "no proposal"], START, Device())


def replayed(folder: Path, candidate: Candidate) -> Measurement:
    sandbox = ReplaySandbox(folder, lambda problem, progress: KNOWN)
    return sandbox.benchmark(load_problem(TINY), candidate, EvaluationOptions(), lambda text: None)


def test_replayed_it_is_what_was_measured(log: RunLog, tmp_path: Path) -> None:
    folder = tmp_path / "any-name"
    write_corpus(log, folder)
    compared = 0
    for state in log.state.candidates.values():
        if state.result is None:
            continue
        assert state.sha256 is not None
        again = replayed(folder, Candidate(name="again", source=log.record.text(state.sha256)))
        assert (again.status, again.recorded) == (state.result.status, True)
        assert again.reason == state.result.reason
        assert again.speedup == state.result.speedup and again.latency_ms == state.result.latency_ms
        assert (again.baseline, again.verdict) == (state.result.baseline, state.result.verdict)
        compared += again.status is EvaluationStatus.PASSED
    assert compared == 3
    assert replayed(folder, variant(128, 4)).status is EvaluationStatus.NOT_RECORDED


def test_the_files(log: RunLog, tmp_path: Path) -> None:
    folder = tmp_path / "scale"
    written = write_corpus(log, folder)
    assert sorted(path.relative_to(folder).as_posix() for path in written) == [
        "candidates/c_002.py",
        "candidates/c_003.py",
        "corpus.toml",
        "kernel.py",
        "measurements.jsonl",
        "reference.py",
    ]
    info = tomllib.loads((folder / "corpus.toml").read_text())
    assert info["gpu"] == "NVIDIA H200" and info["run"] == log.run_id
    rows = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    assert {row["candidate"] for row in rows if row["status"] == "BASELINE"} == {"__ref__", "__compile__"}
    kernel = [(row["config"], row["status"]) for row in rows if row["candidate"] == "kernel"]
    # One file with the points of its space that were tried, written as what differs from the file's own CONFIG.
    assert kernel == [
        ({}, "PASSED"),
        ({"block": 256, "warps": 2}, "PASSED"),
        ({"block": 512, "warps": 8}, "COMPILE_ERROR"),
    ]


def test_percentiles_carry_the_interval(log: RunLog, tmp_path: Path) -> None:
    write_corpus(log, tmp_path / "scale")
    rows = [json.loads(line) for line in (tmp_path / "scale" / "measurements.jsonl").read_text().splitlines()]
    row = next(row for row in rows if row["candidate"] == "kernel" and row["config"])
    assert row["ms"] == 0.5 and row["p10"] == pytest.approx(0.5 / 1.05) and row["p90"] == pytest.approx(0.5 / 0.97)


def test_a_recorded_run_is_refused(tmp_path: Path) -> None:
    log = finished([START], START, WatchedReplay())
    with pytest.raises(UsageError, match="replays a record"):
        write_corpus(log, tmp_path / "scale")
    assert not (tmp_path / "scale").exists()


def test_a_run_without_a_measurement_is_refused(tmp_path: Path) -> None:
    log = finished(["nothing"], None, Device())
    with pytest.raises(UsageError, match="measured nothing"):
        write_corpus(log, tmp_path / "scale")


def test_a_changed_problem_is_refused(log: RunLog, tmp_path: Path) -> None:
    moved = tmp_path / "reference.py"
    moved.write_text((TINY / "reference.py").read_text() + "# changed\n")
    header = log.header.model_copy(update={"problem_path": str(moved)})
    object.__setattr__(log, "header", header)
    with pytest.raises(UsageError, match="was changed since"):
        write_corpus(log, tmp_path / "scale")
