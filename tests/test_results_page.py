"""docs/results.md: figures by hand from a small made-up record, misses with their evidence, nothing written by ``--check``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilecast.tools.study.evidence_file import write_evidence

DATA = Path(__file__).parent / "data" / "results"
BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
NAMES = ("results_data", "results_derived", "results_plots", "render_results")


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """The scripts as modules, which import each other by name."""
    import importlib

    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the made-up record."""
    shutil.copytree(DATA / "examples", tmp_path / "examples")
    (tmp_path / "runs").mkdir()
    (tmp_path / "docs" / "images").mkdir(parents=True)
    return tmp_path


def rendered(scripts: dict[str, ModuleType], place: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    arguments = ["--examples", place / "examples", "--runs", place / "runs", "--docs", place / "docs", *more]
    monkeypatch.setattr(sys, "argv", ["render_results.py", *map(str, arguments)])
    return int(scripts["render_results"].main())


def only(scripts: dict[str, ModuleType], place: Path) -> Any:
    (entry,) = scripts["results_data"].entries(place / "examples", place / "runs")
    return entry


def test_an_entry_by_hand(scripts: dict[str, ModuleType], place: Path) -> None:
    entry = only(scripts, place)
    # 3 x 2^26 floats are 805.3 MB: 0.1678 ms at 4.8 TB/s; in 0.188 ms that is 4.283 TB/s, of 4.3 copied.
    assert (entry.name, entry.language, entry.plain.ms, entry.best.ms) == ("vector_add", "triton", 0.25, 0.188)
    assert entry.bandwidth_gbs == pytest.approx(4283.5, rel=1e-3)
    assert entry.best_measured.speed_of_light.fraction == pytest.approx(0.8924, rel=1e-3)
    assert entry.best_measured.speedup.ratio == pytest.approx(0.19 / 0.188)
    assert entry.seconds == pytest.approx(4.0) and entry.proposer == "`builtin`"
    text, held = entry.target()
    assert held and text.startswith("100% of copy bandwidth (aim 90%), 1.01x")


def test_the_forecaster_has_the_evidence_that_is_kept_beside_the_runs(
    scripts: dict[str, ModuleType], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = only(scripts, place)
    key = (entry.record.problem.sha256, entry.record.variant(entry.rows[0]).sha256)
    document = {"problem_sha256": key[0], "source_sha256": key[1], "status": "PASSED", "launches": []}
    write_evidence({key: document}, place / "runs" / "evidence.jsonl.gz")
    assert rendered(scripts, place, monkeypatch) == 0
    kept = json.loads((place / "runs" / "derived.json").read_text())
    assert [value["compiled"] for name, value in kept.items() if name.startswith("search:")] == [1]
    assert rendered(scripts, place, monkeypatch, "--check") == 0
    (place / "runs" / "evidence.jsonl.gz").unlink()
    assert rendered(scripts, place, monkeypatch, "--check") == 1, "figures with other evidence were taken for the same"


def test_the_page_holds_the_figures_and_says_what_is_missing(
    scripts: dict[str, ModuleType], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rendered(scripts, place, monkeypatch) == 0
    page = (place / "docs" / "results.md").read_text()
    row = next(line for line in page.splitlines() if "| 0.25 ms |" in line)
    assert "0.188 ms | `builtin` | 1.01x [0.991, 1.03] max-autotune | 89%, memory | all 8 | 4 |" in row
    assert "**Not measured yet**: `unmeasured`." in page and "**recorded** on the GPU" in page
    assert "fitted without the operator of the same name was used (vector_add)" in page
    kept = json.loads((place / "runs" / "derived.json").read_text())
    (figures,) = [value for key, value in kept.items() if key.startswith("search:vector_add:triton:")]
    # Two of eight lie within 1 %: 9 / 3 evaluations on average in random order.
    assert figures["variants"] == 8 and figures["near_best"] == 0.25 and figures["compiled"] == 0
    assert figures["evals"]["without"] == pytest.approx(3.0, abs=1.0)
    assert figures["curve"]["with"][-1] == 1.0
    drawn = (place / "docs" / "images" / "results_roofline.svg").read_text()
    assert "best 0.188 ms (recorded), 89%" in drawn and "<script" not in drawn


def test_check_writes_nothing_and_notices_a_changed_record(
    scripts: dict[str, ModuleType], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rendered(scripts, place, monkeypatch, "--check") == 1
    assert not (place / "docs" / "results.md").exists()
    rendered(scripts, place, monkeypatch)
    assert rendered(scripts, place, monkeypatch, "--check") == 0
    record = place / "examples" / "vector_add" / "measurements.jsonl"
    record.write_text(record.read_text().replace('"ms": 0.188,', '"ms": 0.186,'))
    assert rendered(scripts, place, monkeypatch, "--check") == 1
    assert "out of date" in capsys.readouterr().err


def test_a_saved_run_decides_best_interval_and_spend(
    scripts: dict[str, ModuleType], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {
        "latency_ms": {"candidate": 0.1869, "baseline": 0.19},
        "speedup": {"ratio": 1.017, "low": 1.012, "high": 1.021},
        "baseline": "compile",
        "speed_of_light": {"fraction": 0.9, "bound": "memory"},
    }
    best = {"index": 3, "origin": "builtin", "name": "kernel", "note": "BLOCK 2048", "result": result}
    report = {
        "best_index": 3,
        "candidates": [best],
        "ledger": {"evals": {"spent": 6}, "gpu_seconds": {"spent": 41.2}},
    }
    document = {"command": "tilecast tune examples/vector_add", "report": report}
    (place / "runs" / "vector_add.triton.json").write_text(json.dumps(document))
    rendered(scripts, place, monkeypatch)
    row = next(line for line in (place / "docs" / "results.md").read_text().splitlines() if "| 0.25 ms |" in line)
    assert "0.1869 ms | builtin: kernel BLOCK 2048 | 1.02x [1.01, 1.02] compile | 90%, memory | 6 | 41 |" in row


@pytest.mark.parametrize(
    ("name", "language", "held"),
    [("matmul", "triton", True), ("matmul", "cutile", True), ("attention", "triton", True)],
)
def test_aims_differ_by_example(
    scripts: dict[str, ModuleType], place: Path, name: str, language: str, held: bool
) -> None:
    from dataclasses import replace

    (place / "examples" / "vector_add").rename(place / "examples" / name)
    entry = replace(only(scripts, place), language=language)
    slower = entry.best_measured.speedup.model_copy(update={"ratio": 0.85})
    assert entry.target()[1] is held
    worse = replace(entry, best_measured=entry.best_measured.model_copy(update={"speedup": slower}))
    assert worse.target()[1] is (language == "cutile")


def test_a_miss_names_registers_occupancy_and_instructions(scripts: dict[str, ModuleType]) -> None:
    launch = {
        "kernel": "gemm",
        "registers": 168,
        "spills": 0,
        "occupancy": 0.125,
        "blocks_per_sm": 1,
        "limiter": "shared",
        "waves": 3.9,
        "tensor_core_kinds": {"HGMMA.64x128x16.F32.BF16": 8},
        "async_copy": 12,
        "bulk_copy": 0,
        "global_load_bits": {"128": 4, "32": 1},
    }
    reason = scripts["results_derived"].reason
    found = {"status": "OK", "reason": "", "advice": ["gemm: do x"], "launches": [launch], "extra_passes": 0.0}
    assert reason(found) == (
        "`gemm`: 168 registers, 0 spills, occupancy 12% (1 blocks, limited by shared), 3.9 waves, tensor cores "
        "HGMMA.64x128x16.F32.BF16 x8, 12 asynchronous copies, loads of 32 bits x1, 128 bits x4. Advice: gemm: do x."
    )
    assert reason(None) == "no compile-time evidence was collected"


def test_more_than_half_is_explained(scripts: dict[str, ModuleType], place: Path) -> None:
    why = scripts["render_results"]._why_not_half
    entry = only(scripts, place)
    chance = {"evals": {"without": 3.0, "with": 2.0}, "near_best": 0.25, "variants": 8, "curve": {"with": [0.9]}}
    assert "2 of 8 variants are as good as the best, so that chance finds one soon" in why(entry, chance)
    hard = {"evals": {"without": 20.0, "with": 18.0}, "near_best": 0.02, "variants": 90, "curve": {"with": [0.896]}}
    assert "its first choice reaches 89.6% of the best" in why(entry, hard)
    refused = {**hard, "curve": {"with": [0.0]}, "first": {"status": "COMPILE_ERROR", "error": "workload 'small'"}}
    assert "its first choice was refused (COMPILE_ERROR, workload 'small')" in why(entry, refused)
    assert why(entry, {**hard, "evals": {"without": 20.0, "with": 10.0}}) == ""


def test_what_an_interval_cannot_tell_from_the_best_is_as_good(scripts: dict[str, ModuleType]) -> None:
    import numpy as np

    from tilecast.sandbox.corpus import Paired, Row

    paired = Paired(baseline="eager", baseline_ms=1.0, ratio=1.0, low=0.99, high=1.01)
    rows = [
        Row(candidate="best", status="PASSED", ms=1.0, p10=0.99, p90=1.01, paired=paired),
        Row(candidate="overlaps", status="PASSED", ms=1.015, p10=1.005, p90=1.025, paired=paired),
        Row(candidate="apart", status="PASSED", ms=1.03, p10=1.02, p90=1.04, paired=paired),
        Row(candidate="spread of calls", status="PASSED", ms=1.02, p10=0.9, p90=1.2),
        Row(candidate="refused", status="COMPILE_ERROR"),
    ]
    speeds = np.array([1 / row.ms if row.ms else 0.0 for row in rows])
    assert scripts["results_derived"].as_good(rows, speeds).tolist() == [True, True, False, False, False]
    assert scripts["results_derived"].as_good(rows[3:], speeds[3:]).tolist() == [True, False]
