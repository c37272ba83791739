"""Machines that offer less isolation: the level says so, what is left still holds, and a required sandbox fails closed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.schema import EvaluationStatus, Verification
from tilecast.sandbox.source import Candidate

REFERENCE = (
    "import torch\nimport torch.nn as nn\n\nWORKLOADS = {'small': {'n': 20}}\n\n\nclass Model(nn.Module):\n"
    "    def forward(self, x):\n        return x * 2\n\n\ndef get_inputs(n=64):\n    return [torch.randn(n, 8)]\n\n\n"
    "def get_init_inputs():\n    return []\n"
)
ATTACK = """
import os, socket
import torch.nn as nn

for attempt in (
    lambda: socket.socket(),
    lambda: open({victim!r}, "w"),
    lambda: os.kill(os.getppid(), 9),
    lambda: os.listdir({folder!r}),
):
    try:
        attempt()
    except OSError:
        continue
    raise RuntimeError("not contained")
if os.fork() == 0:
    os.setsid()
    import ctypes, time
    ctypes.CDLL(None).prctl(15, {name!r}.encode())
    time.sleep(600)


class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
"""


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "reference.py").write_text(REFERENCE)
    return load_problem(tmp_path / "p")


def verified(sandbox: LocalSandbox, problem: Problem, source: str) -> Verification:
    candidate = Candidate(name="c", source=source)
    return sandbox.verify(problem, candidate, EvaluationOptions(timeout_s=30), lambda _: None)


def test_without_namespaces_files_sockets_and_signals_are_still_confined(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILECAST_SANDBOX", "landlock")
    sandbox = LocalSandbox("cpu", state_dir=tmp_path / "state")
    try:
        if sandbox.sandbox_level != "landlock+seccomp":
            pytest.skip(f"this kernel offers {sandbox.sandbox_level}")
        name = f"left-{os.getpid()}"
        attack = ATTACK.format(victim=str(tmp_path / "victim"), folder=str(tmp_path), name=name)
        answer = verified(sandbox, problem, attack)
        assert answer.status is EvaluationStatus.REWARD_HACK, answer.reason
        assert "left a process running" in answer.reason
        assert sleepers(name) == 0
        assert not (tmp_path / "victim").exists()
        honest = verified(
            sandbox,
            problem,
            "import torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x + x\n",
        )
        assert honest.status is EvaluationStatus.PASSED, honest.reason
    finally:
        sandbox.close()


def sleepers(name: str) -> int:
    """Processes that call themselves so and run (the dead may wait to be reaped)."""
    count = 0
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                running = "State:\tZ" not in Path(f"/proc/{folder}/status").read_text()
                count += running and Path(f"/proc/{folder}/comm").read_text().strip() == name
            except OSError:
                continue
    return count


def test_a_required_sandbox_fails_closed(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECAST_SANDBOX", "limits")
    sandbox = LocalSandbox("cpu", require_sandbox=True, state_dir=tmp_path)
    try:
        with pytest.raises(EnvironmentFailure, match="limits only"):
            verified(sandbox, problem, "class ModelNew: pass")
    finally:
        sandbox.close()


def test_limits_alone_still_judge(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECAST_SANDBOX", "limits")
    sandbox = LocalSandbox("cpu", state_dir=tmp_path)
    try:
        answer = verified(
            sandbox,
            problem,
            "import torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x * 2.5\n",
        )
        assert answer.status is EvaluationStatus.INCORRECT_NUMERICAL
        assert answer.sandbox_level == "limits only"
    finally:
        sandbox.close()
