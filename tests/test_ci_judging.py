"""What expectation and measurement amount to, whose configuration counts, and what may run where."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ci_parts import SOFTMAX, Ci, History, Repository, ci_fixture, history_fixture, kernel_files, pull_event, slower  # noqa: F401

from tilecast.agent import devices
from tilecast.agent.ci import places, run
from tilecast.agent.ci.cause import from_record, likely_causes, same_code
from tilecast.agent.ci.changes import find_changes
from tilecast.agent.ci.expecting import Expecting
from tilecast.agent.ci.git import Git
from tilecast.agent.ci.schema import Ratio
from tilecast.agent.ci.verdict import agreed, of_interval, of_status
from tilecast.agent.machine import Gpu
from tilecast.sandbox.hardware import require_hardware
from tilecast.sandbox.schema import EvaluationStatus, Forecast, Range
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext

S = EvaluationStatus


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.90, 0.95, "slower"),
        (0.90, 0.98, "undecided"),
        (0.98, 1.02, "same"),
        (0.90, 1.10, "undecided"),
        (1.01, 1.20, "undecided"),
        (1.05, 1.20, "faster"),
        (1 / 1.05, 1 / 1.05, "slower"),
    ],
)
def test_an_interval_counts_only_when_all_of_it_is_beyond_the_threshold(low: float, high: float, verdict: str) -> None:
    assert of_interval(Ratio(ratio=(low + high) / 2, low=low, high=high), 0.05) == verdict


def test_a_change_and_its_revert_are_judged_alike() -> None:
    for low, high in ((0.90, 0.951), (0.952, 0.953), (0.96, 1.04), (0.7, 1.3)):
        back = of_interval(Ratio(ratio=1, low=1 / high, high=1 / low), 0.05)
        swapped = {"slower": "faster", "faster": "slower"}
        assert of_interval(Ratio(ratio=1, low=low, high=high), 0.05) == swapped.get(back, back)


def test_two_measurements_count_only_where_they_agree() -> None:
    first, second = Ratio(ratio=0.8, low=0.79, high=0.81), Ratio(ratio=1.0, low=0.99, high=1.01)
    assert of_interval(agreed(first, first), 0.03) == "slower"
    assert of_interval(agreed(first, second), 0.03) == "undecided"


@pytest.mark.parametrize(
    ("head", "base", "verdict"),
    [
        (S.PASSED, None, None),
        (S.INCORRECT_NUMERICAL, S.PASSED, "incorrect"),
        (S.INCORRECT_NUMERICAL, S.INCORRECT_NUMERICAL, "incorrect"),
        (S.REWARD_HACK, None, "incorrect"),
        (S.COMPILE_ERROR, S.PASSED, "incorrect"),
        (S.COMPILE_ERROR, S.COMPILE_ERROR, "not_compared"),
        (S.TIMEOUT, S.TIMEOUT, "not_compared"),
        (S.NOT_RECORDED, S.PASSED, "not_compared"),
        (S.ENVIRONMENT_ERROR, S.PASSED, "not_compared"),
    ],
)
def test_a_status_is_this_changes_doing_only_if_base_runs(head: S, base: S | None, verdict: str | None) -> None:
    assert of_status(head, base) == verdict


def launch(**changes: Any) -> dict[str, Any]:
    figures = {"resources": {"registers": 64, "spills": 0}, "instructions": {"total": 10}, "programs": 100}
    return {"kernel": "rows", "signature": {"x": "*fp32"}, "constants": {"BLOCK": 128}, **figures, **changes}


def evidence(*launches: dict[str, Any], **changes: Any) -> dict[str, Any]:
    known = {"status": "OK", "launches": list(launches), "launch_count": len(launches), "moved_bytes": 8, "host_ops": 0}
    return {**known, **changes}


def test_causes_name_what_got_worse_first_and_never_twice() -> None:
    base = evidence(launch())
    head = evidence(launch(constants={"BLOCK": 64}, resources={"registers": 255, "spills": 40}, programs=200))
    found = likely_causes(base, head, True, ({"BLOCK": 128}, {"BLOCK": 64}))
    assert found[0] == "rows: spilled values a thread 0 → 40"
    assert found[1] == "CONFIG BLOCK: 128 → 64" and sum("BLOCK" in line for line in found) == 1
    assert "rows: programs in the grid 100 → 200" in found
    assert likely_causes(base, base, True) == [] and likely_causes(None, head, True) == []
    recorded = (
        from_record([{"name": "rows", "regs": 40, "spills": 0}]),
        from_record([{"name": "rows", "regs": 80, "spills": 9}]),
    )
    assert likely_causes(*recorded, slower=True)[0] == "rows: spilled values a thread 0 → 9"
    assert (
        likely_causes(evidence(launch()), evidence(launch(), launch(kernel="more")), True)[0]
        == "launches of kernels: 1 → 2"
    )


def test_code_is_the_same_only_if_every_figure_is() -> None:
    base = evidence(launch())
    assert same_code(base, evidence(launch(kernel="renamed", signature={"y": "*fp32"})))
    for other in (
        evidence(launch(instructions={"total": 11})),
        evidence(launch(constants={"BLOCK": 64})),
        evidence(launch(), launch()),
        evidence(launch(), host_ops=1),
        evidence(launch(instructions=None)),
        evidence(launch(), status="HOST_ERROR"),
        None,
    ):
        assert not same_code(base, other)
    assert not same_code(evidence(), evidence())


class Oracle:
    """Forecasts head at a given part of base's time."""

    name = "oracle"

    def __init__(self, factor: float, spread: float) -> None:
        self.factor, self.spread = factor, spread

    def forecast(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Forecast]:
        ms = 1.0 if context.baseline_ms is None else context.baseline_ms * self.factor
        range_ = Range(median=ms, low=ms / self.spread, high=ms * self.spread)
        ratio = 1 / ms
        speedup = Range(median=ratio, low=ratio / self.spread, high=ratio * self.spread)
        return [
            Forecast(
                latency_ms=range_,
                baseline="base",
                baseline_ms=context.baseline_ms,
                bins=[],
                speedup=speedup,
                p_faster=0.02 if ms > 1 else 0.98,
                p_valid=0.9,
                abstain=self.spread > 2,
                why="said the oracle",
                source="learned",
            )
            for _ in candidates
        ]


@pytest.mark.parametrize(
    ("factor", "spread", "verdict"),
    [(2.0, 1.2, "slower"), (0.5, 1.2, "faster"), (1.0, 1.2, "undecided"), (4.0, 3.0, "undecided"), (1.0, 1.01, "same")],
)
def test_without_a_gpu_only_a_confident_forecast_is_told_and_it_says_so(
    history: History, factor: float, spread: float, verdict: str
) -> None:
    git = Git(history.repository.folder)
    asked = run.Asked(git, history.base, slower(history), flags={"device": "none", "target": "H200"}, evidence=False)
    report = run.compare(asked, run.settings_of(asked), Oracle(factor, spread), lambda text: None).report
    kernel = report.kernels[0]
    assert (kernel.verdict, kernel.basis, kernel.status) == (verdict, "forecast", None)
    assert kernel.reported == (verdict in ("slower", "faster"))
    assert kernel.forecast is not None and kernel.forecast.target == "H200"
    if kernel.reported:
        text = run_comment(report)
        assert "**Nothing was measured**" in text and "forecast, 98% sure" in text and "not checked" in text
        assert "(forecast, not measured)" in text
    assert not report.failed


def run_comment(report: Any) -> str:
    from tilecast.agent.ci.comment import comment

    text = comment(report, None)
    assert text is not None
    return text


def test_a_forecast_closes_no_gate(history: History) -> None:
    flags = {"device": "none", "target": "H200", "ci": {"fail_on": "regression"}}
    asked = run.Asked(Git(history.repository.folder), history.base, slower(history), flags=flags, evidence=False)
    report = run.compare(asked, run.settings_of(asked), Oracle(2.0, 1.1), lambda text: None).report
    assert report.reported and not report.failed


def test_a_head_that_the_compiler_refuses_is_told(history: History) -> None:
    change = find_changes(Git(history.repository.folder), history.base, slower(history)).kernels[0]
    assert change.base is not None and change.base.candidate is not None
    sha256 = change.base.candidate.sha256

    def collect(problem: Any, candidate: Candidate) -> dict[str, Any]:
        return {
            "status": "OK" if candidate.sha256 == sha256 else "OUT_OF_RESOURCES",
            "reason": "shared memory",
            "launches": [],
        }

    found = Expecting(None, require_hardware("H200"), collect, lambda text: None).expect(change)
    assert found.refused == "OUT_OF_RESOURCES: shared memory" and found.note.abstains


def test_a_forks_push_waits_for_a_maintainers_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: Ci) -> None:
    """On a machine with a GPU: without the label nothing is started there, and the answer says why."""
    gpu = Gpu(index=0, name="NVIDIA H200", uuid="x", driver="1", memory_mib=1, compute_capability="9.0")
    monkeypatch.setattr(devices, "gpus", lambda: (gpu,))
    started: list[str] = []
    monkeypatch.setattr(places, "make_sandbox", lambda spec, *_, **__: started.append(spec) or pytest.fail("started"))
    repository = Repository(tmp_path / "r")
    base = repository.commit("a", kernel_files("a"))
    head = repository.commit("b", {"a/kernel.py": "class ModelNew: x = 1\n"})
    arguments = ["--folder", str(repository.folder), "--forecaster", "none", "--no-evidence", "--json"]
    for changes in ({}, {"labels": ["tilecast:gpu"]}, {"action": "labeled", "label": "bug"}):
        said = ci(*arguments, "--device", "cuda", event=pull_event(base, head, fork=True, **changes))
        assert (said.code, started) == (0, [])
        assert "a maintainer allows it" in said.report["notes"][0]
    allowed = pull_event(base, head, fork=True, action="labeled", label="tilecast:gpu")
    with pytest.raises(pytest.fail.Exception):
        ci(*arguments, event=allowed)
    assert started == ["cuda:0"]


def test_a_gpu_that_is_named_and_missing_is_exit_3_and_the_rest_is_still_said(ci: Ci, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    base = repository.commit("a", kernel_files("a"))
    head = repository.commit("b", {"a/kernel.py": "class ModelNew: x = 1\n"})
    said = ci("--folder", str(repository.folder), "--base", base, "--head", head, "--device", "cuda:7", "--json")
    assert (said.code, said.verdicts) == (3, {"a": "not_compared"})
    assert "there is no such CUDA GPU" in said.report["kernels"][0]["why"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name the commit to compare with"),
        (["--base", "no-such-ref"], "no such commit here"),
        (["--base", "--output=x"], "no such commit here"),
        (["--base", "HEAD", "--format", "html"], "there are markdown and json"),
        (["--base", "HEAD", "--forecaster", "llm"], "learned, roofline or none"),
        (["--base", "HEAD", "--comment"], "--comment needs a pull request"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(ci: Ci, tmp_path: Path, arguments: list[str], words: str) -> None:
    repository = Repository(tmp_path / "r")
    repository.commit("a", kernel_files("a"))
    said = ci("--folder", str(repository.folder), "--device", "none", *arguments)
    assert said.code == 2 and words in said.err and "Traceback" not in said.err


def test_in_actions_nothing_of_the_report_is_taken_for_a_command(
    ci: Ci, history: History, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    arguments = [*history.arguments(slower(history))[:-1], "markdown"]
    said = ci(*arguments, event=pull_event(history.base, "0" * 40))
    first, last = said.out.strip().splitlines()[0], said.out.strip().splitlines()[-1]
    assert first.startswith("::stop-commands::") and last == f"::{first.removeprefix('::stop-commands::')}::"
    assert (tmp_path / "output").read_text() == "reported=true\nfailed=false\n"


def test_a_suggestion_is_a_patch_that_applies(ci: Ci, history: History, tmp_path: Path) -> None:
    """`builtin` turns CONFIG within the budget; what it finds was recorded, and is offered against head itself."""
    head = history.change("slow", {SOFTMAX: history.text("softmax", "tr_04")})
    out = tmp_path / "out"
    arguments = [*history.arguments(head), "--suggest", "--model", "builtin", "--output", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "_preflight_on_cpu", lambda known: lambda problem, progress: _known(problem))
        said = ci(*arguments)
        again = ci(*arguments, event=pull_event(history.base, head, fork=True))
    found = said.report["kernels"][0]["suggestion"]
    assert found["speedup"]["low"] > 1.03 and found["recorded"] and "evals" in found["spent"]
    assert again.report["kernels"][0]["suggestion"] is None
    history.repository.git("checkout", "-q", "--detach", head)
    patch_file = out / found["file"]
    assert patch_file.read_text() == found["patch"]
    subprocess.run(["git", "-C", str(history.repository.folder), "apply", "--check", str(patch_file)], check=True)
    assert (out / "runs").is_dir() and history.repository.git("rev-parse", "HEAD") == head


def _known(problem: Any) -> Any:
    from tilecast.sandbox.base import Preflight
    from tilecast.tools.forecast.facts import facts_from_text

    return Preflight(status=EvaluationStatus.PASSED, facts=facts_from_text(problem))


def test_the_document_is_the_contracts(ci: Ci, history: History) -> None:
    said = ci(*history.arguments(slower(history)))
    assert said.report["schema"] == 1
    assert json.dumps(said.report) and set(said.report) >= {"base", "head", "kernels", "failed", "notes"}


@pytest.mark.acceptance
def test_with_a_real_compiler_the_cause_of_a_halved_tile_is_seen_without_a_gpu(tmp_path: Path) -> None:
    script = Path(__file__).parent.parent / "benchmarks" / "ci_h200.py"
    command = [sys.executable, str(script), "--device", "none", "--target", "H200", "--out", str(tmp_path)]
    subprocess.run(command, capture_output=True, check=False, timeout=110)
    results = {item["change"]: item for item in json.loads((tmp_path / "ci_h200.json").read_text())["results"]}
    causes = results["halves a tile"]["report"]["kernels"][0]["causes"]
    assert causes[0] == "CONFIG BM: 128 → 64" and "matmul_tiles: programs in the grid 512 → 1,024" in causes
    renamed = results["renames a variable"]["report"]["kernels"][0]
    assert (renamed["verdict"], renamed["basis"], renamed["why"]) == (
        "same",
        "forecast",
        "both versions compile to the same code",
    )
    assert results["docs and a comment"]["report"]["kernels"] == []
