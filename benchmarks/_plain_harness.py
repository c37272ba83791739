"""The usual harness: one process a candidate, five correctness trials, a hundred timing runs of candidate and reference.

Run as a child: ``python _plain_harness.py REFERENCE CANDIDATE``; prints one JSON line. It trusts the candidate with
everything; it is here to be compared in speed only.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from types import ModuleType
from typing import Any

import torch

TRIALS, RUNS, WARM_UP = 5, 100, 3


def load(path: str, name: str) -> ModuleType:
    """Import a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def timed(model: Any, inputs: list[Any], device: torch.device) -> float:
    """Median milliseconds of ``RUNS`` calls, the cache flushed before each on a GPU."""
    for _ in range(WARM_UP):
        model(*inputs)
    if device.type != "cuda":
        samples = []
        for _ in range(RUNS):
            start = time.perf_counter()
            model(*inputs)
            samples.append((time.perf_counter() - start) * 1e3)
        return statistics.median(samples)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device=device)
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(RUNS)]
    for start, stop in pairs:
        flush.zero_()
        start.record()
        model(*inputs)
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in pairs)


def main(reference_file: str, candidate_file: str) -> None:
    """Check and time one candidate."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_default_device(device)
    reference, candidate = load(reference_file, "reference"), load(candidate_file, "candidate")
    torch.manual_seed(42)
    arguments = reference.get_init_inputs()
    model = reference.Model(*arguments).to(device)
    new = candidate.ModelNew(*arguments).to(device)
    new.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        for trial in range(TRIALS):
            torch.manual_seed(42 + trial)
            inputs = reference.get_inputs()
            want, got = model(*inputs), new(*inputs)
            right = torch.allclose(want.float(), got.float(), atol=1e-2, rtol=1e-2)
            if not right:
                print(json.dumps({"status": "INCORRECT"}))
                return
        times = {"candidate": timed(new, inputs, device), "baseline": timed(model, inputs, device)}
    print(json.dumps({"status": "PASSED", "latency_ms": times}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
