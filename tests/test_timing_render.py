"""The tables of docs/timing.md: made from results as the scripts write them, at their marks, again and again the same."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
HEADER = {
    "date": "2026-11-30T10:00:00+00:00",
    "card": "NVIDIA H200, 580",
    "machine": "x",
    "versions": {"torch": "2.11"},
    "commit": "abc",
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(BENCHMARKS))
    sys.modules[name] = module  # where dataclasses look for what their annotations name
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


AA = {"comparisons": 200, "median_ms": 0.0213, "failed": 0, "samples_median": 240.0, "seconds_median": 0.4}
AA_REST = {"verdicts": {"same": 198, "faster": 2}, "ratio": {"median": 1.0, "low": 0.99, "high": 1.01}}
RATE = {"candidates": 24, "passed": 24, "a_minute_with_setup": 25.0}
RATES = [
    {**RATE, "lanes": 1, "a_minute": 12.0, "times": 2.0},
    {**RATE, "lanes": 3, "a_minute": 30.0, "times": 5.1, "passed": 23},
]
SUMMARY = {"measured": 90, "median_difference": 0.006, "p90_difference": 0.03, "within_5_percent": 0.94}
RESULTS: dict[str, dict[str, Any]] = {
    "aa_cuda": {
        "cases": {
            "A/A 20 us": {**AA, **AA_REST, "sampling_seconds_median": 0.2},
            "A/A 2 ms": {"comparisons": 0, "failures": []},
        }
    },
    "throughput": {"plain_a_minute": 6.0, "rates": RATES},
    "corpus_remeasure": {"summary": {**SUMMARY, "differing": ["softmax/tr_1 0.1 -> 0.2 ms"], "other_status": []}},
    "timing_cheats_cuda": {
        "results": {"relu/cuda/x.py": {"status": "REWARD_HACK", "reason": "a | b", "latency_ms": None}}
    },
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name, body in RESULTS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(HEADER | body))
    return tmp_path


def test_tables_stand_at_their_marks(results: Path) -> None:
    render = script("render_timing").render
    text = (BENCHMARKS.parent / "docs" / "timing.md").read_text()
    made = render(text, results)
    assert "| A/A 20 us | 0.0213 | 200 | 2 | 0 | 198 | 0 |" in made
    assert (
        "| this harness, one judge | 12.0 | 25.0 | 2.0 |" in made
        and "| this harness, 3 judges | 30.0 | 25.0 | 5.1 |" in made
    )
    assert "24 recorded Triton kernels under 1 ms, 1 of them refused" in made
    assert "94% within 5 %" in made and "softmax/tr_1" in made
    assert "a / b" in made
    assert render(made, results) == made
    assert made.startswith(text[: text.index("<!-- begin gpu -->")][:200])


def test_a_document_without_marks_is_refused(results: Path) -> None:
    with pytest.raises(ValueError, match="no marks"):
        script("render_timing").render("nothing here", results)


@pytest.mark.parametrize("name", ["aa_gpu", "corpus_remeasure", "throughput", "timing_cheats", "timing_simulation"])
def test_scripts_load_and_explain_themselves(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script(name)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0 and "--out" in capsys.readouterr().out
