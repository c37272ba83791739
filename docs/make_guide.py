"""Runs every command of docs/guide.md in a clean clone and writes what they print below them.

A block whose first word is ``console`` holds commands (``$ ...``) with their output; a block with ``file=PATH`` is written to that
path in the clone before what follows is run. With ``--check`` nothing is written: every command must exit as printed, and print the
same but for run names, hashes, times of day and seconds; in blocks marked ``measured`` figures are of the machine, so that only
the exit code and the number of lines with a result are compared. Takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
GUIDE = DOCS / "guide.md"
BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
LIMIT_S = 900
MASKS = (
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b"), "RUN"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{12,64}\b|\b[0-9a-f]{7,10}\b(?=[ ,)`]|$)"), "HASH"),
    (re.compile(r"\d+(\.\d+)? (s|seconds|minutes)\b|minutes \d+(\.\d+)?"), "SPENT"),
)


@dataclass(frozen=True)
class Ran:
    """A command with what it printed and how it ended."""

    command: str
    output: str
    code: int

    def text(self) -> str:
        """As the guide shows it."""
        ended = f"(exit code {self.code})\n" if self.code else ""
        return f"$ {self.command}\n{self.output}{ended}"


class Place:
    """A clean clone in a home of its own, as somebody new would have it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tilecast"
        home = folder / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.folder)], check=True)
        kept = {k: os.environ[k] for k in ("LANG", "LD_LIBRARY_PATH") if k in os.environ}
        self.environment = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "PYTHONPATH": str(self.folder / ".types"),
            "COLUMNS": "110",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }
        self._names = ((str(self.folder), "~/tilecast"), (str(home), "~"))

    def write(self, path: str, text: str) -> None:
        """A file of the guide."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run(self, command: str) -> Ran:
        """One command, its two streams as a terminal would mix them."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        output = done.stdout
        for path, name in self._names:
            output = output.replace(path, name)
        output = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
        print(f"[{done.returncode}] {command}", file=sys.stderr)
        return Ran(command, output, done.returncode)


def commands_of(body: str) -> list[str]:
    """The commands of a block; a line that ends in a backslash goes on in the next."""
    joined = re.sub(r"\\\n> ?", "\\\\\n", body)
    found, lines = [], iter(joined.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = f"{command}\n{next(lines)}"
            found.append(command)
    return found


def masked(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, word in MASKS:
        text = pattern.sub(word, text)
    return text


def comparable(text: str, measured: bool) -> list[str]:
    """Lines that must be the same again: of a measured block only commands and exit codes."""
    lines = masked(text).splitlines()
    return [line for line in lines if line.startswith(("$ ", "(exit code"))] if measured else lines


def replayed(guide: str, place: Place) -> tuple[str, list[str]]:
    """The guide with fresh output, and what differs in it from the one given."""
    different: list[str] = []

    def fresh(block: re.Match[str]) -> str:
        words = block["info"].split()
        file = next((word.removeprefix("file=") for word in words if word.startswith("file=")), None)
        if file is not None:
            place.write(file, block["body"])
        if not words or words[0] != "console":
            return block[0]
        body = "".join(place.run(command).text() for command in commands_of(block["body"]))
        before, after = (comparable(text, "measured" in words) for text in (block["body"], body))
        different.extend(f"  was: {a}\n  now: {b}" for a, b in zip(before, after, strict=False) if a != b)
        if len(before) != len(after):
            different.append(f"{len(before)} lines then, {len(after)} now, of: {commands_of(block['body'])}")
        return f"```{block['info']}\n{body}```"

    return BLOCK.sub(fresh, guide), different


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a command no longer does as printed"
    )
    asked = parser.parse_args()
    guide = GUIDE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="tilecast-guide-") as folder:
        text, different = replayed(guide, Place(Path(folder)))
    if not asked.check:
        GUIDE.write_text(text, encoding="utf-8")
        return 0
    for line in different:
        print(line, file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
