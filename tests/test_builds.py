"""Builds that a candidate starts for itself are bounded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tilecast.sandbox.base import EvaluationOptions  # noqa: E402
from tilecast.sandbox.harness.judge.build_folders import BuildFolders, _remove_orphans  # noqa: E402
from tilecast.sandbox.harness.worker import builds, failures  # noqa: E402
from tilecast.sandbox.local import LocalSandbox  # noqa: E402
from tilecast.sandbox.problem import load_problem  # noqa: E402
from tilecast.sandbox.source import Candidate, load_candidate  # noqa: E402

EXAMPLE = Path(__file__).parents[1] / "examples" / "softmax_cpp"
MARKING = """
import os
import torch
import torch.nn as nn
import torch.utils.cpp_extension

MARK = os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "mark")
been_here = os.path.exists(MARK)
os.makedirs(os.path.dirname(MARK), exist_ok=True)
open(MARK, "w").close()


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) + been_here
"""


def test_jobs_follow_memory_and_cores() -> None:
    assert builds.jobs_for(64 << 30, 4) == 4
    assert builds.jobs_for(7 << 30, 16) == 2
    assert builds.jobs_for(1 << 20, 16) == 1
    assert builds.available_memory_bytes() > 0


def test_folders_are_kept_by_text_and_only_what_passed() -> None:
    folders = BuildFolders(kept=2)
    text = "import torch.utils.cpp_extension  # {}"
    first = folders.take(text.format(1))
    assert folders.take(text.format(1)) != first, "one that is in use is given to nobody else"
    folders.give_back(text.format(1), first, passed=True)
    assert folders.take(text.format(2)) != first
    assert folders.take(text.format(1)) == first
    folders.give_back(text.format(1), first, passed=False)
    assert not Path(first).exists()
    light = folders.take("import triton")
    folders.give_back("import triton", light, passed=True)
    assert not Path(light).exists()
    made = {number: folders.take(text.format(number)) for number in range(3)}
    for number, folder in made.items():
        folders.give_back(text.format(number), folder, passed=True)
    assert [Path(folder).exists() for folder in made.values()] == [False, True, True]
    folders.close()
    assert not any(Path(folder).exists() for folder in made.values())


def test_folders_of_a_killed_judge_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    orphan, own = tmp_path / f"tilecast-builds-{ended.pid}-x", tmp_path / f"tilecast-builds-{os.getpid()}-x"
    orphan.mkdir()
    own.mkdir()
    BuildFolders().take("x")
    assert not orphan.exists() and own.exists()


def test_a_build_is_for_the_next_evaluation_of_the_same_text_alone(tmp_path: Path) -> None:
    problem = load_problem(EXAMPLE)
    first, other = (Candidate(name="marking", source=f"{MARKING}\nNUMBER = {number}\n") for number in (1, 2))
    sandbox = LocalSandbox("cpu", state_dir=tmp_path)
    try:
        statuses = [
            str(sandbox.verify(problem, item, EvaluationOptions(), lambda text: None).status)
            for item in (first, other, first, first)
        ]
    finally:
        sandbox.close()
    # The third finds its mark and is wrong for it, and so loses its folder.
    assert statuses == ["PASSED", "PASSED", "INCORRECT_NUMERICAL", "PASSED"]


@pytest.mark.skipif(shutil.which("ninja") is None or shutil.which("c++") is None, reason="no compiler or no ninja")
def test_a_candidate_in_cpp_is_built_and_right(tmp_path: Path) -> None:
    sandbox = LocalSandbox("cpu", state_dir=tmp_path)
    try:
        answer = sandbox.verify(
            load_problem(EXAMPLE), load_candidate(EXAMPLE / "kernel.py"), EvaluationOptions(), lambda text: None
        )
    finally:
        sandbox.close()
    assert str(answer.status) == "PASSED", answer.reason


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.file_baton import FileBaton

    for name in ("MAX_JOBS", "NVCC_APPEND_FLAGS"):
        monkeypatch.setenv(name, "")
    for name in ("try_acquire", "wait", "release"):
        monkeypatch.setattr(FileBaton, name, getattr(FileBaton, name))
    builds.prepare()


@pytest.mark.usefixtures("prepared")
def test_settings() -> None:
    assert int(os.environ["MAX_JOBS"]) >= 1 and os.environ["NVCC_APPEND_FLAGS"] == "-lineinfo"
    builds.prepare()
    assert os.environ["NVCC_APPEND_FLAGS"] == "-lineinfo"


@pytest.mark.usefixtures("prepared")
def test_a_lock_dies_with_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.file_baton import FileBaton

    monkeypatch.setattr(builds, "LOCK_WAIT_S", 0.2)
    lock = str(tmp_path / "lock")
    text = (
        f"import fcntl, os, time; d = os.open({lock!r}, os.O_CREAT | os.O_RDWR); fcntl.flock(d, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == b"held\n"
        baton = FileBaton(lock)
        assert not baton.try_acquire()
        with pytest.raises(builds.LockTimeout, match="held"):
            baton.wait()
        owner.kill()
        owner.wait()
        baton.wait()
    assert baton.try_acquire() and not FileBaton(lock).try_acquire()
    baton.release()
    assert FileBaton(lock).try_acquire()


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ModuleNotFoundError("No module named 'cuda.core'", name="cuda.core"), "cuda-core"),
        (RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)"), "pip install ninja"),
    ],
)
def test_what_the_machine_lacks_is_no_fault_of_the_candidate(error: Exception, remedy: str) -> None:
    found = failures.classify(error, "", loading=True, device="cuda:0")
    assert found.status == "ENVIRONMENT_ERROR" and remedy in found.reason
    own = ModuleNotFoundError("No module named 'made_up'", name="made_up")
    assert failures.classify(own, "", loading=True, device="cuda:0").status == "COMPILE_ERROR"


def test_two_judges_may_clear_away_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One finds a folder that the other removes before it looks closer."""
    gone = tmp_path / "tilecast-builds-999999999-x"
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([gone]))
    _remove_orphans(tmp_path)
