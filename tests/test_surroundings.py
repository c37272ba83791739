"""What workers see of packages and compilers that lie in folders of their own, as on a machine without a network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.harness.judge.surroundings import python_paths, toolkit_paths
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import Candidate

PROBLEM = """
import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 33}}


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs(n=65):
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""
NEEDS_BOTH = """
import shutil
import subprocess
import doubling
import torch
import torch.nn as nn

compiler = shutil.which("tileiras")
if compiler is None or "compiled" not in open(compiler).read():
    raise RuntimeError(f"no compiler: {compiler}")


class ModelNew(nn.Module):
    def forward(self, x):
        return doubling.twice(x)
"""


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `pip install --target` makes it, and a compiler beside it, both named by the environment alone."""
    target, toolkit = tmp_path / "packages", tmp_path / "toolkit"
    (target / "doubling-1.0.dist-info").mkdir(parents=True)
    (target / "doubling.py").write_text("def twice(x):\n    return x + x\n")
    (toolkit / "bin").mkdir(parents=True)
    (toolkit / "lib").mkdir()
    (toolkit / "bin" / "tileiras").write_text("#!/bin/sh\necho compiled\n")
    (toolkit / "bin" / "tileiras").chmod(0o755)
    monkeypatch.setenv("PATH", f"{toolkit / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", f"{target}:{Path(__file__).parents[1] / '.types'}")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{toolkit / 'lib'}:")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    return tmp_path


def test_folders_of_packages_and_compilers(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = apart / "plain"
    plain.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(apart / "packages"), str(plain)])
    seen = python_paths()
    assert str(apart / "packages") in seen and str(plain) not in seen
    assert toolkit_paths() == (str(apart / "toolkit" / "lib"), str(apart / "toolkit"))


def test_the_system_is_not_shown_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CUDA_HOME", "/")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/usr:/usr/lib:{tmp_path / 'gone'}")
    assert toolkit_paths() == ()


def test_a_worker_uses_them(apart: Path) -> None:
    problem = apart / "problem.py"
    problem.write_text(PROBLEM)
    sandbox = LocalSandbox("cpu", state_dir=apart / "state")
    try:
        candidate = Candidate(name="both", source=NEEDS_BOTH)
        answer = sandbox.verify(load_problem(problem), candidate, EvaluationOptions(), lambda _: None)
    finally:
        sandbox.close()
    assert answer.status is EvaluationStatus.PASSED, answer.reason
