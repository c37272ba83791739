"""Recorded measurements on disk: read, checked, and looked up by a candidate's canonical source.

Layout: ``DIR/<problem>/{reference.py, candidates/*.py, kernel*.py, measurements.jsonl, llm_forecasts.jsonl}``, ``corpus.toml``.
"""

from __future__ import annotations

import json
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.source import Candidate, canonical_key, load_candidate

EAGER = "__ref__"
BASELINE_NAMES = {EAGER: "eager", "__compile_default__": "compile", "__compile__": "max-autotune"}


class KernelResources(BaseModel):
    """What the compiler gave one launched kernel: registers a thread, spills, shared bytes, warps, stages."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    name: str
    regs: int | None = None
    spills: int | None = None
    shared: int | None = None
    warps: int | None = None
    stages: int | None = None


class Paired(BaseModel):
    """A comparison in one window: ratio above 1 is faster than the named baseline; times in milliseconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    baseline: str
    baseline_ms: float
    ratio: float
    low: float
    high: float
    samples: int | None = None


class Row(BaseModel):
    """One line of ``measurements.jsonl``: a variant of a candidate, or a baseline. Times in milliseconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    candidate: str
    config: dict[str, Any] = {}
    status: str
    ms: float | None = None
    p10: float | None = None
    p90: float | None = None
    ms_a: float | None = None
    ms_b: float | None = None
    rel_err: float | None = None
    first_call_s: float | None = None
    seconds: float | None = None
    """Device seconds that the evaluation took, where recorded."""
    error: str | None = None
    paired: Paired | None = None
    """Set where candidate and baseline were timed against each other."""
    kernels: list[KernelResources] = []


class LlmForecast(BaseModel):
    """One recorded forecast of a language model, relative to ``__ref__``; ``p`` over the eight bins."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    candidate: str
    ms: float | None = None
    ref_ms: float | None = None
    p: list[float]
    confidence: float | None = None


class CorpusInfo(BaseModel):
    """``corpus.toml``: the GPU, versions and method behind the numbers."""

    model_config = ConfigDict(frozen=True, extra="allow")
    gpu: str = "unknown GPU"
    compute_capability: str = ""
    driver: str = ""
    measured: str = ""
    torch: str = ""
    triton: str = ""


class RecordedProblem:
    """A problem with all its recorded variants."""

    def __init__(self, folder: Path, problem: Problem, rows: list[Row], info: CorpusInfo) -> None:
        self.folder, self.problem, self.info = folder, problem, info
        self.baselines = {row.candidate: row for row in rows if row.status == "BASELINE"}
        self.rows = [row for row in rows if row.status != "BASELINE"]

    @property
    def name(self) -> str:
        """The problem's name."""
        return self.problem.name

    @cached_property
    def sources(self) -> dict[str, Candidate]:
        """Candidate files by stem, with their own CONFIG."""
        files = [*sorted((self.folder / "candidates").glob("*.py")), *sorted(self.folder.glob("kernel*.py"))]
        return {f.stem: load_candidate(f) for f in files}

    def variant(self, row: Row) -> Candidate:
        """The candidate of a row, with the row's CONFIG written in.

        Raises:
            UsageError: if the record names a candidate file that is not there.
        """
        try:
            return self.sources[row.candidate].with_config(row.config)
        except KeyError:
            raise UsageError(f"{self.folder}: measurements name {row.candidate!r}, but there is no such file") from None

    @cached_property
    def by_key(self) -> dict[str, Row]:
        """Rows by :func:`canonical_key` of their variant."""
        return {canonical_key(self.variant(row).source): row for row in self.rows}

    def find(self, candidate: Candidate) -> Row | None:
        """The row recorded for a candidate (comments, whitespace and order of CONFIG aside), or None."""
        return self.by_key.get(canonical_key(candidate.source))

    @cached_property
    def llm_forecasts(self) -> list[LlmForecast]:
        """Recorded language-model forecasts, if any."""
        file = self.folder / "llm_forecasts.jsonl"
        return [LlmForecast.model_validate(item) for item in _json_lines(file)] if file.is_file() else []


def load_recorded(folder: str | Path) -> RecordedProblem:
    """Read one recorded problem.

    Raises:
        UsageError: naming the file, the line and what is wrong.
    """
    path = Path(folder)
    file = path / "measurements.jsonl"
    if not file.is_file():
        raise UsageError(f"{path}: has no measurements.jsonl; a recorded problem needs one")
    rows = []
    for number, item in enumerate(_json_lines(file), 1):
        try:
            rows.append(Row.model_validate(item))
        except ValidationError as error:
            raise UsageError(f"{file}:{number}: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from error
    return RecordedProblem(path, load_problem(path), rows, read_info(path))


def load_corpus(folder: str | Path) -> list[RecordedProblem]:
    """Read a corpus (a folder of recorded problems), or a single recorded problem.

    Raises:
        UsageError: if there is no recorded problem in it.
    """
    path = Path(folder)
    if (path / "measurements.jsonl").is_file():
        return [load_recorded(path)]
    found = sorted(p.parent for p in path.glob("*/measurements.jsonl"))
    if not found:
        raise UsageError(f"{path}: no measurements.jsonl in it or in its folders; is this a corpus?")
    return [load_recorded(p) for p in found]


def read_info(folder: Path) -> CorpusInfo:
    """``corpus.toml`` of a recorded problem: in its folder, else in its parent; empty if neither has one."""
    for place in (folder, folder.resolve().parent):
        file = place / "corpus.toml"
        if file.is_file():
            try:
                return CorpusInfo.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
            except (tomllib.TOMLDecodeError, ValidationError) as error:
                raise UsageError(f"{file}: {error}") from error
    return CorpusInfo()


def _json_lines(file: Path) -> list[Any]:
    items = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                items.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise UsageError(f"{file}:{number}: not JSON: {error.msg}") from error
    return items
