"""A against A, and a true 3 %: how often real workers on a real device are called different, and what a comparison costs.

    python benchmarks/aa_gpu.py --runs 200

Kernels of about 20 us, 200 us and 2 ms on a large GPU are compared with themselves, and one of 1 ms with one that does 3 %
more work. Every few comparisons the candidate gets a fresh process, so that what differs between processes (placement in
memory) counts. On a CPU (``--device cpu``) sleeping kernels stand in.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _bootstrap import device_name, header, parser, write
from _judge import problem_from

from tilecast.sandbox.harness.judge.case import CaseBuilder
from tilecast.sandbox.harness.judge.failure import WorkerFailed
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.timing.bench import Benchmark, BenchOptions
from tilecast.sandbox.harness.judge.timing.place import Place
from tilecast.sandbox.harness.judge.zygotes import Zygotes

PROBLEM = """
import torch
import torch.nn as nn

DOMAIN = "declared"
TOLERANCE = 1e-3


class Model(nn.Module):
    def forward(self, x):
        return x * 0.999**{steps} + (1 - 0.999**{steps})


def get_inputs():
    return [torch.randn({size})]


def get_init_inputs():
    return []
"""

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relax(x_ptr, y_ptr, n, STEPS: tl.constexpr, EXTRA: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = x
    for _ in range(STEPS):
        y = y * 0.999 + 0.001
    z = x
    for _ in range(EXTRA):
        z = z * 0.998 + 0.002
    # z stays finite, so that this keeps the extra steps alive and changes nothing.
    tl.store(y_ptr + offsets, tl.where(z == z + 1.0e30, z, y), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relax[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), STEPS={steps}, EXTRA={extra}, BLOCK=1024)
        return y
"""

SLEEPER = """
import time
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep({seconds})
        return x * 0.999**{steps} + (1 - 0.999**{steps})
"""

GPU_CASES = {
    "A/A 20 us": {"size": 10 << 20, "steps": 1, "extra": 0},
    "A/A 200 us": {"size": 105 << 20, "steps": 1, "extra": 0},
    "A/A 2 ms": {"size": 32 << 20, "steps": 1800, "extra": 0},
    "1 ms, 3 % more work": {"size": 32 << 20, "steps": 900, "extra": 27},
}
CPU_CASES = {
    "A/A 1 ms": {"size": 4096, "steps": 1, "sleep": 0.001, "more": 1.0},
    "A/A 5 ms": {"size": 4096, "steps": 1, "sleep": 0.005, "more": 1.0},
    "5 ms, 3 % more work": {"size": 4096, "steps": 1, "sleep": 0.005, "more": 1.03},
}


class Pairs:
    """Comparisons of one case: the plain kernel as the baseline file, the same or a slower one as the candidate."""

    def __init__(self, zygotes: Zygotes, device: torch.device, case: dict[str, Any], state: Path) -> None:
        problem = problem_from("relax", PROBLEM.format(**case))
        self.zygotes, self.device = zygotes, device
        self.reference = Reference.open(zygotes, problem, device)
        builder = CaseBuilder(self.reference)
        self.case = builder.build("full")
        self.benchmark = Benchmark(Place(zygotes, device, state), problem, builder, self.case, lambda text: None)
        if device.type == "cuda":
            self.plain = KERNEL.format(**{**case, "extra": 0})
            self.candidate = KERNEL.format(**case)
        else:
            self.plain = SLEEPER.format(seconds=case["sleep"], **case)
            self.candidate = SLEEPER.format(seconds=case["sleep"] * case["more"], **case)

    def open(self) -> Session:
        """A fresh candidate process, loaded and called once (compiled)."""
        session = Session.open(self.zygotes, SessionOptions(self.device, timeout_s=600.0))
        session.load(self.candidate)
        session.construct("ModelNew", self.case.arguments, seed=0)
        session.call(session.prepare(self.benchmark.contents.draw(1)[0].inputs, self.case.specs))
        return session

    def close(self) -> None:
        """End all workers of the case."""
        self.benchmark.close()
        self.reference.close()


def run_case(pairs: Pairs, runs: int, per_process: int, deadline: float) -> dict[str, Any]:
    """Up to ``runs`` comparisons."""
    options = BenchOptions(baseline_source=pairs.plain, max_seconds=10.0)
    verdicts: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    session: Session | None = None
    for number in range(runs):
        if time.perf_counter() > deadline:
            break
        if session is None or number % per_process == 0:
            if session is not None:
                session.close()
            session = pairs.open()
        begun = time.perf_counter()
        try:
            answer = pairs.benchmark.measure(session, options)
        except WorkerFailed as error:
            failures.append(error.failure.reason[:300])
            session.close()
            session = None
            continue
        verdicts[answer["verdict"]] += 1
        rows.append({**_row(answer), "seconds": time.perf_counter() - begun})
    if session is not None:
        session.close()
    return summarise(verdicts, rows, failures)


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    details = answer["details"]
    return {
        "ratio": answer["speedup"]["ratio"],
        "width": answer["speedup"]["high"] / answer["speedup"]["low"] - 1,
        "ms": answer["latency_ms"]["candidate"],
        "samples": answer["samples"],
        "sampling_seconds": details["sampling_seconds"],
        "clocks": details["clocks"],
        "empty_call_ms": details["empty_call_ms"],
        "end_marker": details["end_marker"],
        "discarded": details["discarded"],
        "window": details["window"],
    }


def summarise(verdicts: Counter[str], rows: list[dict[str, Any]], failures: list[str]) -> dict[str, Any]:
    """Verdicts, and medians of what a comparison took."""
    if not rows:
        return {"comparisons": 0, "failures": failures[:5]}

    def median(name: str) -> float:
        return float(np.median([row[name] for row in rows]))

    ratios = [row["ratio"] for row in rows]
    return {
        "comparisons": len(rows),
        "verdicts": dict(verdicts),
        "median_ms": median("ms"),
        "ratio": {"median": float(np.median(ratios)), "low": min(ratios), "high": max(ratios)},
        "interval_width_median": median("width"),
        "samples_median": median("samples"),
        "sampling_seconds_median": median("sampling_seconds"),
        "seconds_median": round(median("seconds"), 3),
        "empty_call_ms": rows[-1]["empty_call_ms"],
        "end_marker": rows[-1]["end_marker"],
        "last_clocks": rows[-1]["clocks"],
        "last_window": rows[-1]["window"],
        "discarded": [row["discarded"] for row in rows if row["discarded"]][:5],
        "failures": failures[:5],
        "failed": len(failures),
    }


def main() -> None:
    """Run all cases; results are written after each."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=200)
    arguments.add_argument("--per-process", type=int, default=10)
    arguments.add_argument("--only", default="", help="a part of a case's name")
    arguments.add_argument("--stop-after", type=float, default=560.0, help="seconds in all")
    options = arguments.parse_args()
    device = torch.device(device_name(options.device))
    torch.set_grad_enabled(False)
    cases = {n: c for n, c in (GPU_CASES if device.type == "cuda" else CPU_CASES).items() if options.only in n}
    zygotes, deadline = Zygotes(), time.perf_counter() + options.stop_after
    zygotes.start()
    document: dict[str, Any] = header(f"aa_{device.type}") | {"cases": {}}
    try:
        for index, (name, case) in enumerate(cases.items()):
            left = deadline - time.perf_counter()
            pairs = Pairs(zygotes, device, case, options.out / "state")
            document["cases"][name] = run_case(
                pairs, options.runs, options.per_process, time.perf_counter() + left / (len(cases) - index)
            )
            pairs.close()
            print(f"{name}: done", file=sys.stderr, flush=True)
            write(options.out, f"aa_{device.type}", document)
    finally:
        zygotes.close()


if __name__ == "__main__":
    main()
