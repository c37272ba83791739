"""Plays the scenes of ``docs/chat.md`` in tmux, against a local server that speaks the OpenAI API, and writes what was seen.

``python docs/capture_chat.py`` (needs tmux); the measurements are those recorded with the tests' small problem.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from fake_openai import FakeOpenAI, Reply, tool_call  # noqa: E402

TARGET = ROOT / "docs" / "chat.md"
WAIT_S = 60.0
FASTER = {"path": "kernel.py", "config": {"block": 256, "warps": 2}}
ANSWER = (
    "With these values **kernel.py** is 1.6x [1.57, 1.63] faster than max-autotune, as recorded:\n\n"
    "```python\nCONFIG = {'block': 256, 'warps': 2, 'stages': 1}\n```\n\n"
    "I also wrote `fast.py`; nobody has measured it."
)
NEW = "import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x + x + 0\n"


class Tmux:
    """A tmux server of its own, 80 columns wide."""

    def __init__(self, folder: Path, url: str) -> None:
        self.name, self.folder = f"tilecast-{os.getpid()}", folder
        self.environ = {
            **{key: value for key, value in os.environ.items() if key != "TMUX"},
            "OPENAI_BASE_URL": url,
            "TILECAST_HOME": str(folder.parent / "home"),
        }

    def run(self, *arguments: str) -> str:
        """One tmux command."""
        command = ["tmux", "-L", self.name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, check=True).stdout

    def start(self, *arguments: str, hold_s: float = 0) -> None:
        """``tilecast chat`` in a fresh window."""
        program = f"LOOP_HOLD_S={hold_s} {sys.executable} {ROOT / 'tests' / 'loop_parts.py'} chat {' '.join(arguments)}"
        self.run("new-session", "-d", "-s", "x", "-x", "80", "-y", "50", "-c", str(self.folder), f"{program}; sleep 1")

    def type(self, text: str, enter: bool = True) -> None:
        """Type, as at a keyboard."""
        self.run("send-keys", "-t", "x", "-l", text)
        if enter:
            self.run("send-keys", "-t", "x", "Enter")

    def screen(self) -> str:
        """All that is on the screen and above it."""
        return self.run("capture-pane", "-p", "-t", "x", "-S", "-300").rstrip()

    def until(self, words: str, count: int = 1) -> str:
        """Wait until words are there (``count`` times)."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            screen = self.screen()
            if len(re.findall(words, screen, re.MULTILINE)) >= count:
                return screen
            time.sleep(0.1)
        raise SystemExit(f"{words!r} did not come:\n{screen}")

    def end(self) -> None:
        """Close the window."""
        subprocess.run(["tmux", "-L", self.name, "kill-server"], env=self.environ, capture_output=True, check=False)


PROMPT = r"^tilecast>$"


def call(name: str, arguments: object, text: str = "") -> Reply:
    """A reply with one tool call."""
    return Reply(text=text, tool_calls=[tool_call(name, arguments, f"call_{name}")])


def session(tmux: Tmux) -> str:
    """Ask for a faster version; then why, undo and budget."""
    tmux.start(".", "--model", "fake")
    tmux.until(PROMPT)
    tmux.type("please make it faster")
    tmux.until("nobody has measured it")
    for line in ("/why kernel.py", "/undo", "/budget usd=2 evals=50"):
        tmux.until(PROMPT)
        tmux.type(line)
        time.sleep(1.5)
    return tmux.until(PROMPT)


def claim(tmux: Tmux) -> str:
    """A figure that nobody measured."""
    tmux.start(".", "--model", "fake")
    tmux.until(PROMPT)
    tmux.type("is it fast now?")
    tmux.until("claim check")
    return tmux.until(PROMPT)


def stream(tmux: Tmux) -> str:
    """Ctrl-C in the middle of an answer."""
    tmux.start(".", "--model", "fake")
    tmux.until(PROMPT)
    tmux.type("explain it to me at length")
    tmux.until("first of all")
    time.sleep(1)
    tmux.run("send-keys", "-t", "x", "C-c")
    tmux.until("! interrupted")
    return tmux.until(PROMPT)


def bench(tmux: Tmux) -> str:
    """Ctrl-C in the middle of a benchmark on the CPU."""
    tmux.start(".", "--model", "builtin", "--device", "cpu", "-y")
    tmux.until(PROMPT)
    tmux.type("/bench candidates/other.py")
    tmux.until(r"\.\.\. (checking|studying|setting|first|importing|baseline)")
    time.sleep(2)
    tmux.run("send-keys", "-t", "x", "C-c")
    tmux.until("stopped by the user")
    return tmux.until(PROMPT)


def killed(tmux: Tmux) -> str:
    """kill -9 in the middle of a step; then --resume."""
    tmux.start(".", "--model", "fake", hold_s=300)
    tmux.until(PROMPT)
    tmux.type("measure the kernel")
    tmux.until("measuring kernel.py")
    pid = tmux.run("display-message", "-p", "-t", "x", "#{pane_pid}").strip()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), 9)
    tmux.end()
    time.sleep(0.5)
    tmux.start("--resume")
    tmux.until("for the newest")
    tmux.type("")
    tmux.until("y/N")
    tmux.type("y")
    tmux.until("slower than the baseline")
    return tmux.until(PROMPT)


SCENES: dict[str, tuple[Callable[[Tmux], str], list[Reply | str]]] = {
    "session": (
        session,
        [
            call("read_file", {"path": "kernel.py"}, "I look at the kernel first."),
            call("write_file", {"path": "fast.py", "text": NEW}),
            call("forecast", FASTER),
            call("verify", FASTER),
            call("bench", FASTER),
            ANSWER,
        ],
    ),
    "claim": (claim, ["Certainly: it is 3x faster now."]),
    "stream": (stream, [Reply(text="Well, first of all " + "there is much to say. " * 400, piece_s=0.03)]),
    "bench": (bench, []),
    "killed": (
        killed,
        [call("bench", {"path": "kernel.py"}), "kernel.py is 0.889x, slower than the baseline, as recorded."],
    ),
}


def play(name: str) -> str:
    """One scene, as text."""
    scene, replies = SCENES[name]
    with tempfile.TemporaryDirectory(prefix="tilecast-") as place, FakeOpenAI(replies) as server:
        folder = Path(place) / "kernels"
        shutil.copytree(ROOT / "tests" / "data" / "tiny", folder)
        prices = "[models.fake.price]\ninput = 1.0\noutput = 4.0\n"
        (folder / "scale" / "tilecast.toml").write_text(prices, encoding="utf-8")
        tmux = Tmux(folder / "scale", server.url)
        try:
            seen = scene(tmux)
        finally:
            tmux.end()
        return seen.replace(place, "~")


def main() -> None:
    """Play the scenes and put them between their marks."""
    text = TARGET.read_text(encoding="utf-8")
    for name in sys.argv[1:] or SCENES:
        seen = play(name)
        block = f"<!-- screen {name} -->\n```text\n{seen}\n```\n<!-- end -->"
        text, count = re.subn(rf"<!-- screen {name} -->.*?<!-- end -->", lambda _, b=block: b, text, flags=re.DOTALL)
        assert count == 1, name
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
