"""Builds that a candidate starts for itself are bounded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tilecast.sandbox.harness.worker import builds  # noqa: E402


def test_jobs_follow_memory_and_cores() -> None:
    assert builds.jobs_for(64 << 30, 4) == 4
    assert builds.jobs_for(7 << 30, 16) == 2
    assert builds.jobs_for(1 << 20, 16) == 1
    assert builds.available_memory_bytes() > 0


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
