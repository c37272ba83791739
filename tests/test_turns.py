"""Turns: one evaluation at a time on a device among processes, one process on a run; a dead holder holds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tilecast.agent.turns import RunLock, device_turn, is_worked_on, lock_file
from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.errors import UsageError

HOLDER = """
import sys, time
from pathlib import Path
from tilecast.agent.turns import RunLock, device_turn
from tilecast.sandbox.base import DeviceFacts
device = DeviceFacts(kind="cuda", name="x", uuid=sys.argv[1])
lock = RunLock(Path(sys.argv[2]), "r")
with device_turn(device):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, f"GPU-{tmp_path.name}", str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_device_is_waited_for_and_free_when_its_holder_is_killed(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    device, mine = DeviceFacts(kind="cuda", name="x", uuid=f"GPU-{tmp_path.name}"), threading.Event()

    def wait() -> None:
        with device_turn(device):
            mine.set()

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert not mine.wait(0.3)
    holder.kill()
    holder.wait()
    assert mine.wait(10)
    waiting.join()
    lock_file(device).unlink()


def test_a_run_is_taken_by_one_process_and_free_when_it_is_killed(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert is_worked_on(tmp_path)
    with pytest.raises(UsageError, match=f"run r is being worked on by process {holder.pid}"):
        RunLock(tmp_path, "r")
    holder.kill()
    holder.wait()
    assert not is_worked_on(tmp_path)
    RunLock(tmp_path, "r").release()


def test_threads_of_one_process_take_turns_too(tmp_path: Path) -> None:
    device, at_once, most = DeviceFacts(kind="cuda", name="x", uuid=f"GPU-{tmp_path.name}"), 0, 0

    def work() -> None:
        nonlocal at_once, most
        with device_turn(device):
            at_once += 1
            most = max(most, at_once)
            time.sleep(0.01)
            at_once -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    lock_file(device).unlink()


def test_a_record_is_read_without_waiting(tmp_path: Path) -> None:
    device = DeviceFacts(kind="replay", name="x", uuid=f"record-{os.getpid()}", recorded=True)
    with device_turn(device), device_turn(device):
        assert not lock_file(device).exists()
