"""What is asked of a device, how often, and what its answers amount to; with a sandbox that answers from a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ci_parts import Repository, kernel_files

from tilecast.agent.ci import places, run
from tilecast.agent.ci.changes import KernelChange, find_changes
from tilecast.agent.ci.git import Git
from tilecast.agent.ci.keeping import Keeping
from tilecast.agent.ci.measuring import Measured, Measuring
from tilecast.agent.devices import ChosenDevice
from tilecast.sandbox.base import DeviceFacts, EvaluationOptions, Preflight, ProgressSink
from tilecast.sandbox.errors import EnvironmentFailure, ProblemError
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.schema import EvaluationStatus, Interval, LatencyPair, Measurement, Verification
from tilecast.sandbox.source import Candidate

S = EvaluationStatus
Answer = float | S | Exception
"""Of one timing: the speedup, a status, or what is raised."""


class Scripted:
    """Answers timings in order, and verifications by the candidate's text; counts what it is asked."""

    def __init__(self, timings: Sequence[Answer] = (), statuses: dict[str, S] | None = None, driver: str = "1") -> None:
        self.timings, self.statuses, self.driver = list(timings), statuses or {}, driver
        self.asked: list[tuple[str, EvaluationOptions]] = []
        self.closed = False

    @property
    def device(self) -> DeviceFacts:
        return DeviceFacts(kind="cuda", name="NVIDIA H200", driver=self.driver, versions={"torch": "2"})

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        return Preflight(status=S.PASSED)

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        self.asked.append(("verify", options))
        status = next((s for text, s in self.statuses.items() if text in candidate.source), S.PASSED)
        return Verification(status=status, source_sha256=candidate.sha256, reason=str(status))

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        self.asked.append(("benchmark", options))
        answer = self.timings.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, S):
            return Measurement(status=answer, source_sha256=candidate.sha256)
        return Measurement(
            status=S.PASSED,
            source_sha256=candidate.sha256,
            verdict="same",
            speedup=Interval(ratio=answer, low=answer * 0.995, high=answer * 1.005),
            latency_ms=LatencyPair(candidate=1.0, baseline=answer),
            samples=100,
            details={"profile": {"limited_by": "memory bandwidth"}} if options.profile else {},
        )

    def close(self) -> None:
        self.closed = True

    def count(self, what: str) -> int:
        return sum(name == what for name, _ in self.asked)


BASE, HEAD = "class ModelNew: x = 0\n", "class ModelNew: x = 1\n"


@pytest.fixture
def change(tmp_path: Path) -> KernelChange:
    repository = Repository(tmp_path / "r")
    base = repository.commit("a", kernel_files("k", BASE))
    head = repository.commit("b", {"k/kernel.py": HEAD})
    return find_changes(Git(repository.folder), base, head).kernels[0]


def pair(sandbox: Any, change: KernelChange, folder: Path | None = None, timed: bool = True) -> Measured:
    return Measuring(sandbox, EvaluationOptions(), Keeping(folder), lambda text: None).pair(change, 0.03, 7.0, timed)


def test_base_and_head_are_timed_against_each_other_within_the_budget(change: KernelChange) -> None:
    sandbox = Scripted([1.0])
    found = pair(sandbox, change)
    assert (found.verdict, found.status, len(sandbox.asked)) == ("same", S.PASSED, 1)
    options = sandbox.asked[0][1]
    assert (options.baseline, options.baseline_source, options.max_seconds) == ("base", BASE, 7.0)


@pytest.mark.parametrize(
    ("second", "verdict"), [(0.8, "slower"), (0.99, "undecided"), (1.2, "undecided"), (S.REWARD_HACK, "incorrect")]
)
def test_a_difference_counts_only_if_it_is_there_twice(change: KernelChange, second: Answer, verdict: str) -> None:
    sandbox = Scripted([0.8, second])
    found = pair(sandbox, change)
    assert (found.verdict, sandbox.count("benchmark")) == (verdict, 2)
    if verdict == "slower":
        assert found.samples == 200 and found.limits == "memory bandwidth"


@pytest.mark.parametrize(
    ("status", "base", "verdict"),
    [
        (S.INCORRECT_NUMERICAL, S.PASSED, "incorrect"),
        (S.COMPILE_ERROR, S.PASSED, "incorrect"),
        (S.COMPILE_ERROR, S.COMPILE_ERROR, "not_compared"),
    ],
)
def test_when_head_fails_base_is_checked_to_know_whose_doing_that_is(
    change: KernelChange, status: S, base: S, verdict: str
) -> None:
    found = pair(Scripted([status], {BASE: base}), change)
    assert (found.verdict, found.status, found.base_status) == (verdict, status, base)


def test_a_base_that_does_not_run_leaves_head_to_be_checked(change: KernelChange) -> None:
    refused = ProblemError("the baseline does not run")
    found = pair(Scripted([refused]), change)
    assert (found.verdict, found.status) == ("not_compared", S.PASSED) and "base cannot be timed" in found.reason
    assert pair(Scripted([refused], {HEAD: S.INCORRECT_SHAPE}), change).verdict == "incorrect"


@pytest.mark.parametrize(("status", "verdict"), [(S.PASSED, "not_compared"), (S.REWARD_HACK, "incorrect")])
def test_a_base_that_cannot_be_one_text_leaves_head_to_be_checked(
    change: KernelChange, status: S, verdict: str
) -> None:
    assert change.base is not None
    other = replace(change, base=replace(change.base, candidate=None, refused="k.py and l.py import each other"))
    sandbox = Scripted(statuses={HEAD: status})
    found = pair(sandbox, other)
    assert (found.verdict, found.status, sandbox.count("benchmark")) == (verdict, status, 0)
    assert status is not S.PASSED or "import each other" in found.reason


def test_a_pair_is_measured_once_a_device_and_version(change: KernelChange, tmp_path: Path) -> None:
    for timings in ([0.8, 0.8], [1.0], [0.97]):
        folder = tmp_path / str(timings[0])
        first = pair(Scripted(timings), change, folder)
        silent = Scripted()
        again = pair(silent, change, folder)
        assert (silent.asked, again.cached) == ([], True)
        assert again.model_copy(update={"cached": False}) == first
        assert pair(Scripted([1.0], driver="2"), change, folder).cached is False
    head = change.head
    assert head is not None and head.candidate is not None
    other = replace(change, head=replace(head, candidate=Candidate(name="k", source=HEAD + "y = 2\n")))
    assert pair(Scripted([1.0]), other, tmp_path / "1.0").cached is False


def test_a_machine_that_breaks_is_no_verdict_and_is_not_kept(change: KernelChange, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure):
        pair(Scripted([EnvironmentFailure("lost")]), change, tmp_path / "kept")
    assert pair(Scripted([S.ENVIRONMENT_ERROR]), change, tmp_path / "kept").verdict == "not_compared"
    assert pair(Scripted([1.0]), change, tmp_path / "kept").cached is False


def compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sandbox: Scripted, evidence: Any = None, **flags: Any
) -> Any:
    """A whole comparison on the scripted sandbox, with evidence as given."""
    monkeypatch.setattr(places, "make_sandbox", lambda spec, *_, **__: ChosenDevice(sandbox, "", spec))  # type: ignore[arg-type]
    monkeypatch.setattr(run._Comparison, "_collect", lambda *_: evidence or (lambda problem, candidate: None))
    repository = Repository(tmp_path / "whole")
    base = repository.commit("a", kernel_files("k", BASE))
    head = repository.commit("b", {"k/kernel.py": HEAD})
    asked = run.Asked(Git(repository.folder), base, head, flags=flags)
    return run.compare(asked, run.settings_of(asked), None, lambda text: None)


def same(problem: Problem, candidate: Candidate) -> dict[str, Any]:
    launch = {"kernel": "k", "instructions": {"total": 9}, "signature": {}, "constants": {}}
    return {"status": "OK", "launches": [launch], "launch_count": 1}


@pytest.mark.parametrize(("status", "verdict"), [(S.PASSED, "same"), (S.INCORRECT_NUMERICAL, "incorrect")])
def test_what_compiles_to_the_same_is_not_timed_but_still_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: S, verdict: str
) -> None:
    sandbox = Scripted(statuses={HEAD: status})
    report = compared(monkeypatch, tmp_path, sandbox, same, device="cuda").report
    assert (report.kernels[0].verdict, report.kernels[0].status, sandbox.count("benchmark")) == (verdict, status, 0)
    assert sandbox.closed


@pytest.mark.parametrize(("status", "verdict"), [(S.PASSED, "undecided"), (S.INCORRECT_NUMERICAL, "incorrect")])
def test_without_a_gpu_answers_can_be_checked_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: S, verdict: str
) -> None:
    sandbox = Scripted(statuses={HEAD: status})
    report = compared(monkeypatch, tmp_path, sandbox, device="none", ci={"check_on_cpu": True}).report
    assert (report.kernels[0].verdict, report.kernels[0].status, sandbox.count("benchmark")) == (verdict, status, 0)
    assert report.device == ""


def test_a_machine_that_breaks_does_not_lose_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = compared(monkeypatch, tmp_path, Scripted([EnvironmentFailure("the GPU fell off")]), device="cuda")
    assert outcome.broken is not None and outcome.report.kernels[0].why == "the GPU fell off"
    assert outcome.report.kernels[0].verdict == "not_compared"
