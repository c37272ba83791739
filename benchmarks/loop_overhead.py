"""What the loop adds per candidate (everything but compile and measure), in ms, and peak memory, at 100 and at 10,000 candidates.

Each run is a process of its own: the whole loop with its durable record, on a made-up kernel whose SPACE has 10,000 points, all
of them recorded, so that an evaluation is a look-up (timed apart and taken off). No torch is imported.

    python benchmarks/loop_overhead.py [--counts 100 10000] [--out FOLDER]
"""

from __future__ import annotations

import _bootstrap  # isort: skip

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
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
from tilecast.sandbox.base import EvaluationOptions, Preflight, ProgressSink
from tilecast.sandbox.problem import Problem, ProblemFacts, TensorFacts, WorkloadFacts, load_problem
from tilecast.sandbox.replay import ReplaySandbox, recorded_candidates
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification
from tilecast.sandbox.source import Candidate, load_candidate
from tilecast.tools.forecast.factory import make_forecaster
from tilecast.tools.propose.factory import ProposerSources, make_proposer

KERNEL = """import torch.nn as nn

CONFIG = {"block": 64, "warps": 1, "stages": 1, "unroll": 1}
SPACE = {"block": BLOCKS, "warps": [1, 2, 4, 8, 16], "stages": [1, 2, 3, 4, 5], "unroll": [1, 2, 4, 8]}


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
BLOCKS = [16 * step for step in range(1, 101)]
VECTOR = TensorFacts(name="x", shape=[1024], dtype="float32")
FACTS = ProblemFacts(
    workloads=[WorkloadFacts(name="full", inputs=[VECTOR], outputs=[VECTOR], min_bytes=8192, flops=0)],
    tolerance=None,
    domain="open",
)


def make_corpus(folder: Path) -> Path:
    """A recorded problem with every point of the space; times from a smooth made-up law, stated as such in corpus.toml."""
    problem = folder / "corpus" / "scale"
    (problem / "candidates").mkdir(parents=True)
    (problem / "reference.py").write_text(REFERENCE)
    text = KERNEL.replace("BLOCKS", repr(BLOCKS))
    for place in (problem / "kernel.py", problem / "candidates" / "kernel.py"):
        place.write_text(text)
    about = "made up for a benchmark of the loop; no figure here was ever measured"
    (folder / "corpus" / "corpus.toml").write_text(
        f'gpu = "NVIDIA H200"\ncompute_capability = "9.0"\nmeasured = "{about}"\n'
    )
    base = {"config": {}, "status": "BASELINE", "p10": 0.99, "p90": 1.01}
    rows: list[dict[str, Any]] = [{"candidate": "__ref__", "ms": 1.0, **base}]
    for number in range(len(BLOCKS) * 100):
        rest, config = number, {}
        for name, values in (
            ("unroll", [1, 2, 4, 8]),
            ("stages", [1, 2, 3, 4, 5]),
            ("warps", [1, 2, 4, 8, 16]),
            ("block", BLOCKS),
        ):
            rest, place = divmod(rest, len(values))
            config[name] = values[place]
        ms = (
            0.4
            + abs(config["block"] - 1000) / 2000
            + abs(config["warps"] - 4) / 50
            + config["stages"] / 100
            + (number % 97) / 1e4
        )
        rows.append(
            {
                "candidate": "kernel",
                "config": config,
                "status": "PASSED",
                "ms": ms,
                "p10": ms * 0.995,
                "p90": ms * 1.005,
                "seconds": 0.001,
            }
        )
    (problem / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return problem


class TimedReplay(ReplaySandbox):
    """Counts the seconds inside it, which are not the loop's."""

    inside_s = 0.0

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """As recorded, timed."""
        began_s = time.perf_counter()
        try:
            return super().verify(problem, candidate, options, progress)
        finally:
            self.inside_s += time.perf_counter() - began_s

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """As recorded, timed (what it calls of itself is not counted twice)."""
        before_s, began_s = self.inside_s, time.perf_counter()
        try:
            return super().benchmark(problem, candidate, options, progress)
        finally:
            self.inside_s = before_s + time.perf_counter() - began_s


@dataclass
class Marks:
    """When each candidate was judged, and the seconds spent in the sandbox until then."""

    sandbox: TimedReplay
    at: list[tuple[float, float]] = field(default_factory=list)

    def __call__(self, event: Progress) -> None:
        """A listener."""
        if isinstance(event, Finished):
            self.at.append((time.perf_counter(), self.sandbox.inside_s))


def one_run(corpus: Path, count: int, model: str, forecaster: str) -> dict[str, Any]:
    """One run of ``count`` evaluations in this process."""
    problem, home = load_problem(corpus), Path(os.environ["TILECAST_HOME"])
    known = Preflight(status=EvaluationStatus.PASSED, facts=FACTS)
    sandbox = TimedReplay(corpus, lambda problem, progress: known)
    start = load_candidate(corpus / "kernel.py")
    settings = Settings(forecaster=forecaster, model=model, device=f"replay:{corpus}")
    request = OptimizeRequest(problem=problem, start=start, settings=settings, home=home, limits=Limits(evals=count))
    sources = ProposerSources(problem=problem, start=start, models={}, base_url=None, home=home, recorded=str(corpus))
    device = ChosenDevice(sandbox, "", f"replay:{corpus}")

    def make(request: OptimizeRequest, known: Preflight | None) -> Parts:
        return Parts(device, make_proposer(model, sources), model, "triton", 1, make_forecaster(forecaster))

    marks = Marks(sandbox)
    # All recorded variants are read and keyed before: that is the record's cost, not the loop's.
    for candidate, _ in recorded_candidates(corpus, problem):
        sandbox.record_of(problem).find(candidate)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.perf_counter()
    with open(os.devnull, "w") as null:
        result = Engine(request, [marks, PlainView(null)], make=make).run()
    total_s = time.perf_counter() - began_s
    tail = marks.at[-max(2, len(marks.at) // 10) :]
    (first, last) = tail[0], tail[-1]
    last_tenth_s = (last[0] - first[0]) - (last[1] - first[1])
    return {
        "candidates": len(marks.at),
        "evals": result.ledger.evals.spent,
        "proposer": model.split(":")[0],
        "forecaster": forecaster,
        "loop_ms_per_candidate": round((total_s - sandbox.inside_s) / len(marks.at) * 1e3, 3),
        "loop_ms_per_candidate_last_tenth": round(last_tenth_s / (len(tail) - 1) * 1e3, 3),
        "replay_ms_per_candidate": round(sandbox.inside_s / len(marks.at) * 1e3, 3),
        "seconds": round(total_s, 2),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "rss_before_run_mib": round(before_kib / 1024, 1),
        "record_mib": round(sum(f.stat().st_size for f in home.rglob("record.sqlite*")) / 2**20, 1),
    }


def main() -> None:
    """All runs, one process each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--kinds", nargs="+", default=["builtin/none", "replay/none"])
    parser.add_argument("--out", type=Path, default=_bootstrap.ROOT / "benchmarks" / "results")
    parser.add_argument("--one", nargs=4, metavar=("CORPUS", "COUNT", "MODEL", "FORECASTER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one_run(Path(given.one[0]), int(given.one[1]), given.one[2], given.one[3])))
        return
    runs = []
    with tempfile.TemporaryDirectory() as place:
        corpus = make_corpus(Path(place))
        for kind in given.kinds:
            model, _, forecaster = kind.partition("/")
            for count in given.counts:
                spec = f"replay:{corpus}" if model == "replay" else model
                environment = {**os.environ, "TILECAST_HOME": f"{place}/home-{kind.replace('/', '-')}-{count}"}
                command = [sys.executable, __file__, "--one", str(corpus), str(count), spec, forecaster]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(done.stderr)
                runs.append(json.loads(done.stdout))
                print(json.dumps(runs[-1]), flush=True)
    document = {**_bootstrap.header("loop_overhead"), "runs": runs}
    (given.out / "loop_overhead.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
