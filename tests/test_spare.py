"""A worker made ready before its candidate is there: as fresh as any, used once, nobody's fault if it dies."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from process_parts import kill_all

from tilecast.sandbox.harness.judge import zygotes as zygotes_module
from tilecast.sandbox.harness.judge.__main__ import Judge
from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.zygotes import Zygotes

CPU = torch.device("cpu")
REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn

{top}


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}
"""
PROBLEM: dict[str, Any] = {"name": "p", "source": REFERENCE, "workloads": None, "tolerance": None, "domain": None}
PROBLEM["sha256"] = hashlib.sha256(REFERENCE.encode()).hexdigest()


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    """With a spare on the CPU too, where it would not be worth while."""
    made = Judge(CPU, str(tmp_path / "state"), False)
    made.spare.useful = True
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that workers of candidates were made in."""
    log: list[str] = []
    real = Session.open.__func__  # type: ignore[attr-defined]

    def noting(cls: Any, zygotes: Any, options: Any) -> Any:
        if options.role == "candidate" and options.whose == "the candidate":
            log.append(threading.current_thread().name)
        return real(cls, zygotes, options)

    monkeypatch.setattr(Session, "open", classmethod(noting))
    return log


def asked(judge: Judge, op: str = "verify", top: str = "", factor: float = 2, **options: Any) -> dict[str, Any]:
    source = KERNEL.format(top=top, factor=factor)
    candidate = {"name": "k", "sha256": hashlib.sha256(source.encode()).hexdigest(), "source": source}
    given = {"timeout_s": 60.0, "baseline": "eager", "max_seconds": 1.0, **options}
    answer = judge.answer({"op": op, "args": {"problem": PROBLEM, "candidate": candidate, "options": given}}, print)
    assert answer["ok"], answer
    return dict(answer["result"])


def test_each_candidate_but_the_first_gets_a_worker_that_was_there(judge: Judge, opened: list[str]) -> None:
    assert asked(judge, top="# 1")["status"] == "PASSED"
    assert asked(judge, top="# 2", factor=2.1)["status"] == "INCORRECT_NUMERICAL"
    assert asked(judge, top="# 3")["status"] == "PASSED"
    assert asked(judge, top="raise ValueError")["status"] == "COMPILE_ERROR"
    judge.spare.settle()
    assert opened == ["MainThread", *["spare worker"] * 4]


def test_a_worker_is_used_once(judge: Judge) -> None:
    """What one candidate leaves in its process, its folders and its temporary files, the next does not find."""
    places = "('/tmp/left', os.environ['TRITON_CACHE_DIR'] + 'left')"
    leaves = (
        f"import builtins, os\nbuiltins.left = 1\nfor p in {places}:\n    os.close(os.open(p, os.O_CREAT | os.O_RDWR))"
    )
    finds = (
        "import builtins, os\nassert not hasattr(builtins, 'left')\n"
        f"for p in {places}:\n    assert not os.path.exists(p)"
    )
    for number in range(3):
        asked(judge, top=f"{leaves}\n# {number}")
        assert asked(judge, top=f"{finds}\n# {number}")["status"] == "PASSED"


def test_a_spare_that_died_meanwhile_is_replaced_and_blames_nobody(judge: Judge, opened: list[str]) -> None:
    asked(judge, top="# 1")
    judge.spare.settle()
    assert judge.spare._ready is not None
    kill_all(judge.spare._ready.session.processes())
    assert asked(judge, top="# 2")["status"] == "PASSED"
    assert opened[:3] == ["MainThread", "spare worker", "MainThread"]


def test_time_limits_are_the_candidates_own_also_in_a_spare(judge: Judge) -> None:
    asked(judge, top="# 1", timeout_s=60.0)
    answer = asked(judge, top="import time\ntime.sleep(30)", timeout_s=2.0)
    assert answer["status"] == "TIMEOUT" and "within 2 s" in answer["reason"] and answer["seconds"] < 15


def test_none_is_made_while_something_is_timed(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    making: list[bool] = []
    real = judge.zygotes.quiet.exclusive

    def exclusive() -> Any:
        making.append(judge.spare._thread is not None)
        return real()

    monkeypatch.setattr(judge.zygotes.quiet, "exclusive", exclusive)
    assert asked(judge, "bench")["status"] == "PASSED"
    assert making and not any(making)


@pytest.mark.parametrize("op", ["baselines", "ceilings"])
def test_none_is_made_while_baselines_or_the_device_are_measured(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    making: list[bool] = []
    monkeypatch.setattr(judge.desk, op, lambda *_: making.append(judge.spare._thread is not None) or {})
    asked(judge, top="raise ValueError")
    assert judge.spare._thread is not None
    asked(judge, op)
    assert making == [False]


def test_a_spare_that_cannot_be_made_for_whatever_reason_leaves_nothing(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Session] = []

    def fails(self: Session, message: Any, doing: str, **_: Any) -> Any:
        made.append(self)
        raise RuntimeError("CUDA error: out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(Session, "request", fails)
        judge.spare.prepare()
        judge.spare.settle()
    (session,) = made
    assert not session.alive and judge.spare._ready is None
    assert not os.path.exists(str(session.options.cache))
    assert asked(judge)["status"] == "PASSED"


def test_a_full_disk_does_not_end_the_candidate_that_is_checked(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> str:
        raise OSError(28, "No space left on device")

    asked(judge, top="# 1")
    judge.spare.settle()
    monkeypatch.setattr(judge.builds, "fresh", full)
    assert asked(judge, top="# 2")["status"] == "PASSED"


def test_a_spare_whose_folder_cannot_be_furnished_is_ended(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: str) -> None:
        raise OSError(28, "No space left on device")

    asked(judge, top="# 1")
    judge.spare.settle()
    ready = judge.spare._ready
    assert ready is not None
    monkeypatch.setattr(judge.builds, "furnish", full)
    with pytest.raises(OSError, match="No space"):
        judge.spare.take(ready.session.options)
    assert not ready.session.alive and not os.path.exists(ready.folder)


def test_waiting_for_a_spare_that_waits_for_other_judges_is_no_use_of_the_device(tmp_path: Path) -> None:
    lock = str(tmp_path / "quiet")
    judge = Judge(CPU, None, False, Zygotes(Quiet(lock, sharers=2)))
    judge.spare.useful = True
    try:
        judge.zygotes.abilities()
        with Quiet(lock, sharers=2).exclusive():
            judge.spare.prepare()
            time.sleep(1.0)
            thread = judge.spare._thread
            assert thread is not None and thread.is_alive()
            waits = threading.Thread(target=judge.spare.settle)
            waits.start()
            time.sleep(1.0)
        waits.join()
        assert 0.8 < judge.zygotes.quiet.waited_s < 1.9, "the second of the two is counted"
    finally:
        judge.close()


def test_threads_that_find_no_fork_server_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is forgotten would outlive the judge's other workers, with its own."""
    started: list[object] = []

    class Slow:
        alive = True

        def __init__(self, *, interpret: bool) -> None:
            time.sleep(0.2)
            started.append(self)

    monkeypatch.setattr(zygotes_module, "_Server", Slow)
    servers = Zygotes()
    threads = [threading.Thread(target=servers.start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 1


def test_closing_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    made = Judge(CPU, str(tmp_path), False, Zygotes(Quiet(str(tmp_path / "quiet"), sharers=2)))
    made.spare.useful = True
    asked(made)
    made.spare.settle()
    assert made.spare._ready is not None
    folder, pids = made.spare._ready.folder, made.spare._ready.session.processes()
    assert pids and os.path.isdir(folder)
    made.close()
    end = time.monotonic() + 10.0
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not os.path.exists(folder) and not any(os.path.exists(f"/proc/{pid}") for pid in pids)
