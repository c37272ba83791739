"""A finalist's second examination: timed in a fresh process with other call counts, soaked, run under compute-sanitizer."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilecast.sandbox.harness.judge.changes import ALIGNED_BYTES
from tilecast.sandbox.harness.judge.failure import WorkerFailed
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.timing.closeness import difference
from tilecast.sandbox.harness.judge.timing.tools import REPORT, SHOWN_CHARS, Report, ToolFailed, find_tool, run_tool
from tilecast.sandbox.harness.judge.timing.workers import TimedWorker

if TYPE_CHECKING:
    from tilecast.sandbox.harness.judge.timing.bench import Benchmark, BenchOptions

SOAK_CALLS = 100
SOAK_LEG = 10
ALIGNMENT_BYTES, LARGEST_SHIFT = 16, 31
"""Inputs start at a random multiple of 16 bytes, up to 496: vectorised loads of an honest kernel stay aligned. (Where the
reference draws random numbers at one of 256 bytes: how many elements an address lets torch read at once decides who gets which.)
"""
CONTRADICTION = 1.25
"""Two comparisons of the same kernel in two processes whose ratios differ by more than this were not of the same kernel."""
SANITIZER_LIMIT_S = 120.0
PADDING_BYTES = 1 << 20
"""Behind every allocation under the sanitizer: buffers may lie back to back, and a read past the end of one is then in the next."""


def confirm(
    bench: Benchmark, session: Session, source: str, options: BenchOptions, first: dict[str, Any]
) -> dict[str, Any]:
    """Examine a finalist in a fresh session (loaded and constructed).

    Returns:
        The second ratio, how many calls were soaked, what the sanitizer said, and ``contradicts`` where the second
        comparison does not agree with the first.

    Raises:
        WorkerFailed: as timing does; a wrong output in the soak counts as one.
    """
    name = str(first["baseline"])
    again = replace(options, max_seconds=options.max_seconds / 2)
    second = bench.measure_again(session, again, name, extra_calls=1 + secrets.randbelow(4))
    ratios = float(first["speedup"]["ratio"]), second.sampled.estimate.ratio
    soaked = soak(bench, session)
    report: dict[str, Any] = {
        "speedup": {"ratio": ratios[1], "low": second.sampled.estimate.low, "high": second.sampled.estimate.high},
        "calls_per_leg": second.sampled.calls_per_leg,
        "samples": second.sampled.samples,
        "soaked_calls": soaked,
        "sanitizer": sanitize(bench, source),
    }
    apart = math.exp(abs(math.log(ratios[0] / ratios[1])))
    overlap = (
        first["speedup"]["low"] <= second.sampled.estimate.high
        and second.sampled.estimate.low <= first["speedup"]["high"]
    )
    if apart > CONTRADICTION and not overlap:
        report["contradicts"] = f"speedup {ratios[0]:.4g} before, {ratios[1]:.4g} now"
    return report


def soak(bench: Benchmark, session: Session) -> int:
    """A hundred calls on fresh inputs at shifted addresses, every output checked.

    Raises:
        WorkerFailed: with the strict rule's reason if an output is wrong.
    """
    worker = TimedWorker(session, bench.case.specs)
    reference = bench.baselines.worker("eager")
    legs = SOAK_CALLS // SOAK_LEG
    step = ALIGNED_BYTES if bench.case.contract.consumes_rng else ALIGNMENT_BYTES
    for _ in range(legs):
        bench.start_alike(worker, reference)
        contents = bench.contents.draw(SOAK_LEG)
        expected = reference.leg(contents, "cold", 0)
        worker.shift(contents, [step * secrets.randbelow(LARGEST_SHIFT + 1) for _ in contents])
        run = worker.leg(contents, "cold", 0)
        for content, want, got in zip(contents, expected.outputs, run.outputs, strict=True):
            known = [item for item in want if item is not None]
            if difference(known, got, bench.contents.tolerances):
                failure = bench.contents.strict(content, got)
                if failure is not None:
                    raise WorkerFailed(failure)
    worker.drop_pool()
    return legs * SOAK_LEG


def sanitize(bench: Benchmark, source: str) -> dict[str, Any]:
    """Errors that compute-sanitizer's memory check finds in a few calls; ``ran`` is False with the reason where it cannot."""
    device = bench.place.device
    tool = find_tool("compute-sanitizer")
    if device.type != "cuda" or tool is None:
        return {
            "ran": False,
            "why": "no CUDA device" if device.type != "cuda" else "compute-sanitizer is not installed",
        }
    # Without torch's cache of memory each tensor is an allocation of its own, whose end the tool knows; but a graph cannot be
    # captured without it. Libraries ask the driver for what it may not have: such answers are no errors of the candidate's.
    checker = [tool, "--tool", "memcheck", "--report-api-errors", "no", "--padding", str(PADDING_BYTES)]
    checker += ["--log-file", "{cache}/" + REPORT]
    inputs = bench.contents.draw(1)[0].inputs
    found: dict[str, Any] = {}
    for variables in (["PYTORCH_NO_CUDA_MEMORY_CACHING=1"], []):
        program = ["/usr/bin/env", *variables, *checker]
        try:
            report = run_tool(
                bench.place.zygotes, program, bench.case, source, inputs, device=str(device), limit_s=SANITIZER_LIMIT_S
            )
        except ToolFailed as error:
            return {"ran": False, "why": str(error)[:300]}
        found = sanitizer_report(report)
        if found["ran"]:
            return found if variables else {**found, "note": "tensors shared allocations: less is seen"}
    return found


def sanitizer_report(report: Report) -> dict[str, Any]:
    """Its findings; of a program that did not make all its calls an empty list says nothing."""
    found = sanitizer_summary(report.text)
    if found["ran"] and (report.finished or found["errors"]):
        return found
    why = found.get("why", "the candidate did not make all its calls under it")
    return {"ran": False, "why": f"{why} {report.log[-SHOWN_CHARS:]}".strip()}


def warnings(report: dict[str, Any]) -> list[str]:
    """What a user has to know of the sanitizer's findings, if there are any: they refuse nobody, see ``docs/timing.md``."""
    found = report["sanitizer"]
    if not found.get("errors"):
        return []
    first = f", the first: {found['first'][0]}" if found.get("first") else ""
    return [f"compute-sanitizer found {found['errors']} memory errors in its calls{first}"]


def sanitizer_summary(text: str) -> dict[str, Any]:
    """Count and first lines of errors in a report of compute-sanitizer."""
    lines = [line.removeprefix("=========").strip() for line in text.splitlines()]
    summary = next((line for line in lines if line.startswith("ERROR SUMMARY:")), None)
    if summary is None:
        return {"ran": False, "why": f"its report has no summary: {' '.join(lines)[-200:]}"}
    count = int("".join(c for c in summary.split(":", 1)[1].split("error", 1)[0] if c.isdigit()) or 0)
    shown = [line for line in lines if line.startswith(("Invalid", "Misaligned", "Program hit", "Race"))]
    return {"ran": True, "errors": count, "first": shown[:3]}
