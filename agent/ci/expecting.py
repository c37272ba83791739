"""The cheap half: evidence and a forecast of both versions. Needs no GPU; host code of a candidate runs in the sandbox only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilecast.agent.ci.cause import from_evidence, same_code
from tilecast.agent.ci.changes import KernelChange
from tilecast.agent.ci.schema import ForecastNote
from tilecast.agent.ci.verdict import note_of, of_forecast
from tilecast.sandbox.errors import EnvironmentFailure, TilecastError
from tilecast.sandbox.evidence import EvidenceCollector
from tilecast.sandbox.hardware import Hardware
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import EvidenceProvider, ForecastContext, Forecaster
from tilecast.tools.propose.base import Tried

Collect = Callable[[Problem, Candidate], Mapping[str, Any] | None]
"""Compile-time evidence of one version, as JSON; None where there is none to be had."""
_REFUSED = frozenset({"COMPILE_ERROR", "OUT_OF_RESOURCES", "SYNTAX_ERROR"})


@dataclass(frozen=True)
class Expectation:
    """What is known before anything is measured."""

    note: ForecastNote
    same_code: bool = False
    refused: str = ""
    """Why head does not compile although base does, in the compiler's words."""
    base: Mapping[str, Any] | None = None
    head: Mapping[str, Any] | None = None
    """Evidence of both, as causes are read from it."""

    def unchanged(self, threshold: float) -> str:
        """Why head is as fast as base without a measurement; empty if that is not sure."""
        if self.same_code:
            return "both versions compile to the same code"
        if of_forecast(self.note, threshold) == "same":
            return "the forecast is sure that nothing changes by the threshold"
        return ""


class Expecting:
    """Forecasts changes for one GPU.

    Args:
        forecaster: what predicts; None predicts nothing.
        hardware: the GPU; None is one that nothing is known of.
        collect: where evidence comes from.
        say: told one line about what cannot be had.
    """

    def __init__(
        self, forecaster: Forecaster | None, hardware: Hardware | None, collect: Collect, say: Callable[[str], None]
    ) -> None:
        self._forecaster, self._hardware, self._collect, self._say = forecaster, hardware, collect, say

    @property
    def target(self) -> str:
        """The GPU's name; empty if there is none to forecast for."""
        return self._hardware.key.upper() if self._hardware is not None else ""

    def expect(self, change: KernelChange) -> Expectation:
        """Evidence and forecast of head against base, under head's problem."""
        nothing = ForecastNote(abstains=True, target=self.target)
        if change.base is None or change.head is None or change.head.problem is None:
            return Expectation(nothing)
        base, head, problem = change.base.candidate, change.head.candidate, change.head.problem
        if base is None or head is None:
            return Expectation(nothing)
        before, after = self._evidence(problem, base), self._evidence(problem, head)
        causes = (from_evidence(before) if before else None, from_evidence(after) if after else None)
        refused = ""
        if before and after and after.get("status") in _REFUSED and before.get("status") not in _REFUSED:
            refused = f"{after['status']}: {after.get('reason', '')}"[:2000]
        known = {item.sha256: found for item, found in ((base, before), (head, after)) if found}
        note = self._forecast(problem, base, head, lambda candidate: _as_dict(known.get(candidate.sha256)))
        return Expectation(note, same_code(*causes), refused, *causes)

    def _evidence(self, problem: Problem, candidate: Candidate) -> Mapping[str, Any] | None:
        if self._hardware is None:
            return None
        try:
            return self._collect(problem, candidate)
        except EnvironmentFailure as error:
            self._say(f"{candidate.name}: no evidence: {error}")
            return None

    def _forecast(self, problem: Problem, base: Candidate, head: Candidate, evidence: EvidenceProvider) -> ForecastNote:
        """Head's time given base's: base's own median is taken as measured, which leaves what the two do differently."""
        nothing = ForecastNote(abstains=True, target=self.target, why="no GPU is named to forecast for (--target)")
        if self._hardware is None or self._forecaster is None:
            return nothing
        from tilecast.tools.forecast.facts import facts_from_text

        alone = ForecastContext(
            problem=problem,
            facts=facts_from_text(problem),
            hardware=self._hardware,
            baseline_name="base",
            baseline_ms=None,
            incumbent_ms=None,
            evidence=evidence,
        )
        try:
            guess = self._forecaster.forecast([base], alone)[0]
            if guess.latency_ms is None:
                return nothing.model_copy(update={"why": guess.why[:300]})
            base_ms = guess.latency_ms.median
            tried = Tried(candidate=base, status=EvaluationStatus.PASSED, latency_ms=base_ms)
            given = {"baseline_ms": base_ms, "incumbent_ms": base_ms, "tried": [tried]}
            found = self._forecaster.forecast([head], alone.model_copy(update=given))[0]
        except TilecastError as error:
            return nothing.model_copy(update={"why": str(error)[:300]})
        return note_of(found, self.target)


def _as_dict(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else dict(found)


def collector(evidence: EvidenceCollector, hardware: Hardware) -> Collect:
    """Evidence through a collector, which keeps it by content."""
    return lambda problem, candidate: evidence.collect(problem, candidate, hardware.key).model_dump(mode="json")
