"""Recorded measurements in place of a device: what was measured comes back, what was not is NOT_RECORDED.

The recorded status stands for verification, the interval comes from the recorded percentiles, the recorded time is spent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilecast.sandbox.base import BaselineTimes, DeviceFacts, Estimate, EvaluationOptions, Preflight, ProgressSink
from tilecast.sandbox.corpus import BASELINE_NAMES, RecordedProblem, Row, load_corpus
from tilecast.sandbox.errors import CandidateError, EnvironmentFailure, UsageError
from tilecast.sandbox.hardware import find_hardware
from tilecast.sandbox.problem import Problem, ProblemFacts
from tilecast.sandbox.roofline import speed_of_light
from tilecast.sandbox.schema import EvaluationStatus, Interval, LatencyPair, Measurement, Verdict, Verification
from tilecast.sandbox.source import Candidate, check_parses

CALLS_PER_EVALUATION = 72
"""The corpus timed two rounds of 12 to 60 calls; used only where a row does not say how long it took."""

PreflightProvider = Callable[[Problem, ProgressSink], Preflight]


class ReplaySandbox:
    """Evaluations answered from one recorded problem, found in ``folder`` by name or by the problem's own folder."""

    def __init__(self, folder: str | Path, preflight: PreflightProvider) -> None:
        self._recorded = {item.name: item for item in load_corpus(folder)}
        self._folder = Path(folder)
        self._preflight = preflight
        self._facts: dict[str, ProblemFacts] = {}
        self._lock = threading.Lock()

    @property
    def device(self) -> DeviceFacts:
        """The GPU on which the record was made."""
        info = next(iter(self._recorded.values())).info
        versions = {key: value for key in ("torch", "triton") if (value := getattr(info, key))}
        return DeviceFacts(
            kind="replay",
            name=info.gpu,
            compute_capability=info.compute_capability,
            driver=info.driver,
            versions=versions,
            recorded=True,
        )

    def record_of(self, problem: Problem) -> RecordedProblem:
        """The recorded problem that belongs to ``problem``.

        Raises:
            UsageError: if this folder has no record of it, or recorded another text of it.
        """
        found = _matching(list(self._recorded.values()), problem)
        if found is None:
            known = ", ".join(sorted(self._recorded))
            raise UsageError(f"{self._folder}: nothing is recorded for problem {problem.name!r}; recorded are {known}")
        if found.problem.sha256 != problem.sha256:
            raise UsageError(
                f"{self._folder}: the record of {problem.name!r} was made with another reference.py "
                f"({found.problem.sha256[:12]}, this one is {problem.sha256[:12]}); measure again on a GPU"
            )
        return found

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        """Facts and preflight of the reference on this machine's CPU."""
        self.record_of(problem)
        answer = self._preflight(problem, progress)
        if answer.facts is not None:
            with self._lock:
                self._facts[problem.sha256] = answer.facts
        return answer.model_copy(update={"seconds": 0.0})

    def estimate(self, problem: Problem) -> Estimate:
        """Mean recorded seconds of an evaluation."""
        spent = [_seconds(row, 60.0) for row in self.record_of(problem).rows]
        mean = sum(spent) / len(spent) if spent else 0.0
        return Estimate(seconds_per_eval=mean, setup_seconds=0.0, basis="recorded")

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """Recorded times of eager and of ``torch.compile``."""
        record = self.record_of(problem)
        times = {name: ms for key, name in BASELINE_NAMES.items() if (ms := _ms(record.baselines.get(key))) is not None}
        if not times:
            raise EnvironmentFailure(f"{record.folder}: no baseline is recorded; the record needs a `__ref__` row")
        fastest = min(times, key=lambda name: times[name])
        return BaselineTimes(times_ms=times, fastest=fastest, recorded=True)

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """The recorded status; COMPILE_ERROR for a text that is no Python, which needs no record."""
        row = self.record_of(problem).find(candidate)
        status, reason = _verdict(row, candidate, self._folder)
        return Verification(
            status=status,
            reason=reason,
            source_sha256=candidate.sha256,
            device=self.device.name,
            sandbox_level="recorded",
            candidate=candidate.name,
            seconds=0.0 if row is None else _seconds(row, options.timeout_s),
        )

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """The recorded time against the recorded baseline.

        Raises:
            UsageError: for another workload than ``full``, whose times are not in a record.
        """
        if options.workload != "full":
            raise UsageError(f"workload {options.workload!r} is not recorded: a record holds times of `full` alone")
        record = self.record_of(problem)
        verification = self.verify(problem, candidate, options, progress)
        common = {**verification.model_dump(exclude={"schema_version"}), "recorded": True}
        row = record.find(candidate)
        if row is None or row.ms is None or verification.status is not EvaluationStatus.PASSED:
            return Measurement(**common)
        name, base = self._baseline(record, problem, options, progress)
        assert base.ms is not None
        interval = _interval(row, base, name)
        facts, hardware = self._facts.get(problem.sha256), find_hardware(record.info.gpu)
        light = None
        if facts is not None and hardware is not None:
            light = speed_of_light(facts.workload("full"), hardware, row.ms)
        return Measurement(
            **common,
            verdict=verdict_of(interval, options.margin),
            speedup=interval,
            latency_ms=LatencyPair(candidate=row.ms, baseline=_paired_with(row, name, base.ms)),
            baseline=name,
            samples=CALLS_PER_EVALUATION if row.paired is None else row.paired.samples,
            speed_of_light=light,
            details={"kernels": [kernel.model_dump() for kernel in row.kernels]} if row.kernels else {},
        )

    def _baseline(
        self, record: RecordedProblem, problem: Problem, options: EvaluationOptions, progress: ProgressSink
    ) -> tuple[str, Row]:
        if options.baseline_source is not None:
            given = record.find(Candidate(name="baseline", source=options.baseline_source))
            if given is None or given.ms is None:
                raise UsageError("the baseline file given was never measured; under replay only recorded ones can be")
            # Named as it was given, as on a device.
            return given.candidate if options.baseline == "auto" else options.baseline, given
        times = self.baselines(problem, options, progress)
        name = times.fastest if options.baseline == "auto" else options.baseline
        for key, label in BASELINE_NAMES.items():
            if label == name and key in record.baselines:
                return name, record.baselines[key]
        raise UsageError(f"baseline {name!r} is not recorded; recorded are {', '.join(times.times_ms)}")

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]:
        """Not possible on a record.

        Raises:
            UsageError: always; lint runs the problem.
        """
        raise UsageError("lint runs the problem: use --device cpu or --device cuda, not a record")

    def interrupt(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing to kill."""


def _interval(row: Row, base: Row, name: str) -> Interval:
    """The interval of the comparison in one window where there was one, else from the percentiles of both."""
    if row.paired is not None and row.paired.baseline == name:
        return Interval(ratio=row.paired.ratio, low=row.paired.low, high=row.paired.high)
    assert base.ms is not None and row.ms is not None
    low, high = (base.p10 or base.ms) / (row.p90 or row.ms), (base.p90 or base.ms) / (row.p10 or row.ms)
    return Interval(ratio=base.ms / row.ms, low=low, high=high)


def _paired_with(row: Row, name: str, base_ms: float) -> float:
    return row.paired.baseline_ms if row.paired is not None and row.paired.baseline == name else base_ms


def verdict_of(interval: Interval, margin: float) -> Verdict:
    """``same`` when the whole interval lies within the margin; else by the side of 1 it excludes; else undecided."""
    if 1 - margin <= interval.low and interval.high <= 1 + margin:
        return "same"
    if interval.low > 1:
        return "faster"
    return "slower" if interval.high < 1 else "undecided"


def recorded_candidates(folder: str | Path, problem: Problem) -> list[tuple[Candidate, Row]]:
    """All recorded variants of a problem, in file order: what ``--model replay:DIR`` proposes.

    Raises:
        UsageError: if the folder has no record of the problem.
    """
    item = _matching(load_corpus(folder), problem)
    if item is not None:
        return [(item.variant(row), row) for row in item.rows]
    raise UsageError(f"{folder}: nothing is recorded for problem {problem.name!r}")


def _matching(recorded: Sequence[RecordedProblem], problem: Problem) -> RecordedProblem | None:
    """The record of that name; else one of the same text, as an exported one in a folder of any name is."""
    by_name = next((item for item in recorded if item.name == problem.name), None)
    return by_name or next((item for item in recorded if item.problem.sha256 == problem.sha256), None)


def _ms(row: Row | None) -> float | None:
    return None if row is None else row.ms


def _verdict(row: Row | None, candidate: Candidate, folder: Path) -> tuple[EvaluationStatus, str]:
    """Status and reason: as recorded, else what can be said without a record."""
    if row is not None:
        return EvaluationStatus(row.status), row.error or ""
    try:
        check_parses(candidate.source, candidate.name, "the candidate")
    except CandidateError as error:
        return EvaluationStatus.COMPILE_ERROR, str(error)
    why = f"this candidate was never measured for {folder}; --device cpu checks it on this machine's CPU"
    return EvaluationStatus.NOT_RECORDED, why


def _seconds(row: Row, timeout_s: float) -> float:
    if row.seconds is not None:
        return row.seconds
    if row.status == "TIMEOUT":
        return timeout_s
    return (row.first_call_s or 0.0) + CALLS_PER_EVALUATION * (row.ms or 0.0) / 1e3
