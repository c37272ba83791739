"""The scripts that put a whole corpus through the judge, on a small one: several judges, and a second run that goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp(min={least})
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """One problem, a right candidate and a wrong one, both recorded as passed."""
    folder = tmp_path / "corpus" / "relu"
    (folder / "candidates").mkdir(parents=True)
    (folder / "reference.py").write_text(REFERENCE)
    rows = []
    for name, least in (("right", 0), ("wrong", 0.1)):
        (folder / "candidates" / f"{name}.py").write_text(KERNEL.format(least=least))
        rows.append({"candidate": name, "config": {}, "status": "PASSED", "ms": 0.01, "kernels": [{}]})
    (folder / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder.parent


def run(script: str, corpus: Path, out: Path, *more: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), "--corpus", str(corpus), "--device", "cpu"]
    command += ["--out", str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    found = next(iter(out.glob(f"{script}*.json")), None)
    assert found is not None, done.stderr[-2000:]
    return done.returncode, json.loads(found.read_text())


def test_every_candidate_is_verified_and_what_is_refused_is_told(corpus: Path, tmp_path: Path) -> None:
    code, found = run("verify_corpus", corpus, tmp_path / "out", "--jobs", "2", "--chunk", "1")
    assert code == 1 and found["summary"]["by_status"] == {"PASSED": 1, "INCORRECT_NUMERICAL": 1}
    (refused,) = found["summary"]["not_passed"]
    assert (refused["problem"], refused["candidate"], refused["recorded"]) == ("relu", "wrong", "PASSED")
    journal = (tmp_path / "out" / "verify_corpus_cpu.jsonl").read_text()
    run("verify_corpus", corpus, tmp_path / "out", "--jobs", "2")
    assert (tmp_path / "out" / "verify_corpus_cpu.jsonl").read_text() == journal, "done ones were judged again"


def test_recorded_rows_are_measured_again_by_several_judges(corpus: Path, tmp_path: Path) -> None:
    code, found = run("corpus_remeasure", corpus, tmp_path / "out", "--lanes", "2", "--max-seconds", "0.5")
    rows = {row["candidate"]: row for row in found["problems"]["relu"]["results"]}
    assert code == 0 and found["left_out"] == [] and found["summary"]["measured"] == 1
    assert rows["right"]["ms"] > 0 and rows["right"]["phases_s"]["timing"] > 0
    assert rows["wrong"]["status"] == "INCORRECT_NUMERICAL"


def test_throughput_is_counted_by_judges_and_against_the_plain_harness(corpus: Path, tmp_path: Path) -> None:
    more = ("--problems", "relu", "--per-problem", "2", "--lanes", "1,2", "--max-seconds", "0.5")
    code, found = run("throughput", corpus, tmp_path / "out", *more)
    assert code == 0 and [rate["lanes"] for rate in found["rates"]] == [1, 2]
    assert [(rate["candidates"], rate["passed"]) for rate in found["rates"]] == [(2, 1), (2, 1)]
    assert {row["status"] for row in found["plain"]["relu"]} == {"PASSED", "INCORRECT"}
    plain_s = sum(row["seconds"] for row in found["plain"]["relu"]) / 2
    assert found["plain_a_minute"] == pytest.approx(60 / plain_s, rel=0.02)
