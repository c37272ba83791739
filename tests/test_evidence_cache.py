"""The collector's cache: one job for one content, whatever is asked how often."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import evidence_parts as parts
import pytest

from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.evidence import EvidenceCollector, EvidenceStatus
from tilecast.sandbox.evidence_runner import ServerRunner
from tilecast.sandbox.source import Candidate


class CountingRunner:
    """Answers at once; remembers what it was asked."""

    def __init__(self, status: str = "OK", answer: dict[str, Any] | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.busy = 0
        self._answer = answer or {"targets": {"sm_90": {"status": status}, "sm_80": {"status": status}}, "seconds": 1.0}
        self._lock = threading.Lock()

    def run(self, args: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.busy += 1
            assert self.busy == 1, "two jobs at once in one runner"
        time.sleep(0.01)
        self.asked.append(args)
        with self._lock:
            self.busy -= 1
        return self._answer

    def close(self) -> None:
        self.asked.append({"closed": True})


def test_the_second_time_comes_from_disk(tmp_path: Path) -> None:
    runner = CountingRunner()
    collector = EvidenceCollector(tmp_path, runners=[runner])
    first = collector.collect(parts.problem(), Candidate(name="a", source=parts.ADD), "h200")
    started = time.perf_counter()
    again = EvidenceCollector(tmp_path, runners=[runner]).collect(
        parts.problem(), Candidate(name="b", source=parts.ADD), "sm_90"
    )
    assert time.perf_counter() - started < 0.05
    assert len(runner.asked) == 1 and not first.cached and again.cached
    assert (first.candidate, again.candidate) == ("a", "b") and again.seconds == 1.0


@pytest.mark.parametrize("what", ["source", "problem", "workload", "target"])
def test_whatever_decides_the_answer_asks_anew(tmp_path: Path, what: str) -> None:
    runner = CountingRunner()
    collector = EvidenceCollector(tmp_path, runners=[runner])
    collector.collect(parts.problem(), parts.candidate(parts.ADD), "h200")
    collector.collect(
        parts.problem(parts.MATMUL_PROBLEM if what == "problem" else parts.ADD_PROBLEM),
        parts.candidate(parts.TUNED if what == "source" else parts.ADD),
        "a100" if what == "target" else "h200",
        "small" if what == "workload" else "full",
    )
    assert len(runner.asked) == 2


@pytest.mark.parametrize(("status", "jobs"), [("COMPILE_ERROR", 1), ("NOT_COMPILED", 2), ("UNAVAILABLE", 2)])
def test_what_may_change_by_itself_is_not_kept(tmp_path: Path, status: str, jobs: int) -> None:
    runner = CountingRunner(status)
    collector = EvidenceCollector(tmp_path, runners=[runner])
    for _ in range(2):
        assert collector.collect(parts.problem(), parts.candidate(parts.ADD), "h200").status == status
    assert len(runner.asked) == jobs


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    runner = CountingRunner()
    collector = EvidenceCollector(tmp_path, runners=[runner])
    collector.collect(parts.problem(), parts.candidate(parts.ADD), "h200")
    [file] = tmp_path.rglob("*.json")
    file.write_text(file.read_text()[:100])
    assert not collector.collect(parts.problem(), parts.candidate(parts.ADD), "h200").cached
    assert collector.collect(parts.problem(), parts.candidate(parts.ADD), "h200").cached
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [file.name]


def test_many_keep_their_order_and_share_the_runners(tmp_path: Path) -> None:
    runners = [CountingRunner(), CountingRunner()]
    with EvidenceCollector(None, runners=runners) as collector:
        made = [Candidate(name=str(i), source=parts.ADD + f"\n# {i}") for i in range(8)]
        found = collector.collect_many(parts.problem(), made, "h200")
    assert [evidence.candidate for evidence in found] == [candidate.name for candidate in made]
    assert sum(len(runner.asked) for runner in runners) == 8 + 2 and all(
        r.asked[-1] == {"closed": True} for r in runners
    )


def test_a_lost_job_is_the_candidates_and_a_broken_machine_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = EvidenceCollector(None, runners=[CountingRunner(answer={"failed": "the other side is gone"})])
    evidence = lost.collect(parts.problem(), parts.candidate(parts.ADD), "h200")
    assert evidence.status is EvidenceStatus.HOST_ERROR and "the other side is gone" in evidence.reason
    for forged in (
        {"targets": {"sm_90": {"status": "SPLENDID"}}},
        {"targets": 3},
        {"targets": {"sm_90": {"status": "OK", "work": {}}}},
    ):
        forger = EvidenceCollector(None, runners=[CountingRunner(answer=forged)])
        found = forger.collect(parts.problem(), parts.candidate(parts.ADD), "h200")
        assert found.status is EvidenceStatus.HOST_ERROR
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(EnvironmentFailure, match="did not start"):
        ServerRunner().run({})


def test_a_cache_that_cannot_be_written_costs_nobody_their_answer() -> None:
    runner = CountingRunner()
    collector = EvidenceCollector(Path("/dev/null/cache"), runners=[runner])
    found = collector.collect(parts.problem(), Candidate(name="a", source=parts.ADD), "h200")
    assert not found.cached and len(runner.asked) == 1
