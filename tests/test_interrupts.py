"""Ctrl-C: once says what is still finished, twice takes every process along, also those that made a session of their own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tilecast.agent.cli.stopping import Stopping
from tilecast.agent.cli.view import LiveView, PlainView
from tilecast.agent.progress import Ended, Step, StopAsked

PROGRAM = """
import subprocess, sys, time
from tilecast.agent.interrupts import two_step

said = []
say = lambda text: print(text, flush=True)
with two_step(lambda: None, lambda: say("first"), lambda: time.sleep({close_s}), say):
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


def test_lines_follow_the_step_until_the_run_has_ended() -> None:
    stream = io.StringIO()
    view = PlainView(stream, remind_s=0.05)
    view(Step("checking the reference"))
    view(StopAsked())
    until(lambda: "stopping after checking the reference (0 s)" in stream.getvalue())
    view(Step("timing on full", 3))
    until(lambda: "stopping after candidate 3: timing on full (0 s)" in stream.getvalue())
    view(Ended("interrupted", "by the user"))
    time.sleep(0.1)
    ended = stream.getvalue()
    time.sleep(0.2)
    assert stream.getvalue() == ended and "finishing the current step (checking the reference)" in ended


def test_the_live_picture_counts_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=100, record=True, force_terminal=True, file=io.StringIO())
    view = LiveView(console)
    view(Step("timing on full", 3))
    view(StopAsked())
    monkeypatch.setattr(Stopping, "seconds", 12.4)
    view.close()
    console.print(view._picture())
    shown = console.export_text()
    assert "warning: finishing the current step (candidate 3: timing on full); once more kills it" in shown
    assert "stopping after  candidate 3: timing on full (12 s; Ctrl-C once more kills it)" in shown


def until(condition: Callable[[], bool], limit_s: float = 5.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
