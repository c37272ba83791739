"""The judge's `bench` and `baselines`: verified and timed in one worker, with the fields that the host's models demand."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tilecast.sandbox.base import BaselineTimes
from tilecast.sandbox.harness.judge.hangs import KnownHangs
from tilecast.sandbox.harness.judge.study import study_problem
from tilecast.sandbox.harness.judge.timing import baselines, ceilings, finalist, profiling
from tilecast.sandbox.harness.judge.timing.finalist import sanitizer_summary
from tilecast.sandbox.harness.judge.timing.operations import TimingDesk
from tilecast.sandbox.harness.judge.timing.tools import NotOnThisMachine, Report, ToolFailed, run_tool, write_case
from tilecast.sandbox.harness.judge.verify import Verifier
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.worker.timing import _touch
from tilecast.sandbox.schema import EvaluationStatus, Measurement

HEAD = "import time\nimport torch\nimport torch.nn as nn\n"
REFERENCE = HEAD + (
    "WORKLOADS = {'small': {'n': 16}}\n"
    "class Model(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.weight = nn.Parameter(torch.randn(64))\n"
    "    def forward(self, x):\n        time.sleep(0.008)\n        return x * self.weight\n"
    "def get_inputs(n=64): return [torch.randn(n, 64)]\n"
    "def get_init_inputs(): return []\n"
)
CANDIDATE = (
    REFERENCE[: REFERENCE.index("def get_inputs")].replace("class Model", "class ModelNew").replace("0.008", "0.002")
)


# A dropout on a GPU reads eight float32 at once where the address lets it, and which of them are dropped depends on that.
DRAWING = REFERENCE.replace(
    "return x *", "r = torch.rand(x.shape)\n        x = x * (1 - r if x.data_ptr() % 32 else r)\n        return x *"
)


def candidate(source: str) -> dict[str, Any]:
    return {"name": "c", "source": source, "sha256": hashlib.sha256(source.encode()).hexdigest()}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TimingDesk, Verifier]]:
    with opened(REFERENCE, tmp_path_factory.mktemp("state")) as made:
        yield made


@contextmanager
def opened(source: str, state: Path) -> Iterator[tuple[TimingDesk, Verifier]]:
    """Where candidates of a problem are measured."""
    zygotes, cpu = Zygotes(), torch.device("cpu")
    problem = candidate(source) | {"name": "scale"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ceilings.COPY_BYTES, "cpu", 8 << 20)
        patch.setitem(ceilings.PRODUCT_SIDE, "cpu", 128)
        patch.setattr(baselines, "available", lambda device: (["eager"], ["torch.compile was left out: a test"]))
        study = study_problem(zygotes, problem, cpu, lambda text: None)
        made = TimingDesk(state)
        yield made, Verifier(zygotes, study, cpu, KnownHangs(None))
    made.close()
    study.close()
    zygotes.close()


def bench(desk: tuple[TimingDesk, Verifier], source: str, **options: Any) -> Measurement:
    given = {"timeout_s": 60.0, "max_seconds": 4.0, "baseline": "auto", **options}
    return Measurement.model_validate(desk[0].bench(desk[1], candidate(source), given, lambda text: None))


def test_a_passed_candidate_is_timed_profiled_and_confirmed(desk: tuple[TimingDesk, Verifier]) -> None:
    result = bench(desk, CANDIDATE, profile=True, confirm=True, max_seconds=15.0)
    assert result.status is EvaluationStatus.PASSED and result.verdict == "faster" and result.baseline == "eager"
    assert result.speedup is not None and result.latency_ms is not None and result.samples
    assert 1.5 < result.speedup.ratio < 8.0
    assert result.settled is not any("had not settled" in note for note in result.details["notes"])
    assert result.details["workload"] == "full"
    assert result.details["baselines_ms"].keys() == {"eager"}
    assert result.details["profile"]["source"] == "compiler" and result.details["profile"]["why"]
    confirmed = result.details["confirmed"]
    assert confirmed["soaked_calls"] == 100 and "contradicts" not in confirmed
    assert confirmed["sanitizer"]["ran"] is False and confirmed["calls_per_leg"] != result.details["calls_per_leg"]


def test_a_random_finalist_is_soaked_where_its_draws_are_the_same(tmp_path: Path) -> None:
    copy = DRAWING[: DRAWING.index("def get_inputs")].replace("class Model", "class ModelNew").replace("0.008", "0.002")
    with opened(DRAWING, tmp_path) as desk:
        result = bench(desk, copy, confirm=True, max_seconds=8.0)
    assert result.status is EvaluationStatus.PASSED, result.reason
    assert result.details["confirmed"]["soaked_calls"] == 100


def test_a_layout_that_ends_the_reference_where_it_is_only_timed_is_of_no_consequence(tmp_path: Path) -> None:
    """In a workload that is checked such a layout is left out; in this one a candidate is given none."""
    falling = REFERENCE.replace(
        "return x *", "os.abort() if len(x) == 64 and x.data_ptr() % 16 else None\n        return x *"
    )
    with opened(f"import os\n{falling}", tmp_path) as desk:
        assert len(desk[1].study.cases[0].layouts) == 5
        result = bench(desk, CANDIDATE)
    assert result.status is EvaluationStatus.PASSED and result.details["workload"] == "full", result.reason


def test_errors_that_the_sanitizer_finds_are_told(
    desk: tuple[TimingDesk, Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"ran": True, "errors": 2, "first": ["Invalid __global__ write of size 4 bytes"]}
    monkeypatch.setattr(finalist, "sanitize", lambda bench, source: found)
    result = bench(desk, CANDIDATE, confirm=True, max_seconds=15.0)
    assert result.status is EvaluationStatus.PASSED and result.details["confirmed"]["sanitizer"] == found
    told = "compute-sanitizer found 2 memory errors in its calls, the first: Invalid __global__ write of size 4 bytes"
    assert told in result.details["notes"]


def test_a_wrong_candidate_carries_no_time(desk: tuple[TimingDesk, Verifier]) -> None:
    result = bench(desk, CANDIDATE.replace("x * self.weight", "x * self.weight * 1.01"))
    assert result.status is EvaluationStatus.INCORRECT_NUMERICAL
    assert result.verdict is None and result.latency_ms is None and result.details == {}


def test_a_candidate_that_stops_working_when_timed(desk: tuple[TimingDesk, Verifier]) -> None:
    lines = (
        "self.n = getattr(self, 'n', 0) + 1",
        "if self.n > 8 and len(x) == 64: return x.clone()",
        "time.sleep(0.002)",
    )
    lazy = CANDIDATE.replace("time.sleep(0.002)", "\n        ".join(lines))
    result = bench(desk, lazy)
    assert result.status is EvaluationStatus.INCORRECT_NUMERICAL and "timed call" in result.reason


def test_kernels_under_the_interpreter_are_checked_but_not_timed(desk: tuple[TimingDesk, Verifier]) -> None:
    result = bench(desk, CANDIDATE.replace("import time\n", "import time\nimport triton\n"))
    assert result.status is EvaluationStatus.PASSED and result.verdict is None
    assert "interpreter" in result.details["notes"][0]


def test_baselines(desk: tuple[TimingDesk, Verifier]) -> None:
    found = BaselineTimes.model_validate(desk[0].baselines(desk[1], {"baseline": "auto"}, lambda text: None))
    assert found.fastest == "eager" and 7.9 < found.times_ms["eager"] < 40.0
    assert any("left out" in note for note in found.notes) and not found.kept
    later = TimingDesk(desk[0].state_dir)
    try:
        kept = BaselineTimes.model_validate(later.baselines(desk[1], {"baseline": "auto"}, lambda text: None))
    finally:
        later.close()
    assert kept.kept and kept.times_ms == found.times_ms


def test_ceilings_are_an_operation_of_their_own(desk: tuple[TimingDesk, Verifier]) -> None:
    found = desk[0].ceilings(torch.device("cpu"))
    assert found["bandwidth_gbs"] > 0
    assert list(Path(desk[0].state_dir or "").glob("ceilings-*"))


# Stands where compute-sanitizer does: starts the program it is given, and finds no error, whatever became of that.
TOOL = (
    "import subprocess, sys\n"
    "subprocess.run(sys.argv[2:])\n"
    "open(sys.argv[1], 'w').write('========= ERROR SUMMARY: 0 errors')\n"
)


@pytest.mark.parametrize(
    ("source", "ran", "why"),
    [
        (CANDIDATE, True, ""),
        (CANDIDATE.replace("return", "raise ValueError('told')\n        return"), False, "ValueError: told"),
    ],
)
def test_a_tool_runs_around_the_candidate_on_inputs_of_the_judge(
    desk: tuple[TimingDesk, Verifier], source: str, ran: bool, why: str
) -> None:
    case = desk[1].study.cases[0]
    inputs = desk[1].study.reference.draw(case.name)
    program = [sys.executable, "-c", TOOL, "{cache}/report.txt"]
    found = finalist.sanitizer_report(
        run_tool(desk[1].zygotes, program, case, source, inputs, device="cpu", limit_s=60.0)
    )
    assert found["ran"] is ran and why in found.get("why", "")


def on_a_gpu() -> Any:
    """What the tools ask of a benchmark on a GPU that is not here."""
    place = SimpleNamespace(device=torch.device("cuda:0"), key="card", zygotes=None)
    return SimpleNamespace(
        place=place, case=None, contents=SimpleNamespace(draw=lambda n: [SimpleNamespace(inputs=[])])
    )


def test_who_captures_a_graph_is_checked_with_shared_allocations(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(zygotes: object, program: list[str], *rest: object, **more: object) -> Report:
        assert int(program[program.index("--padding") + 1]) >= 1 << 20, "buffers may lie back to back"
        alone = any("NO_CUDA_MEMORY_CACHING" in word for word in program)
        return Report("========= ERROR SUMMARY: 0 errors", "capture failed" if alone else "", not alone)

    monkeypatch.setattr(finalist, "run_tool", run)
    monkeypatch.setattr(finalist, "find_tool", lambda name: f"/{name}")
    found = finalist.sanitize(on_a_gpu(), CANDIDATE)
    assert found == {"ran": True, "errors": 0, "first": [], "note": "tensors shared allocations: less is seen"}


@pytest.mark.parametrize(
    ("error", "remembered"),
    [(ToolFailed("did not finish"), False), (NotOnThisMachine("ncu needs more"), True)],
)
def test_what_one_candidate_did_to_the_profiler_is_not_held_against_the_next(
    monkeypatch: pytest.MonkeyPatch, error: ToolFailed, remembered: bool
) -> None:
    def fail(*args: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(profiling, "run_tool", fail)
    monkeypatch.setattr(profiling, "find_tool", lambda name: f"/{name}")
    monkeypatch.setattr(profiling, "_resources", lambda session: [])
    monkeypatch.setattr(profiling, "_why_not", {})
    told = [profiling.profile_candidate(on_a_gpu(), None, CANDIDATE)["why"] for _ in range(2)]  # type: ignore[arg-type]
    assert told[0] == f"Nsight Compute: {error}" and (told[1] != told[0]) is remembered


def test_counters_that_may_not_be_read_are_a_matter_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "", True)
    monkeypatch.setattr(profiling, "run_tool", lambda *args, **more: report)
    monkeypatch.setattr(profiling, "find_tool", lambda name: f"/{name}")
    with pytest.raises(NotOnThisMachine, match="ERR_NVGPUCTRPERM"):
        profiling._with_counters(on_a_gpu(), CANDIDATE)


def test_a_strided_single_element_is_bytes_like_any_other(desk: tuple[TimingDesk, Verifier], tmp_path: Path) -> None:
    value = torch.randn(128, 8)[3:4, 2]
    assert value.stride() == (8,) and value.is_contiguous()
    write_case(tmp_path, desk[1].study.cases[0], CANDIDATE, [value], "cpu")
    place = json.loads((tmp_path / "case.json").read_text())["tensors"][0]["at"]
    assert (tmp_path / "case.bin").read_bytes()[place : place + 4] == value.numpy().tobytes()
    _touch([value])


def test_sanitizer_reports() -> None:
    text = "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 3 errors\n"
    assert sanitizer_summary(text) == {"ran": True, "errors": 3, "first": ["Invalid __global__ read of size 4 bytes"]}
    assert sanitizer_summary("========= ERROR SUMMARY: 0 errors\n")["errors"] == 0
    assert sanitizer_summary("out of memory")["ran"] is False
