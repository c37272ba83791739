"""The script that records the examples: every point once, more of it after a stop, replayed as it was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "record_examples.py"
REFERENCE = """
import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 1001}, "other": {"n": 4099}}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs(n=1 << 16):
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn

CONFIG = {"parts": 1}
SPACE = {"parts": [1, 2, 4]}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cat([part.clamp(min=0) for part in x.chunk(CONFIG["parts"])])
"""
OTHER = KERNEL.replace("part.clamp(min=0)", "torch.maximum(part, part.new_zeros(()))").replace("[1, 2, 4]", "[1, 2]")


def record(out: Path, source: Path, *more: str) -> str:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--source", str(source), "--examples", "relu"]
    # Without a C++ compiler on the PATH the baseline is eager alone: compiling takes longer than everything else here.
    env = os.environ | {"PATH": os.path.dirname(sys.executable)}
    command += ["--out", str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]


@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_recorded_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilecast.agent.cli.app import main

    source, out = tmp_path / "examples", tmp_path / "out"
    (source / "relu" / "candidates").mkdir(parents=True)
    (source / "relu" / "reference.py").write_text(REFERENCE)
    (source / "relu" / "kernel.py").write_text(KERNEL)
    told = record(out, source, "--stop-after", "200")
    assert "relu/kernel" in told, told
    points = {(row["candidate"], str(row["config"])) for row in rows_of(out / "examples" / "relu")}
    assert points == {("__ref__", "{}"), ("kernel", "{}"), ("kernel", "{'parts': 2}"), ("kernel", "{'parts': 4}")} | {
        point for point in points if point[0].startswith("__compile")
    }

    # Another file appears: what is measured is not measured again.
    (source / "relu" / "candidates" / "other.py").write_text(OTHER)
    (source / "relu" / "candidates" / "bare.py").write_text(OTHER.split("CONFIG")[0])
    told = record(out, source, "--stop-after", "200")
    assert "relu/kernel.py: complete" in told and "bare.py: has no SPACE" in told
    rows = rows_of(out / "examples" / "relu")
    assert [(row["candidate"], row["config"]) for row in rows if row["status"] != "BASELINE"] == [
        ("kernel", {"parts": 2}),
        ("kernel", {"parts": 4}),
        ("kernel", {}),
        ("other", {"parts": 2}),
        ("other", {}),
    ]

    # Written beside the example from the record alone, it is what replay reads.
    record(tmp_path, source, "--merge", str(out / "home-cpu"))
    assert rows_of(source / "relu") == rows
    (source / "relu" / "kernel_other.py").write_text(OTHER)
    for kernel, count in (("kernel.py", 3), ("candidates/other.py", 2)):
        asked = f"optimize {source}/relu --kernel {source}/relu/{kernel} --device replay:{source}/relu --model builtin --json"
        more = ["--forecaster", "none", "--max-evals", "9"]
        monkeypatch.setattr(sys, "argv", ["tilecast", *asked.split(), *more])
        with pytest.raises(SystemExit):
            main()
        document = json.loads(capsys.readouterr().out)
        assert document["candidates"]["measured"] >= count and document["best"]["recorded"]

    # A kernel that was changed since has no times.
    (source / "relu" / "kernel.py").write_text(KERNEL.replace("clamp(min=0)", "relu()"))
    record(tmp_path, source, "--merge", str(out / "home-cpu"))
    assert {row["candidate"] for row in rows_of(source / "relu") if row["status"] != "BASELINE"} == {"other"}
