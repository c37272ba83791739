"""A long run for tests and benchmarks of the loop itself: a kernel with 32,000 points and a device that is a formula."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilecast.agent.assembly import Parts
from tilecast.agent.budget import Limits
from tilecast.agent.cli.view import PlainView
from tilecast.agent.config import Settings
from tilecast.agent.devices import ChosenDevice
from tilecast.agent.engine import Engine
from tilecast.agent.progress import Finished, Progress
from tilecast.agent.request import OptimizeRequest
from tilecast.sandbox.base import BaselineTimes, DeviceFacts, Estimate, EvaluationOptions, Preflight, ProgressSink
from tilecast.sandbox.problem import Problem, ProblemFacts, TensorFacts, WorkloadFacts, load_problem
from tilecast.sandbox.schema import (
    EvaluationStatus,
    Interval,
    LatencyPair,
    Measurement,
    SpeedOfLight,
    Verdict,
    Verification,
    WorkloadResult,
)
from tilecast.sandbox.source import Candidate, load_candidate
from tilecast.tools.propose.factory import ProposerSources, make_proposer

BLOCKS = [16 * step for step in range(1, 321)]
KERNEL = f"""import torch.nn as nn

CONFIG = {{"block": 64, "warps": 1, "stages": 1, "unroll": 1}}
SPACE = {{"block": {BLOCKS}, "warps": [1, 2, 4, 8, 16], "stages": [1, 2, 3, 4, 5], "unroll": [1, 2, 4, 8]}}


class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
"""
REFERENCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs(n=1024):
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""
VECTOR = TensorFacts(name="x", shape=[1024], dtype="float32")
FACTS = ProblemFacts(
    workloads=[WorkloadFacts(name="full", inputs=[VECTOR], outputs=[VECTOR], min_bytes=8192, flops=0)],
    tolerance=None,
    domain="open",
)
BASELINE_MS = 1.0


def write_problem(folder: Path) -> None:
    """``scale.py`` and ``kernel.py``."""
    (folder / "scale.py").write_text(REFERENCE)
    (folder / "kernel.py").write_text(KERNEL)


def made_up_ms(config: dict[str, Any]) -> float:
    """A smooth law with a little unevenness; nobody measured it."""
    uneven = (config["block"] * 7 + config["warps"] * 13 + config["unroll"] * 29) % 97 / 1e4
    return float(
        0.4 + abs(config["block"] - 2600) / 5000 + abs(config["warps"] - 4) / 50 + config["stages"] / 100 + uneven
    )


class FormulaSandbox:
    """A device whose answers are a formula of CONFIG, at once; one in fifty does not compile."""

    benchmark_verifies = True

    def __init__(self) -> None:
        self.inside_s = 0.0
        self.device = DeviceFacts(kind="replay", name="NVIDIA H200", compute_capability="9.0", recorded=True)

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        """Known."""
        return Preflight(status=EvaluationStatus.PASSED, facts=FACTS)

    def estimate(self, problem: Problem) -> Estimate:
        """Next to nothing."""
        return Estimate(seconds_per_eval=0.001, setup_seconds=0.0, basis="assumed")

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """One."""
        return BaselineTimes(times_ms={"eager": BASELINE_MS}, fastest="eager", recorded=True)

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """Part of the benchmark."""
        raise NotImplementedError

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """By the formula, with as many details as a measurement has."""
        began_s = time.perf_counter()
        try:
            return self._measurement(candidate)
        finally:
            self.inside_s += time.perf_counter() - began_s

    def _measurement(self, candidate: Candidate) -> Measurement:
        config = candidate.config or {}
        base: dict[str, Any] = {
            "source_sha256": candidate.sha256,
            "candidate": candidate.name,
            "device": self.device.name,
            "seconds": 0.001,
            "recorded": True,
            "baseline": "eager",
        }
        if sum(map(int, config.values())) % 50 == 0:
            return Measurement(status=EvaluationStatus.COMPILE_ERROR, reason="the formula refuses it", **base)
        ms = made_up_ms(config)
        ratio = BASELINE_MS / ms
        return Measurement(
            status=EvaluationStatus.PASSED,
            verdict=_verdict(ratio),
            speedup=Interval(ratio=ratio, low=ratio * 0.99, high=ratio * 1.01),
            latency_ms=LatencyPair(candidate=ms, baseline=BASELINE_MS),
            speed_of_light=SpeedOfLight(fraction=0.3 / ms, bound="memory"),
            workloads=[WorkloadResult(name=f"w{n}", status=EvaluationStatus.PASSED, error=1e-6) for n in range(4)],
            details={"samples": {f"figure {n}": [n + ms] * 4 for n in range(24)}, "notes": []},
            **base,
        )

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]:
        """Nothing to lint."""
        return {}

    def interrupt(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is open."""


def _verdict(ratio: float) -> Verdict:
    return "faster" if ratio * 0.99 > 1 else "slower" if ratio * 1.01 < 1 else "same"


@dataclass(frozen=True)
class Mark:
    """When a candidate was judged: seconds of the clock, in the device and of the processor so far, peak memory in KiB so far."""

    at_s: float
    sandbox_s: float
    peak_kib: int
    processor_s: float


def run_of(
    place: Path, count: int, sandbox: FormulaSandbox, note: Callable[[Mark], None], forecaster: str = "none"
) -> Engine:
    """An engine for ``count`` evaluations on the problem in ``place``; the record is in TILECAST_HOME."""
    problem, home = load_problem(place / "scale.py"), Path(os.environ["TILECAST_HOME"])
    start = load_candidate(place / "kernel.py")
    settings = Settings(forecaster=forecaster, model="builtin", device="formula")
    request = OptimizeRequest(problem=problem, start=start, settings=settings, home=home, limits=Limits(evals=count))
    sources = ProposerSources(problem=problem, start=start, models={}, base_url=None, home=home, recorded=None)

    def make(request: OptimizeRequest, known: Preflight | None) -> Parts:
        device = ChosenDevice(sandbox, "device: a formula", "formula")
        return Parts(device, make_proposer("builtin", sources), "builtin", "triton", 1)

    def listen(event: Progress) -> None:
        if isinstance(event, Finished):
            peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            note(Mark(time.perf_counter(), sandbox.inside_s, peak_kib, time.process_time()))

    return Engine(request, [listen, PlainView(open(os.devnull, "w"))], make=make)
