"""The carried program: what is in it, and that it works where nothing but torch and numpy can be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest
from bundle_parts import copied
from loop_parts import KERNEL

from tilecast.sandbox.base import EvaluationOptions, Expected
from tilecast.sandbox.bundle import BundleSandbox
from tilecast.sandbox.errors import WorkLeft
from tilecast.sandbox.harness.bundles import carried, layout
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus


def test_the_carried_program_is_the_harness_and_nothing_else(tmp_path: Path) -> None:
    blob = carried.program()
    assert blob == carried.program()
    (tmp_path / "worker.pyz").write_bytes(blob)
    with zipfile.ZipFile(tmp_path / "worker.pyz") as archive:
        names = archive.namelist()
    outside = [n for n in names if n.count("/") == 2 and n.startswith("tilecast/sandbox/")]
    assert outside == [f"tilecast/sandbox/{name}" for name in carried.BESIDE]
    assert "tilecast/sandbox/harness/judge/__main__.py" in names and not [n for n in names if "agent" in n]


BLOCK = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed here", name=name)

sys.meta_path.insert(0, Refuse())
"""
BLOCKED = {
    "pydantic",
    "typer",
    "rich",
    "langgraph",
    "openai",
    "sqlalchemy",
    "alembic",
    "libcst",
    "prompt_toolkit",
    "mcp",
}
SOFT = """
import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 64}}


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2


def get_inputs(n=4096):
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""


@pytest.mark.timeout(600)
def test_the_carried_program_does_the_work_where_only_torch_and_numpy_are(tmp_path: Path) -> None:
    """A real judge on the CPU, in a copy of the folder, with nothing else importable: verified, timed, isolated."""
    (tmp_path / "problem").mkdir()
    (tmp_path / "problem" / "reference.py").write_text(SOFT)
    problem = load_problem(tmp_path / "problem")
    kernel = KERNEL.model_copy(
        update={"source": SOFT.replace("class Model(", "class ModelNew(").replace(" * 2", ".mul(2)"), "name": "mine"}
    )
    options = EvaluationOptions(baseline="eager", max_seconds=1.0)
    sandbox = BundleSandbox(tmp_path / "here", "run1", problem, Expected(options, kernel))
    sandbox.leave()
    with pytest.raises(WorkLeft):
        sandbox.preflight(problem, lambda text: None)
    away, block = copied(tmp_path / "here", tmp_path / "there"), tmp_path / "block"
    block.mkdir()
    (block / "sitecustomize.py").write_text(textwrap.dedent(BLOCK.format(blocked=BLOCKED)))
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TILECAST_HOME")}
    environment |= {"PYTHONPATH": str(block), "TILECAST_HOME": str(tmp_path / "away-home")}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(away / layout.PROGRAM), "--device", "cpu", "--once"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"{time.monotonic() - began:.0f} s\n{done.stdout}")
    copied(away / "results", tmp_path / "here" / "results")
    found = sandbox.preflight(problem, lambda text: None)
    assert found.status is EvaluationStatus.PASSED and found.facts is not None
    assert sandbox.baselines(problem, options, lambda text: None).fastest == "eager"
    result = sandbox.benchmark(problem, kernel, options, lambda text: None)
    assert result.status is EvaluationStatus.PASSED and result.latency_ms is not None, json.dumps(result.reason)
    assert result.sandbox_level != "" and sandbox.device.kind == "bundle"
