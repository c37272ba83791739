"""How often the comparison errs, finds a difference, and what it costs, on a simulated device whose truth is known.

    python benchmarks/timing_simulation.py --runs 1000

Needs numpy only; no worker and no GPU takes part.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
from _bootstrap import header, parser, write

from tilecast.sandbox.harness.judge.timing.sampling import Sampler, SamplingPlan
from tilecast.sandbox.harness.judge.timing.simulation import SimulatedDevice
from tilecast.sandbox.harness.judge.timing.statistics import Design

HARD = {"drift_per_s": 0.03, "spike_share": 0.2}

CASES: dict[str, dict[str, float]] = {
    "A/A 20 us": {"baseline_ms": 0.02, **HARD},
    "A/A 200 us": {"baseline_ms": 0.2, **HARD},
    "A/A 2 ms": {"baseline_ms": 2.0, **HARD},
    "A/A 1 ms, 5 % noise a call": {"baseline_ms": 1.0, "noise": 0.05, **HARD},
    "A/A 1.5 s, few calls fit": {"baseline_ms": 1500.0, **HARD},
    "1 ms, 3 % faster": {"baseline_ms": 1.0, "ratio": 1.03, **HARD},
    "1 ms, 3 % slower, 2 % noise": {"baseline_ms": 1.0, "ratio": 1 / 1.03, "noise": 0.02, **HARD},
    "1 ms, 3 % faster, 5 % noise": {"baseline_ms": 1.0, "ratio": 1.03, "noise": 0.05, **HARD},
    "1 ms, 2x slower": {"baseline_ms": 1.0, "ratio": 0.5, **HARD},
    "1 ms, 9 % slower, 5 % noise": {"baseline_ms": 1.0, "ratio": 0.91, "noise": 0.05, **HARD},
    "1 ms, 2x faster": {"baseline_ms": 1.0, "ratio": 2.0, **HARD},
    "1 ms, 3 % faster, quiet": {"baseline_ms": 1.0, "ratio": 1.03, "noise": 0.004},
    "A/A 200 us, quiet": {"baseline_ms": 0.2, "noise": 0.004},
}


def study(device: dict[str, float], runs: int) -> dict[str, Any]:
    """Verdicts, coverage and cost of ``runs`` comparisons."""
    verdicts: Counter[str] = Counter()
    samples, seconds, widths, missed = [], [], [], 0
    started = time.perf_counter()
    for seed in range(runs):
        source = SimulatedDevice(seed=seed, **device)  # type: ignore[arg-type]
        result = Sampler(source, SamplingPlan(), Design()).run()
        verdicts[result.estimate.verdict] += 1
        samples.append(result.samples)
        seconds.append(result.seconds)
        widths.append(result.estimate.high / result.estimate.low - 1)
        missed += not result.estimate.low <= device.get("ratio", 1.0) <= result.estimate.high
    return {
        "device": device,
        "runs": runs,
        "verdicts": dict(verdicts),
        "interval_missed_the_truth": missed,
        "samples": {"median": float(np.median(samples)), "p90": float(np.quantile(samples, 0.9))},
        "seconds": {"median": round(float(np.median(seconds)), 4), "p90": round(float(np.quantile(seconds, 0.9)), 4)},
        "interval_width_median": round(float(np.median(widths)), 5),
        "host_ms_a_comparison": round((time.perf_counter() - started) / runs * 1e3, 2),
    }


def main() -> None:
    """Run all cases."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=200)
    options = arguments.parse_args()
    design, plan = Design(), SamplingPlan()
    document = header("timing_simulation") | {
        "design": vars(design),
        "plan": vars(plan),
        "cases": {name: study(device, options.runs) for name, device in CASES.items()},
    }
    write(options.out, "timing_simulation", document)


if __name__ == "__main__":
    main()
