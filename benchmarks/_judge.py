"""A judge for scripts: started, asked, stopped; and problems and candidates as it takes them, without the host's packages."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _bootstrap import ROOT

from tilecast.sandbox.harness.wire import Channel, WireError


class JudgeSaid(Exception):
    """The judge refused: a problem, an environment that is broken, or a fault of its own."""


class JudgeClient:
    """One judge process; requests block."""

    def __init__(self, device: str, state_dir: Path, quiet: str | None = None, sharers: int = 1) -> None:
        self.channel, theirs = Channel.pair()
        config = {"device": device, "state_dir": str(state_dir), "require_sandbox": False, "quiet": quiet}
        config["sharers"] = sharers
        command = [sys.executable, "-m", "tilecast.sandbox.harness.judge", str(theirs.fileno()), json.dumps(config)]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
        theirs.close()
        first = self.channel.receive(300.0)
        if "fatal" in first:
            raise JudgeSaid(str(first["fatal"]))
        self._number = 0
        self.broken = False

    def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """One operation; progress goes nowhere."""
        self._number += 1
        try:
            self.channel.send({"id": self._number, "op": op, "args": args})
            while True:
                reply = self.channel.receive(1800.0)
                if reply.get("event") != "progress":
                    break
        except WireError as error:
            self.broken = True
            raise JudgeSaid(f"{op}: the judge is gone ({error}, exit status {self.process.poll()})") from error
        if reply.get("ok") is not True:
            raise JudgeSaid(f"{op}: {reply.get('error')}")
        return dict(reply["result"])

    def close(self) -> None:
        """Stop it."""
        self.channel.close()
        try:
            self.process.wait(30.0)
        except subprocess.TimeoutExpired:
            self.process.kill()


@contextmanager
def judge(
    device: str, state_dir: Path | None = None, sharers: int = 1, quiet: str | None = None
) -> Iterator[JudgeClient]:
    """A judge with a state folder that is thrown away unless one is given; ``sharers`` use the device's memory."""
    with tempfile.TemporaryDirectory(prefix="tilecast-state-") as folder:
        client = JudgeClient(device, state_dir or Path(folder), quiet, sharers)
        try:
            yield client
        finally:
            client.close()


def problem_of(folder: Path) -> dict[str, Any]:
    """A problem folder as the judge takes it."""
    return problem_from(folder.name, (folder / "reference.py").read_text(encoding="utf-8"))


def problem_from(name: str, source: str) -> dict[str, Any]:
    """A problem from its text."""
    return {
        "name": name,
        "source": source,
        "sha256": _sha256(source),
        "workloads": None,
        "tolerance": None,
        "domain": None,
    }


def candidate_of(name: str, source: str) -> dict[str, Any]:
    """A candidate from its text."""
    return {"name": name, "source": source, "sha256": _sha256(source)}


def with_overrides(source: str, config: dict[str, Any]) -> str:
    """The text with some CONFIG values changed (CONFIG is read at call time)."""
    return f"{source}\n\nCONFIG.update({config!r})\n" if config else source


def options_for(client: JudgeClient, **given: Any) -> dict[str, Any]:
    """Evaluation options with the data sheet of the client's card."""
    name = str(client.ask("hello", {})["device"]["name"])
    sheets = tomllib.loads((ROOT / "sandbox" / "hardware.toml").read_text(encoding="utf-8"))
    sheet = next((s for s in sheets.values() if any(mark.lower() in name.lower() for mark in s["match"])), None)
    return {"timeout_s": 120.0, "hardware": sheet, **given}


def corpus_rows(folder: Path) -> list[dict[str, Any]]:
    """Lines of a recorded problem's measurements."""
    text = (folder / "measurements.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
