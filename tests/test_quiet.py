"""Quiet on a shared device: verification side by side, timing alone, whoever dies lets go."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tilecast.sandbox.harness.judge.quiet import Quiet

HOLDER = """
import sys, time
from tilecast.sandbox.harness.judge.quiet import Quiet
with getattr(Quiet(sys.argv[1]), sys.argv[2])():
    print("held", flush=True)
    time.sleep(60)
"""


class Log:
    """What happened, in order, from several threads."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lock = threading.Lock()

    def say(self, text: str) -> None:
        with self.lock:
            self.lines.append(text)


def hold(quiet: Quiet, kind: str, name: str, log: Log, until: threading.Event) -> threading.Thread:
    def run() -> None:
        with getattr(quiet, kind)():
            log.say(f"{name} in")
            until.wait(10)
            log.say(f"{name} out")

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def wait_for(log: Log, line: str) -> None:
    end = time.monotonic() + 10
    while line not in log.lines:
        assert time.monotonic() < end, log.lines
        time.sleep(0.005)


def test_verification_side_by_side_timing_alone_and_nobody_is_kept_waiting_for_ever(tmp_path: Path) -> None:
    path, log = str(tmp_path / "lock"), Log()
    first, second, timing, late = (threading.Event() for _ in range(4))
    threads = [hold(Quiet(path), "shared", "a", log, first), hold(Quiet(path), "shared", "b", log, second)]
    wait_for(log, "a in")
    wait_for(log, "b in")
    threads.append(hold(Quiet(path), "exclusive", "timing", log, timing))
    time.sleep(0.1)
    # It came after the one who wants to time: it must not get in before.
    threads.append(hold(Quiet(path), "shared", "late", log, late))
    time.sleep(0.1)
    assert sorted(log.lines) == ["a in", "b in"]
    first.set()
    second.set()
    wait_for(log, "timing in")
    assert "late in" not in log.lines
    timing.set()
    wait_for(log, "late in")
    assert log.lines.index("timing out") < log.lines.index("late in")
    late.set()
    for thread in threads:
        thread.join(10)


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_a_holder_that_is_killed_lets_go(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "lock")
    process = subprocess.Popen([sys.executable, "-c", HOLDER, path, kind], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    process.kill()
    process.wait(10)
    start = time.monotonic()
    with Quiet(path).exclusive():
        assert time.monotonic() - start < 5


def test_the_wait_is_counted_apart(tmp_path: Path) -> None:
    path, log, until = str(tmp_path / "lock"), Log(), threading.Event()
    thread = hold(Quiet(path), "exclusive", "timing", log, until)
    wait_for(log, "timing in")
    threading.Timer(0.3, until.set).start()
    mine = Quiet(path)
    with mine.shared():
        assert 0.2 < mine.waited_s < 5
    waited_s = mine.waited_s
    with mine.shared():
        assert mine.waited_s - waited_s < 0.1
    thread.join(10)


def test_nesting_and_what_would_wait_for_itself(tmp_path: Path) -> None:
    quiet = Quiet(str(tmp_path / "lock"))
    with quiet.exclusive(), quiet.shared(), quiet.exclusive():
        pass
    with (
        quiet.shared(),
        quiet.shared(),
        pytest.raises(RuntimeError, match="before it is given back"),
        quiet.exclusive(),
    ):
        pass
    with quiet.exclusive():
        pass


def test_heavy_work_and_who_times_never_wait_for_each_other(tmp_path: Path) -> None:
    """One is inside and wants much memory, another has it and wants to be inside, a third waits at the gate to time."""
    inside, heavy, timing = (Quiet(str(tmp_path / "lock"), sharers=3) for _ in range(3))
    is_inside, is_heavy = threading.Event(), threading.Event()

    def first() -> None:
        with inside.shared():
            is_inside.set()
            is_heavy.wait(10)
            time.sleep(0.3)
            with inside.heavy():
                pass

    def second() -> None:
        is_inside.wait(10)
        with heavy.heavy():
            is_heavy.set()
            time.sleep(0.6)
            with heavy.shared():
                pass

    def third() -> None:
        is_heavy.wait(10)
        with timing.exclusive():
            pass

    threads = [threading.Thread(target=target, daemon=True) for target in (first, second, third)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads), "they wait for each other"


def test_without_a_file_nothing_is_waited_for() -> None:
    one = Quiet()
    with one.exclusive(), Quiet().exclusive():
        pass
