"""Parts of bundle tests: a judge that answers at once from a formula, copies of a folder as rsync makes them, runs as processes.

As a program it is the worker with that judge: ``BUNDLE_HOLD_S`` waits in each item.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loop_parts import KNOWN, TINY

from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.harness.bundles import layout, worker

HERE = Path(__file__).parent
DEVICE = {"kind": "cuda", "name": "NVIDIA H200", "compute_capability": "9.0", "uuid": f"GPU-test-{os.getuid()}"}


class FormulaJudge:
    """Answers as the judge does; a candidate's time comes from the hash of its text, the baseline is 1 ms."""

    device = dict(DEVICE)
    hold_s = float(os.environ.get("BUNDLE_HOLD_S", "0"))
    failing: tuple[str, ...] = ()
    asked: list[tuple[str, dict[str, Any]]] = []

    def __init__(self, *args: Any, **more: Any) -> None:
        """As the real one."""

    def request(self, op: str, args: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
        """One answer."""
        if op == "hello":
            return {"device": self.device, "sandbox": {"level": "none, a test"}}
        self.asked.append((op, args))
        time.sleep(self.hold_s)
        if op in self.failing:
            raise EnvironmentFailure("the GPU fell off the bus")
        if op == "preflight":
            return KNOWN.model_dump(mode="json")
        if op == "baselines":
            return {"times_ms": {"eager": 1.0, "compile": 2.0}, "fastest": "eager", "seconds": 0.5, "notes": []}
        return measured(args["candidate"], args["options"])

    def kill(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing runs."""


def measured(candidate: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """A measurement whose figures follow from the candidate's text."""
    ms = 0.5 + int(hashlib.sha256(candidate["source"].encode()).hexdigest()[:4], 16) / 65536
    return {
        "status": "PASSED",
        "reason": "",
        "source_sha256": candidate["sha256"],
        "candidate": candidate["name"],
        "device": "cuda:0",
        "seconds": 0.25,
        "verdict": "faster" if ms < 0.99 else "slower",
        "speedup": {"ratio": 1 / ms, "low": 0.99 / ms, "high": 1.01 / ms},
        "latency_ms": {"candidate": ms, "baseline": 1.0},
        "baseline": "eager" if options["baseline"] == "auto" else options["baseline"],
        "samples": 40,
        "details": {"confirmed": {}} if options.get("confirm") else {},
    }


def copied(source: Path, target: Path) -> Path:
    """As ``rsync -a source/ target``: what is new or changed is copied, nothing is deleted."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    return target


def bundles_of(folder: Path) -> list[Path]:
    """The bundle files, oldest first."""
    return sorted((folder / layout.BUNDLES).glob("*.json"))


def results_of(folder: Path) -> list[Path]:
    """The result files."""
    return sorted((folder / layout.RESULTS).glob("*/*.json"))


def wait_for(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    """Until it holds."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)


STARTED: list[subprocess.Popen[str]] = []
"""Every process begun here, so that a test that fails leaves none behind."""


def alone(folder: Path) -> dict[str, str]:
    """An environment whose temporary folder, and so whose device locks, are this test's: others may hold the machine's for long."""
    place = folder.parent / "tmp"
    place.mkdir(parents=True, exist_ok=True)
    return {**os.environ, "TMPDIR": str(place)}


class OptimizeProcess:
    """``tilecast optimize --json`` in a process of its own, evaluating through a bundle folder."""

    def __init__(self, folder: Path, home: Path, *more: str, problem: Path = TINY) -> None:
        self.folder = folder
        self.environment = {**alone(folder), "TILECAST_HOME": str(home)}
        self._fresh = [str(problem), "--device", f"bundle:{folder}", "--forecaster", "none", "--yes", *more]
        self.process: subprocess.Popen[str] | None = None

    def start(self, resume: str | None = None) -> subprocess.Popen[str]:
        """Begin, or take up."""
        what = self._fresh if resume is None else ["--resume", resume]
        command = [sys.executable, "-c", "from tilecast.agent.cli.app import main; main()", "optimize", *what, "--json"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )
        STARTED.append(self.process)
        return self.process

    def finish(self, code: int = 0, limit_s: float = 90.0) -> tuple[dict[str, Any], str]:
        """The document that it prints, and what it said."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=limit_s)
        assert self.process.returncode == code, err
        return json.loads(out), err


def _as_from_a_terminal() -> None:
    """A shell without job control starts its background jobs with interrupts ignored, and they inherit it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_worker(folder: Path, *more: str, hold_s: float = 0.0) -> subprocess.Popen[str]:
    """The worker with the judge of these tests, as a process."""
    environment = {**alone(folder), "BUNDLE_HOLD_S": str(hold_s)}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "bundle_parts.py"), str(folder), *more]
    STARTED.append(
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            preexec_fn=_as_from_a_terminal,
        )
    )
    return STARTED[-1]


def do_work(folder: Path, *more: str) -> str:
    """Let a worker do all that is there; what it said."""
    out, _ = start_worker(folder, "--once", *more).communicate(timeout=60)
    return out


def main() -> int:
    """The worker with the formula."""
    worker.JudgeProcess = FormulaJudge  # type: ignore[misc,assignment]
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
