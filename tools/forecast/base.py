"""The forecaster protocol: a calibrated guess with an abstention, never a measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

from pydantic import ConfigDict, SkipValidation

from tilecast.sandbox.hardware import Hardware
from tilecast.sandbox.problem import Problem, ProblemFacts
from tilecast.sandbox.schema import Document, Forecast
from tilecast.sandbox.source import Candidate
from tilecast.tools.propose.base import Tried

EvidenceProvider = Callable[[Candidate], dict[str, Any] | None]
"""Compile-time evidence of a candidate on the target (see docs), or None where it cannot be had."""


class ForecastContext(Document):
    """What a forecaster may know. ``baseline_ms`` is None before it was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    problem: Problem
    facts: ProblemFacts
    hardware: Hardware | None
    """None for a GPU that is not in the catalogue: forecasters abstain."""
    on_cpu: bool = False
    """True where times are taken on a CPU: there is nothing to forecast, whatever GPU is named."""
    baseline_name: str
    baseline_ms: float | None
    incumbent_ms: float | None
    tried: Annotated[Sequence[Tried], SkipValidation] = ()
    evidence: EvidenceProvider | None = None
    workload: str = "full"
    """On which speed is measured."""


class Forecaster(Protocol):
    """Forecasts of several candidates at once, in their order."""

    @property
    def name(self) -> str: ...

    def forecast(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Forecast]: ...
