"""How far one candidate of a run came, and how the device has fared so far."""

from __future__ import annotations

from dataclasses import dataclass

from tilecast.agent.record.events import Chosen, EvaluationLost, Judged, Proposed
from tilecast.sandbox.schema import EvaluationStatus, Forecast, Measurement, Verification

REJECTED = frozenset(set(EvaluationStatus) - {EvaluationStatus.PASSED, EvaluationStatus.NOT_RECORDED})


@dataclass
class CandidateState:
    """How far one proposal came."""

    index: int
    asked_seq: int = 0
    parent_sha256: str | None = None
    """What it was asked to build on; what it was built on is in ``proposed``."""
    proposed: Proposed | None = None
    proposed_seq: int = 0
    forecast: Forecast | None = None
    chosen: Chosen | None = None
    in_flight_gpu_s: float | None = None
    verification: Verification | None = None
    result: Measurement | None = None
    counted: bool = False
    charged_gpu_s: float = 0.0
    lost: EvaluationLost | None = None
    judged: Judged | None = None
    judged_seq: int = 0

    @property
    def sha256(self) -> str | None:
        """Hash of its source, if it has one."""
        return None if self.proposed is None else self.proposed.source_sha256

    @property
    def timed(self) -> bool:
        """Verified and measured by this run: only such a one can be best."""
        result = self.result
        return (
            result is not None
            and result.status is EvaluationStatus.PASSED
            and result.latency_ms is not None
            and result.speedup is not None
            and result.verdict is not None
        )

    @property
    def is_measured_next(self) -> bool:
        """It is to be evaluated, or being evaluated, and its result is not there."""
        wanted = self.chosen is not None and self.chosen.action in ("measure", "audit")
        again = self.lost is None or self.lost.again
        return wanted and again and self.result is None and self.judged is None

    def lighten(self) -> None:
        """Let go of what only a report needs, which reads it from the record."""
        self.verification = self.forecast = None
        if self.result is not None:
            self.result = self.result.model_copy(update={"workloads": [], "checks": [], "details": {}})


@dataclass
class Health:
    """Evaluations so far by what they say of the machine, in the order in which they were done."""

    failed_in_a_row: int = 0
    """By the machine, at the end."""
    passed: int = 0
    timed: int = 0
    last: Measurement | None = None
    last_passed: Measurement | None = None

    def take_in(self, result: Measurement) -> None:
        """One more evaluation that counts."""
        self.last = result
        failed = result.status is EvaluationStatus.ENVIRONMENT_ERROR
        self.failed_in_a_row = self.failed_in_a_row + 1 if failed else 0
        if result.status is EvaluationStatus.PASSED:
            self.passed, self.last_passed = self.passed + 1, result
            self.timed += int(result.latency_ms is not None)
