"""The session in a real terminal: 80 columns, keys pressed, a local server that speaks the OpenAI API."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from fake_openai import FakeOpenAI, Reply, tool_call

from tilecast.agent.interrupts import descendants

TESTS = Path(__file__).parent
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>]|\x1b\][^\x07]*\x07|[\r\x08]")
PROMPT = r"tilecast> "
WORKING = r"\.\.\. (checking|studying|setting|first|importing|baseline)"
"""Lines of progress, which are drawn over: whichever is seen first."""
SOURCE = "import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return 2 * x\n"

pytestmark = pytest.mark.timeout(300)  # real processes, on a machine that may be busy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with the small recorded problem in it."""
    place = tmp_path / "work"
    shutil.copytree(TESTS / "data" / "tiny", place)
    (place / "scale" / "tilecast.toml").write_text("[models.fake.price]\ninput = 1.0\noutput = 4.0\n")
    return place / "scale"


class Terminal:
    """``tilecast chat`` at a terminal of 80 columns."""

    def __init__(self, folder: Path, url: str | None = None, *more: str, **environ: str) -> None:
        known = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "80", **environ}
        model = []
        if url is not None:
            known |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k"}
            model = ["--model", "fake"]
        command = [str(TESTS / "loop_parts.py"), "chat", *model, *(more or (".",))]
        self.child = pexpect.spawn(
            sys.executable, command, cwd=str(folder), env=known, dimensions=(24, 80), encoding="utf-8", timeout=90
        )
        self.seen = ""

    def until(self, words: str, timeout: float = 90) -> str:
        """Wait for words on the screen; gives what came since the last wait, without control sequences."""
        end, text = time.monotonic() + timeout, ""
        while time.monotonic() < end:
            with contextlib.suppress(pexpect.TIMEOUT):
                try:
                    text += self.child.read_nonblocking(65536, 0.1)
                except pexpect.EOF:
                    self.seen += ANSI.sub("", text)
                    assert re.search(words, " ".join(ANSI.sub("", text).split())), (
                        f"ended before {words!r}:\n{self.seen}"
                    )
                    return ANSI.sub("", text)
            plain = ANSI.sub("", text)
            if re.search(words, " ".join(plain.split())):
                self.seen += plain
                return plain
        raise AssertionError(f"{words!r} did not come:\n{self.seen}{ANSI.sub('', text)}")

    def ready(self) -> str:
        """Wait for the prompt."""
        return self.until(PROMPT.strip() + r"$")

    def type(self, text: str) -> None:
        """Type a line and press Enter."""
        self.child.send(text + "\r")

    def ask(self, text: str) -> str:
        """Type a line and wait until it is done."""
        self.type(text)
        return self.ready()


@contextlib.contextmanager
def terminal(folder: Path, url: str | None = None, *more: str, **environ: str) -> Iterator[Terminal]:
    """A terminal that is closed in the end."""
    opened = Terminal(folder, url, *more, **environ)
    try:
        yield opened
    finally:
        opened.child.close(force=True)


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
    return found


def calls(name: str, *arguments: dict[str, Any], text: str = "") -> Reply:
    made = [tool_call(name, one, f"call_{name}_{i}") for i, one in enumerate(arguments)]
    return Reply(text=text, tool_calls=made)


def test_from_a_problem_to_a_measured_answer(folder: Path) -> None:
    fast = {"path": "kernel.py", "config": {"block": 256, "warps": 2}}
    replies = [
        calls("read_file", {"path": "kernel.py"}, text="I look at the kernel first."),
        calls("write_file", {"path": "fast.py", "text": SOURCE}),
        calls("forecast", fast),
        calls("verify", fast),
        calls("bench", fast),
        "**kernel.py** with `block = 256` is 1.6x [1.57, 1.63] faster than max-autotune, as recorded.\n\n"
        "```python\nCONFIG = {'block': 256, 'warps': 2, 'stages': 1}\n```",
    ]
    with FakeOpenAI(replies) as server, terminal(folder, server.url) as screen:
        screen.ready()
        shown = screen.ask("please make it faster")
        for words in (
            "I look at the kernel",
            "+ wrote fast.py",
            "forecast kernel.py",
            "+ verify kernel.py",
            "1.57, 1.63",
        ):
            assert words in shown, words
        assert "not in the record" not in shown and "turn:" in shown and "evals 2 of 40" in " ".join(shown.split())
        assert max(len(line) for line in shown.splitlines()) <= 80
        assert "faster 1.6x" in screen.ask("/why kernel.py")
        assert (folder / "fast.py").exists() and "+class ModelNew" in screen.ask("/diff")
        assert "undone: fast.py" in screen.ask("/undo") and not (folder / "fast.py").exists()
        assert re.search(r"USD 0\.0\d+ of 2", " ".join(screen.ask("/budget usd=2 evals=50").split()))
        screen.type("/quit")
        screen.until("kept: tilecast chat --session")
        told = server.bodies[-1]["messages"]
        assert "never changed" in told[0]["content"] and "recorded" in told[-1]["content"]


def test_a_claim_without_a_measurement_is_marked(folder: Path) -> None:
    with FakeOpenAI(["Done. It is now 3x faster.", "Sorry."]) as server, terminal(folder, server.url) as screen:
        screen.ready()
        shown = screen.ask("is it fast?")
        assert "3x faster" in shown or "3x [not in the record] faster" in " ".join(shown.split())
        assert "[not in the record]" in shown and 'claim check: "3x"' in shown
        screen.ask("really?")
        assert "no measurement supports" in server.bodies[1]["messages"][-1]["content"]


def test_ctrl_c_in_a_stream_keeps_what_came(folder: Path) -> None:
    slow = Reply(text="This is a long story. " * 200, piece_s=0.05)
    with FakeOpenAI([slow, "Here I am."]) as server, terminal(folder, server.url) as screen:
        screen.ready()
        screen.type("tell me")
        screen.until("long story")
        screen.child.send("\x03")
        assert "interrupted" in screen.ready()
        assert "Here I am" in screen.ask("go on")
        kept = server.bodies[1]["messages"][-2]
        assert kept["role"] == "assistant" and "The user stopped the answer" in kept["content"]
        screen.child.send("\x03")
        screen.until("once more")
        screen.child.send("\x03")
        screen.until("kept:")


def test_ctrl_c_in_a_benchmark_kills_the_workers(folder: Path) -> None:
    with terminal(folder, None, ".", "--device", "cpu", "-y") as screen:
        screen.ready()
        screen.type("/bench candidates/other.py")
        screen.until(WORKING)
        time.sleep(1)
        below = descendants(screen.child.pid)
        assert len(below) >= 1
        screen.child.send("\x03")
        assert "stopped by the user" in screen.ready()
        end = time.monotonic() + 5
        while alive(below) and time.monotonic() < end:
            time.sleep(0.1)
        assert alive(below) == []
        assert "stopped by the user" in screen.ask("/history")
        assert "evals 1 of 40" in screen.ask("/budget")


def test_killed_in_a_benchmark_and_taken_up_again(folder: Path) -> None:
    replies = [calls("bench", {"path": "kernel.py"}), "It is 0.889x, slower, as recorded for kernel.py."]
    with FakeOpenAI(replies) as server:
        with terminal(folder, server.url, LOOP_HOLD_S="60") as screen:
            screen.ready()
            screen.type("measure it")
            screen.until("measuring kernel.py")
            os.kill(screen.child.pid, signal.SIGKILL)
        with terminal(folder, server.url, "--resume") as screen:
            screen.until("session .Enter for the newest")
            screen.type("")
            shown = " ".join(screen.until("Do it again.*y/N").split())
            assert "cut off when the last process ended: the step bench path=kernel.py" in shown
            assert "charged as set aside: 1 evaluation(s)" in shown and "measure it" in shown
            shown = " ".join(screen.ask("y").split())
            assert "0.889x" in shown and "evals 2 of 40" in shown and "claim check" not in shown
        assert len(server.requests) == 2


def test_a_question_that_was_cut_off_is_not_asked_again_unasked(folder: Path) -> None:
    with FakeOpenAI([Reply(text="x", latency_s=60), "Fine."]) as server:
        with terminal(folder, server.url) as screen:
            screen.ready()
            screen.type("hello there")
            while not server.requests:
                time.sleep(0.05)
            os.kill(screen.child.pid, signal.SIGKILL)
        with terminal(folder, server.url, "--session", "last") as screen:
            assert 'the answer to "hello there"' in " ".join(screen.until("Do it again.*y/N").split())
            screen.ask("n")
            assert len(server.requests) == 1
            assert "Fine." in screen.ask("again")


def test_no_key_help_completion_and_lines(folder: Path) -> None:
    with terminal(folder, None, NO_COLOR="1", TERM="xterm-256color") as screen:
        assert "no OPENAI_API_KEY" in " ".join(screen.ready().split())
        shown = screen.ask("/help")
        assert "a key adds an expert" in " ".join(shown.split())
        screen.child.send("/ben\t")
        screen.until("/bench")
        screen.child.send(" kern\t")
        screen.until("kernel.py")
        assert "slower 0.889x" in " ".join(screen.ask("").split())
        screen.child.send("first line\x1b\rsecond line")
        screen.until("second line")
        assert "nobody to answer" in screen.ask("")
        assert "did you mean /bench" in screen.ask("/bnch")
        colours = re.findall(r"\x1b\[[0-9;]*3[1-7]m", screen.child.before or "")
        assert colours == []


def test_before_an_expensive_step_it_asks(folder: Path) -> None:
    with terminal(folder, None, ".", "--max-evals", "2") as screen:
        screen.ready()
        screen.type("/bench kernel.py")
        assert "50% of the evals left" in " ".join(screen.until("y/N/always").split())
        assert "did not agree" in " ".join(screen.ask("n").split())
        screen.type("/bench kernel.py")
        screen.until("y/N/always")
        assert "0.889x" in screen.ask("always")
        assert "allowed before" in " ".join(screen.ask("/bench kernel.py").split())
        screen.type("/bench kernel.py")
        assert "the limit is reached" in " ".join(screen.until("new limit for evals .*number").split())
        assert "evals 3 of 10" in " ".join(screen.ask("10").split())


def test_a_run_is_shown_live_and_stopped(folder: Path) -> None:
    with terminal(folder, None, LOOP_HOLD_S="1") as screen:
        screen.ready()
        screen.type("/optimize evals=10 builtin")
        screen.until("candidate 1: ")
        screen.child.send("\x03")
        shown = " ".join(screen.ready().split())
        assert "stopped by the user" in shown and "best: 0.889x [0.873, 0.905]" in shown
        assert re.search(r"evals [1-4] of 40", " ".join(screen.ask("/budget").split()))
        assert "first one measured" in " ".join(screen.ask("/why last best").split())


def test_kill_9_in_a_benchmark_leaves_no_process(folder: Path) -> None:
    with terminal(folder, None, ".", "--device", "cpu", "-y") as screen:
        screen.ready()
        screen.type("/verify candidates/other.py")
        screen.until(WORKING)
        time.sleep(1)
        below = descendants(screen.child.pid)
        assert len(below) >= 1
        os.kill(screen.child.pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while alive(below) and time.monotonic() < end:
            time.sleep(0.1)
        assert alive(below) == []
