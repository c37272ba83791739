"""What docs/results.md tells, by example and language: from records, runs, replays and compile-time evidence.

Records are ``examples/*/measurements.jsonl``; runs are described in ``benchmarks/results/h200/examples/README.md``.
"""

from __future__ import annotations

import _bootstrap  # noqa: F401  # isort: skip

import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tilecast.sandbox.base import EvaluationOptions, Preflight
from tilecast.sandbox.corpus import BASELINE_NAMES, RecordedProblem, Row, load_recorded
from tilecast.sandbox.hardware import Hardware, find_hardware
from tilecast.sandbox.languages import language_of
from tilecast.sandbox.problem import WorkloadFacts
from tilecast.sandbox.replay import ReplaySandbox
from tilecast.sandbox.schema import EvaluationStatus, Measurement
from tilecast.sandbox.source import Candidate, load_candidate
from tilecast.tools.forecast.facts import facts_from_text

MEMORY_BOUND = frozenset({"vector_add", "matrix_add", "softmax", "softmax_bf16", "layernorm"})
LIBRARY_SHARE = {("matmul", "triton"): 0.9, ("matmul", "cutile"): 0.8, ("linear_gelu", "triton"): 0.9} | {
    ("linear_gelu", "cutile"): 0.8
}
COPY_SHARE = 0.9
"""Of the measured copy bandwidth, for the memory-bound."""


@dataclass(frozen=True)
class Run:
    """A run of the search on the GPU, as its report tells it."""

    command: str
    report: dict[str, Any]

    @property
    def best(self) -> dict[str, Any] | None:
        """The best candidate's entry in the report."""
        index = self.report.get("best_index")
        return next((c for c in self.report["candidates"] if c["index"] == index), None)


@dataclass(frozen=True)
class Entry:
    """One example in one language. ``best`` and ``plain`` are read from the record, ``run`` is there where one was saved."""

    record: RecordedProblem
    language: str
    rows: list[Row]
    plain: Row | None
    best: Row
    best_measured: Measurement
    facts: WorkloadFacts
    hardware: Hardware | None
    run: Run | None

    @property
    def name(self) -> str:
        """The example's folder."""
        return self.record.name

    @property
    def baselines_ms(self) -> dict[str, float]:
        """Recorded medians by name."""
        found = {name: self.record.baselines.get(key) for key, name in BASELINE_NAMES.items()}
        return {name: row.ms for name, row in found.items() if row is not None and row.ms is not None}

    @property
    def proposer(self) -> str:
        """Who proposed the best: the program that rewrites CONFIG, or a recorded candidate of another structure."""
        if self.best.candidate.startswith("kernel"):
            return "`builtin`" if self.best.config else "as written"
        return f"recorded candidate `{self.best.candidate}`"

    @property
    def measured_of(self) -> str:
        """How many variants are recorded, of those that the SPACEs of the example's files in this language have."""
        folder = self.record.folder
        files = [load_candidate(file) for file in [*folder.glob("kernel*.py"), *folder.glob("candidates/*.py")]]
        points = sum(prod(map(len, f.space.values())) for f in files if language_of(f.source) == self.language)
        return f"all {len(self.rows)}" if len(self.rows) >= points else f"{len(self.rows)} of {points}"

    @property
    def seconds(self) -> float:
        """Device seconds that measuring all variants of the record took."""
        return sum(
            row.seconds if row.seconds is not None else (row.first_call_s or 0.0) + 72e-3 * (row.ms or 0.0)
            for row in self.rows
        )

    @property
    def bandwidth_gbs(self) -> float:
        """Compulsory bytes over the best time."""
        assert self.best.ms is not None
        return self.facts.min_bytes / self.best.ms / 1e6

    @property
    def tflops(self) -> float:
        """Arithmetic of the reference's matrix operators over the best time."""
        assert self.best.ms is not None
        return self.facts.flops / self.best.ms / 1e9

    def target(self) -> tuple[str, bool]:
        """What was aimed at, in words with the figure reached, and whether it was."""
        assert self.best_measured.speedup is not None
        ratio = self.best_measured.speedup.ratio
        share = LIBRARY_SHARE.get((self.name, self.language))
        if share is not None:
            return f"{ratio:.0%} of the library (aim {share:.0%})", ratio >= share
        copy = self.hardware.measured_bandwidth_gbs if self.hardware is not None else None
        if self.name in MEMORY_BOUND and copy:
            reached = self.bandwidth_gbs / copy
            text = f"{reached:.0%} of copy bandwidth (aim {COPY_SHARE:.0%}), {ratio:.2f}x the fastest baseline"
            return text, reached >= COPY_SHARE or ratio >= 1.0
        return f"{ratio:.2f}x the fastest baseline (aim 1)", ratio >= 1.0


def entries(examples: Path, runs: Path) -> list[Entry]:
    """Everything that is recorded, by example and then by language."""
    found = []
    for folder in sorted(path.parent for path in examples.glob("*/measurements.jsonl")):
        record = load_recorded(folder)
        by_language: dict[str, list[Row]] = {}
        for row in record.rows:
            by_language.setdefault(language_of(record.variant(row).source), []).append(row)
        for language in ("triton", "cutile", "cuda"):
            entry = _entry(record, language, by_language.get(language, []), runs)
            if entry is not None:
                found.append(entry)
    return found


def without_record(examples: Path) -> list[str]:
    """Examples with a GPU kernel of their own that were not measured."""
    kernels = {
        path.parent for path in examples.glob("*/kernel*.py") if language_of(path.read_text()) in ("triton", "cutile")
    }
    return sorted(folder.name for folder in kernels if not (folder / "measurements.jsonl").is_file())


def _entry(record: RecordedProblem, language: str, rows: list[Row], runs: Path) -> Entry | None:
    timed = [row for row in rows if row.status == "PASSED" and row.ms]
    if not timed:
        return None
    facts = facts_from_text(record.problem)
    known = Preflight(status=EvaluationStatus.PASSED, facts=facts)
    sandbox = ReplaySandbox(record.folder, lambda problem, progress: known)
    sandbox.preflight(record.problem, lambda text: None)

    def measured(row: Row) -> Measurement:
        return sandbox.benchmark(record.problem, record.variant(row), EvaluationOptions(), lambda text: None)

    best = min(timed, key=lambda row: row.ms or 0.0)
    plain = _plain(record, language)
    return Entry(
        record=record,
        language=language,
        rows=rows,
        plain=plain,
        best=best,
        best_measured=measured(best),
        facts=facts.workload("full"),
        hardware=find_hardware(record.info.gpu),
        run=_run(runs / f"{record.name}.{language}.json"),
    )


def _plain(record: RecordedProblem, language: str) -> Row | None:
    """The row of the language's own kernel with the CONFIG it is written with."""
    for stem, candidate in sorted(record.sources.items()):
        if stem.startswith("kernel") and language_of(candidate.source) == language:
            return record.find(candidate)
    return None


def _run(file: Path) -> Run | None:
    if not file.is_file():
        return None
    document = json.loads(file.read_text(encoding="utf-8"))
    return Run(document["command"], document["report"])


def best_candidate(entry: Entry) -> Candidate:
    """The best variant's text."""
    return entry.record.variant(entry.best)


def cards(found: Iterable[Entry]) -> list[str]:
    """GPU, driver, versions and day behind the records, each once."""
    told = []
    for entry in found:
        info = entry.record.info
        versions = f"torch {info.torch}, triton {info.triton}"
        told.append(f"{info.gpu}, driver {info.driver}, {versions}, {info.measured}")
    return list(dict.fromkeys(told))
