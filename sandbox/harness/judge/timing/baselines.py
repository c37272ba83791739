"""What a candidate is compared with: the reference run eagerly, compiled, compiled with autotuning, or a file the user names.

Each baseline runs in a worker of its own, which stays alive from candidate to candidate and never sees one. Compiled code is
kept in the state folder by problem, device and versions, and so are the times that decide which baseline is the fastest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.failure import EnvironmentBroken, ProblemRefused, WorkerFailed
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.timing.contents import CaseContents
from tilecast.sandbox.harness.judge.timing.workers import TimedWorker
from tilecast.sandbox.harness.judge.zygotes import Zygotes

EAGER, COMPILE, AUTOTUNE, FILE = "eager", "compile", "max-autotune", "file"
MODES = {COMPILE: "default", AUTOTUNE: "max-autotune-no-cudagraphs"}
COMPILE_LIMIT_S = {"cuda": 300.0, "cpu": 60.0}
LEGS, CALLS = 5, 5
VERSION = 1
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Ranking:
    """Median milliseconds of each baseline that could be measured, in one window, and what it took."""

    times_ms: dict[str, float]
    fastest: str
    seconds: float
    notes: list[str] = field(default_factory=list)
    cached: bool = False


@dataclass(frozen=True)
class Bench:
    """What baselines need: where workers come from, which problem, and where things may be kept."""

    zygotes: Zygotes
    problem: dict[str, Any]
    case: WorkloadCase
    device: torch.device
    device_key: str
    state_dir: Path | None
    flush_bytes: int = 0
    cpus: tuple[int, ...] = ()

    def key(self, what: str) -> str:
        """Identity of a baseline: everything that may change its time."""
        parts = [
            self.problem["sha256"],
            self.problem.get("workloads"),
            self.case.name,
            self.device_key,
            torch.__version__,
        ]
        text = json.dumps([VERSION, *parts, what], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def folder(self, what: str) -> str | None:
        """A folder that workers of this baseline may keep compiled code in."""
        if self.state_dir is None:
            return None
        path = self.state_dir / "baselines" / self.key(what)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        return str(path)


def available(device: torch.device) -> tuple[list[str], list[str]]:
    """Baselines worth trying on a device, and notes about those that are not."""
    if device.type == "cuda":
        return [EAGER, COMPILE, AUTOTUNE], []
    if any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        return [EAGER, COMPILE], []
    return [EAGER], ["torch.compile was left out: there is no C++ compiler on this machine"]


def open_baseline(bench: Bench, name: str, source: str | None = None) -> TimedWorker:
    """Start a worker with this baseline, constructed with the case's parameters, compiled where it is to be.

    Raises:
        WorkerFailed: if it fails or takes longer than :data:`COMPILE_LIMIT_S`.
        EnvironmentBroken: if no worker can be started.
    """
    limit_s = COMPILE_LIMIT_S[bench.device.type]
    options = SessionOptions(
        bench.device,
        timeout_s=None,
        request_timeout_s=limit_s,
        cache=bench.folder(name),
        shared_bytes=8 << 30,
        whose=f"baseline {name!r}",
    )
    session = Session.open(bench.zygotes, options)
    try:
        text = bench.problem["source"] if source is None else source
        session.load(str(text), "baseline")
        session.construct("Model" if source is None else "ModelNew", bench.case.arguments, seed=0)
        if bench.case.state:
            session.set_parameters(bench.case.state)
        if name in MODES:
            session.request({"op": "compile", "mode": MODES[name]}, "compilation")
        if bench.cpus:
            session.request({"op": "pin", "cpus": list(bench.cpus)}, "pinning")
        return TimedWorker(session, bench.case.specs)
    except (WorkerFailed, EnvironmentBroken):
        session.close()
        raise


class Baselines:
    """The live baseline workers of one problem on one device."""

    def __init__(self, bench: Bench, contents: CaseContents, progress: Progress) -> None:
        self.bench, self.contents, self.progress = bench, contents, progress
        self._workers: dict[str, TimedWorker] = {}
        self._ranking: Ranking | None = None

    def worker(self, name: str, source: str | None = None) -> TimedWorker:
        """The worker of a baseline, started and warmed up if it is not there.

        Raises:
            ProblemRefused: if the baseline does not run.
        """
        key = name if source is None else f"{FILE}-{hashlib.sha256(source.encode()).hexdigest()[:16]}"
        found = self._workers.get(key)
        if found is not None and found.session.alive:
            return found
        try:
            opened = open_baseline(self.bench, name, source)
            opened.leg(self.contents.draw(1), "cold", self.bench.flush_bytes)
        except WorkerFailed as error:
            status = "OUT_OF_MEMORY" if error.failure.status == "OUT_OF_MEMORY" else "INVALID_REFERENCE"
            raise ProblemRefused(status, f"baseline {name!r} does not run: {error.failure.reason}") from error
        self._workers[key] = opened
        return opened

    def ranking(self) -> Ranking:
        """Times of all baselines and the fastest, from the state folder where they were measured before."""
        if self._ranking is None:
            self._ranking = self._cached() or self._measure()
        return self._ranking

    def _measure(self) -> Ranking:
        start = time.perf_counter()
        names, notes = available(self.bench.device)
        workers: dict[str, TimedWorker] = {}
        for name in names:
            self.progress(f"baseline {name}: preparing")
            try:
                workers[name] = self.worker(name)
            except ProblemRefused as error:
                if name == EAGER:
                    raise
                notes.append(error.reason[:300])
        times = self.time_alone(workers)
        ranking = Ranking(times, min(times, key=lambda name: times[name]), time.perf_counter() - start, notes)
        self._store(ranking)
        self._close_but({ranking.fastest, EAGER})
        return ranking

    def time_alone(self, workers: dict[str, TimedWorker]) -> dict[str, float]:
        """Interleaved legs of all of them: medians of one window."""
        samples: dict[str, list[float]] = {name: [] for name in workers}
        for _ in range(LEGS):
            for name, worker in workers.items():
                run = worker.leg(self.contents.draw(CALLS), "cold", self.bench.flush_bytes, read=False)
                samples[name].append(float(np.median(run.inner_ms)))
        return {name: float(np.median(values)) for name, values in samples.items()}

    def _close_but(self, names: set[str]) -> None:
        for name in [n for n in self._workers if n not in names and not n.startswith(FILE)]:
            self._workers.pop(name).session.close()

    def trim(self) -> None:
        """Give the memory of all pools back; the workers stay."""
        for worker in self._workers.values():
            if worker.session.alive:
                worker.drop_pool()
                with contextlib.suppress(WorkerFailed):  # it is dead then, and replaced when it is needed
                    worker.session.memory.trim()

    def _file(self) -> Path | None:
        folder = self.bench.state_dir
        return None if folder is None else folder / "baselines" / f"{self.bench.key('ranking')}.json"

    def _cached(self) -> Ranking | None:
        file = self._file()
        if file is None or not file.is_file():
            return None
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(file.read_text(encoding="utf-8"))
            times = {str(name): float(ms) for name, ms in found["times_ms"].items()}
            return Ranking(times, str(found["fastest"]), 0.0, [*found["notes"], "measured before, kept"], cached=True)
        return None

    def _store(self, ranking: Ranking) -> None:
        file = self._file()
        if file is not None:
            with contextlib.suppress(OSError):
                partial = file.with_suffix(f".{os.getpid()}.tmp")
                file.parent.mkdir(parents=True, exist_ok=True)
                partial.write_text(json.dumps(asdict(ranking)), encoding="utf-8")
                partial.replace(file)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.session.close()
        self._workers.clear()
