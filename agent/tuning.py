"""`tune`: the best CONFIG of one kernel, by the same engine: `builtin` proposes, the forecaster ranks, the budget measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import Listener
from tilecast.agent.request import OptimizeRequest
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import OptimizeResult
from tilecast.sandbox.source import Candidate

Drive = Callable[[Engine], OptimizeResult]
"""Runs an engine, with whatever handles interrupts around it."""
SMALL = "small"


@dataclass(frozen=True)
class Tuned:
    """The answer for one workload."""

    workload: str
    result: OptimizeResult
    config: dict[str, Any] | None
    start_ms: float | None
    """Time of the kernel as it was given, where it was measured."""
    start_ratio: float | None
    """Its speedup over the baseline."""

    @property
    def gain(self) -> float | None:
        """Time as given over time as tuned; None where either is unknown.

        Both were measured against the same baseline, each in its own window: times of two windows cannot be compared on
        a busy machine, their ratios to the baseline can.
        """
        best = self.result.best
        return None if best is None or not self.start_ratio else best.speedup.ratio / self.start_ratio


def space_size(kernel: Candidate) -> int:
    """Number of points in the kernel's SPACE.

    Raises:
        UsageError: if it has no CONFIG or no SPACE to tune.
    """
    if kernel.config is None or not kernel.space:
        missing = "CONFIG" if kernel.config is None else "SPACE"
        raise UsageError(
            f"{kernel.name}: no module-level {missing} dict literal to tune; for instance "
            'CONFIG = {"BLOCK": 128, "num_warps": 4} and SPACE = {"BLOCK": [64, 128], "num_warps": [2, 4, 8]}'
        )
    return prod(max(1, len(values)) for values in kernel.space.values())


def tune(request: OptimizeRequest, workloads: list[str], listeners: list[Listener], drive: Drive) -> Iterator[Tuned]:
    """One run a workload, each with an equal share of the evaluations.

    Raises:
        UsageError: for a kernel without SPACE, a workload that is not there, or more workloads than evaluations.
    """
    assert request.start is not None
    space_size(request.start)
    evals = request.limits.evals
    if evals is not None and evals < len(workloads):
        raise UsageError(f"--max-evals {evals:g} for {len(workloads)} workloads: each needs at least one")
    share = replace(request.limits, evals=None if evals is None else evals // len(workloads))
    for workload in workloads:
        options = request.options.model_copy(update={"workload": workload})
        engine = Engine(replace(request, options=options, limits=share), listeners)
        yield _answer(engine, workload, drive(engine))


def timed_workloads(names: list[str]) -> list[str]:
    """Those that `--dispatch` tunes: all but the ones a machine without a GPU checks on."""
    return [name for name in names if not name.startswith(SMALL)]


def dispatch_literal(answers: list[Tuned]) -> str:
    """A Python dict literal from workload to its CONFIG, to paste into a kernel's host code."""
    lines = [f"    {answer.workload!r}: {answer.config!r}," for answer in answers if answer.config is not None]
    return "\n".join(["DISPATCH = {", *lines, "}"])


def _answer(engine: Engine, workload: str, result: OptimizeResult) -> Tuned:
    start = engine.request.start
    assert start is not None
    record = open_record(engine.request.settings.database_url, engine.request.home)
    try:
        log = record.open(result.run, time.monotonic)
        times = {
            done.result.source_sha256: (done.result.latency_ms.candidate, done.result.speedup.ratio)
            for done in log.state.candidates.values()
            if done.result is not None and done.result.latency_ms is not None and done.result.speedup is not None
        }
        source = log.record.text(result.best.source_sha256) if result.best is not None else None
    finally:
        record.close()
    config = Candidate(name="best", source=source).config if source is not None else None
    return Tuned(workload, result, config, *times.get(start.sha256, (None, None)))
