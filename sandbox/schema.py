"""Pydantic models of every JSON document of the contract that describes an evaluation, a forecast or a run.

Illegal results cannot be built: a latency, speedup or verdict exists only where the status is PASSED.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Document(BaseModel):
    """A frozen value; fields that are not known are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TopLevel(Document):
    """A document that is printed by a command: it carries the schema's number, spelled ``schema`` in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)
    schema_version: Literal[1] = Field(default=1, alias="schema")


class EvaluationStatus(StrEnum):
    """What became of a candidate. Control flow depends on these values, never on text."""

    PASSED = "PASSED"
    COMPILE_ERROR = "COMPILE_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    TIMEOUT = "TIMEOUT"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    REWARD_HACK = "REWARD_HACK"
    INVALID_REFERENCE = "INVALID_REFERENCE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NOT_RECORDED = "NOT_RECORDED"
    ENVIRONMENT_ERROR = "ENVIRONMENT_ERROR"


Verdict = Literal["faster", "slower", "same", "undecided"]
Bound = Literal["memory", "compute", "launch"]


class WorkloadResult(Document):
    """One workload of a verification: ``error`` is the worst relative L2 error seen, or None if none was taken."""

    name: str
    status: EvaluationStatus
    error: float | None = None


class Check(Document):
    """One check that was made: its name, whether it held, and the evidence in words."""

    name: str
    passed: bool
    detail: str = ""


class Verification(TopLevel):
    """The answer of ``tilecast verify`` for one candidate."""

    status: EvaluationStatus
    reason: str = ""
    workloads: list[WorkloadResult] = []
    checks: list[Check] = []
    source_sha256: str
    sandbox_level: str = ""
    device: str = ""
    seconds: float = 0.0
    candidate: str = ""


class Interval(Document):
    """A ratio with its bootstrap interval; ``ratio`` above 1 means the candidate is faster than the baseline."""

    ratio: float = Field(gt=0)
    low: float = Field(gt=0)
    high: float = Field(gt=0)


class LatencyPair(Document):
    """Medians in milliseconds."""

    candidate: float = Field(gt=0)
    baseline: float = Field(gt=0)


class SpeedOfLight(Document):
    """How close to the device's limit: ``fraction`` = least possible time over measured time."""

    fraction: float
    bound: Bound


class Measurement(Verification):
    """The answer of ``tilecast bench`` for one candidate: as verify, plus timing only where it PASSED."""

    verdict: Verdict | None = None
    speedup: Interval | None = None
    latency_ms: LatencyPair | None = None
    baseline: str = ""
    samples: int | None = None
    speed_of_light: SpeedOfLight | None = None
    recorded: bool = False
    settled: bool | None = None
    """Whether times had stopped changing when the warm-up ended; None where nothing was timed here, and in records of versions
    that did not say it apart."""
    details: dict[str, Any] = {}
    """Further figures by name: warm-cache speedup, clocks that were compared, discarded samples, profile, notes."""

    @model_validator(mode="after")
    def _timing_only_if_passed(self) -> Measurement:
        timed = self.latency_ms is not None or self.speedup is not None or self.verdict is not None
        if timed and self.status is not EvaluationStatus.PASSED:
            raise ValueError(f"a candidate with status {self.status} cannot carry a time")
        return self


class ForecastBin(Document):
    """One speedup bin with its probability; ``high`` is None for the last."""

    low: float
    high: float | None
    p: float = Field(ge=0, le=1)


class Range(Document):
    """Median with a central interval."""

    median: float
    low: float
    high: float


class Cost(Document):
    """What a forecast or a proposal cost; ``usd`` is None where the price is unknown."""

    seconds: float = 0.0
    tokens: int = 0
    usd: float | None = 0.0


class Forecast(TopLevel):
    """The answer of ``tilecast forecast`` for one candidate. It is never a measurement."""

    latency_ms: Range | None
    baseline: str
    baseline_ms: float | None
    bins: list[ForecastBin]
    speedup: Range | None
    p_faster: float = Field(ge=0, le=1)
    p_valid: float = Field(ge=0, le=1)
    abstain: bool
    why: str
    source: Literal["roofline", "learned", "llm", "ensemble", "none"]
    cost: Cost = Cost()
    evidence: dict[str, Any] = {}
    candidate: str = ""
    source_sha256: str = ""


class Meter(Document):
    """One budget line; ``limit`` None is no limit, ``spent`` None is unknown (a price that is not known)."""

    spent: float | None
    limit: float | None = None


class LedgerDocument(Document):
    """What a run spent against its limits."""

    evals: Meter
    gpu_seconds: Meter
    tokens: Meter
    usd: Meter
    minutes: Meter


class CandidateCounts(Document):
    """How many candidates went how far."""

    proposed: int = 0
    forecast: int = 0
    skipped_by_forecast: int = 0
    verified: int = 0
    rejected: int = 0
    measured: int = 0
    not_recorded: int = 0


class Best(Document):
    """The fastest candidate that the run verified and measured."""

    path: str
    source_sha256: str
    status: Literal[EvaluationStatus.PASSED] = EvaluationStatus.PASSED
    verdict: Verdict
    speedup: Interval
    latency_ms: LatencyPair
    recorded: bool


StoppedBy = Literal[
    "evals", "gpu_seconds", "tokens", "usd", "minutes", "target", "patience", "exhausted", "interrupted"
]


class OptimizeResult(TopLevel):
    """The answer of ``tilecast optimize``."""

    run: str
    stopped_by: StoppedBy
    best: Best | None
    improved: bool
    ledger: LedgerDocument
    candidates: CandidateCounts
    run_dir: str
    notes: list[str] = []
    why_nothing: str = ""
    """Why there is no ``best``, the last of the notes; empty where there is one."""
