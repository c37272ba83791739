"""Ctrl-C twice takes every process of the run with it, also those that made a session of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import subprocess, sys, time
from tilecast.agent.interrupts import two_step

said = []
with two_step(lambda: print("first", flush=True), lambda: time.sleep({close_s}), lambda text: print(text, flush=True)):
    subprocess.Popen(["sleep", "300"])
    subprocess.Popen(["sh", "-c", "sleep 300 & wait"], start_new_session=True)
    print("ready", flush=True)
    time.sleep(300)
"""


def children(pid: int) -> list[int]:
    from tilecast.agent.interrupts import descendants

    return descendants(pid)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_twice_kills_the_whole_tree_even_if_closing_hangs() -> None:
    program = PROGRAM.format(close_s=60)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    below = children(process.pid)
    assert len(below) >= 3
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "first\n"
    time.sleep(0.2)
    assert process.poll() is None and all(alive(pid) for pid in below)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130
    time.sleep(0.2)
    assert [pid for pid in below if alive(pid)] == []


def test_a_name_with_brackets_does_not_confuse_the_list_of_processes(tmp_path: Path) -> None:
    odd = tmp_path / "a) 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(odd), "30"])
    try:
        assert process.pid in children(os.getpid())
    finally:
        process.kill()
        process.wait()
