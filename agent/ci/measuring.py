"""The half that costs: head verified against the reference, and timed against base by turns on one device; in the sandbox only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from tilecast.agent.ci.cause import from_record
from tilecast.agent.ci.changes import KernelChange
from tilecast.agent.ci.keeping import Keeping
from tilecast.agent.ci.schema import Ratio, Times, Verdict
from tilecast.agent.ci.verdict import agreed, is_reported, of_interval, of_status
from tilecast.agent.judging import check_reference
from tilecast.sandbox.base import EvaluationOptions, Sandbox
from tilecast.sandbox.errors import ProblemError, UsageError
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.schema import Document, EvaluationStatus, Measurement, Verification
from tilecast.sandbox.source import Candidate

BASE = "base"


class Measured(Document):
    """What the device said of one pair."""

    verdict: Verdict
    status: EvaluationStatus | None = None
    base_status: EvaluationStatus | None = None
    speedup: Ratio | None = None
    latency_ms: Times | None = None
    samples: int | None = None
    recorded: bool = False
    reason: str = ""
    limits: str = ""
    sandbox_level: str = ""
    kernels: dict[str, Any] = {}
    """Recorded resources of ``base`` and ``head``, as causes are read from them."""
    seconds: float = Field(default=0.0, ge=0)
    cached: bool = False


@dataclass
class Measuring:
    """Measures pairs on one sandbox.

    Attributes:
        sandbox: where candidates run.
        options: timeout, isolation and the like.
        keeping: results by content, device and versions.
        say: progress, one line each.
    """

    sandbox: Sandbox
    options: EvaluationOptions
    keeping: Keeping
    say: Callable[[str], None]
    _checked: set[str] = field(default_factory=set)

    def pair(self, change: KernelChange, threshold: float, limit_s: float | None, timed: bool) -> Measured:
        """Head against base (or alone, where there is no base or nothing to time).

        A pair that was measured before with the same texts, device and versions is not measured again. A difference that is
        worth reporting is measured twice, and reported only if both agree.

        Raises:
            EnvironmentFailure: if the machine is broken.
        """
        assert change.head is not None
        head, problem = change.head.candidate, change.head.problem
        base = change.base.candidate if change.base is not None else None
        if head is None or problem is None:
            return Measured(verdict="not_compared", reason=change.head.refused)
        how = {"threshold": threshold, "limit_s": limit_s, "options": self.options.model_dump()}
        key = self.keeping.key(problem, base if timed else None, head, self.sandbox.device, how)
        kept = self.keeping.read(key)
        if kept is not None:
            self.say(f"{change.name}: already measured with these texts on this device")
            return kept.model_copy(update={"cached": True})
        try:
            self._check(problem)
            if change.base is not None and base is None:
                found = self._without_base(problem, None, head, f"base cannot be run: {change.base.refused}")
            elif base is None or not timed:
                found = self._alone(problem, base, head, added=base is None)
            else:
                found = self._timed(problem, base, head, threshold, limit_s)
        except (ProblemError, UsageError) as error:
            return Measured(verdict="not_compared", reason=str(error))
        self.keeping.write(key, found)
        return found

    def _check(self, problem: Problem) -> None:
        if self.sandbox.device.recorded or problem.sha256 in self._checked:
            return
        check_reference(self.sandbox, problem, self.say)
        self._checked.add(problem.sha256)

    def _alone(self, problem: Problem, base: Candidate | None, head: Candidate, added: bool) -> Measured:
        self.say(f"verifying {head.name}")
        return self._judged(
            self.sandbox.verify(problem, head, self.options, self.say), problem, base, "added" if added else "same"
        )

    def _without_base(self, problem: Problem, base: Candidate | None, head: Candidate, why: str) -> Measured:
        """There is nothing to compare with; head's answers are checked all the same."""
        alone = self._alone(problem, base, head, added=False)
        if alone.verdict != "same":
            return alone
        return alone.model_copy(update={"verdict": "not_compared", "reason": why})

    def _judged(self, answer: Verification, problem: Problem, base: Candidate | None, otherwise: Verdict) -> Measured:
        """What a status alone says; base is checked only where head does not pass, to know whose doing that is."""
        base_status = None
        if answer.status is not EvaluationStatus.PASSED and base is not None:
            base_status = self.sandbox.verify(problem, base, self.options, self.say).status
        return Measured(
            verdict=of_status(answer.status, base_status) or otherwise,
            status=answer.status,
            base_status=base_status,
            recorded=self.sandbox.device.recorded,
            reason=answer.reason or "; ".join(_notes(answer)),
            sandbox_level=answer.sandbox_level,
            seconds=answer.seconds,
        )

    def _timed(
        self, problem: Problem, base: Candidate, head: Candidate, threshold: float, limit_s: float | None
    ) -> Measured:
        longest = self.options.max_seconds if limit_s is None else min(self.options.max_seconds, limit_s)
        options = self.options.model_copy(
            update={"baseline": BASE, "baseline_source": base.source, "max_seconds": longest}
        )
        self.say(f"measuring {head.name}: base and head by turns")
        try:
            first = self.sandbox.benchmark(problem, head, options, self.say)
        except (ProblemError, UsageError) as error:
            # Base does not run, or was never recorded.
            return self._without_base(problem, base, head, f"base cannot be timed: {error}")
        if first.speedup is None or first.latency_ms is None:
            return self._judged(first, problem, base, "undecided")
        found = self._of(first, problem, base, threshold)
        if not is_reported(found.verdict) or first.recorded:
            return found
        self.say(f"{head.name}: {found.verdict}; measuring once more to be sure")
        second = self.sandbox.benchmark(problem, head, options.model_copy(update={"profile": True}), self.say)
        if second.speedup is None or found.speedup is None:
            return self._judged(second, problem, base, "undecided")
        both = agreed(found.speedup, _ratio(second))
        return found.model_copy(
            update={
                "speedup": both,
                "verdict": of_interval(both, threshold),
                "samples": (found.samples or 0) + (second.samples or 0),
                "limits": _limits(second),
                "seconds": found.seconds + second.seconds,
            }
        )

    def _of(self, answer: Measurement, problem: Problem, base: Candidate, threshold: float) -> Measured:
        speedup = _ratio(answer)
        assert answer.latency_ms is not None
        kernels: dict[str, Any] = {}
        if answer.recorded and answer.details.get("kernels"):
            options = self.options.model_copy(update={"baseline": "auto", "baseline_source": None})
            before = self.sandbox.benchmark(problem, base, options, self.say)
            if before.details.get("kernels"):
                kernels = {
                    "base": from_record(before.details["kernels"]),
                    "head": from_record(answer.details["kernels"]),
                }
        return Measured(
            verdict=of_interval(speedup, threshold),
            status=answer.status,
            speedup=speedup,
            latency_ms=Times(base=answer.latency_ms.baseline, head=answer.latency_ms.candidate),
            samples=answer.samples,
            recorded=answer.recorded,
            limits=_limits(answer),
            sandbox_level=answer.sandbox_level,
            kernels=kernels,
            seconds=answer.seconds,
        )


def _ratio(answer: Measurement) -> Ratio:
    assert answer.speedup is not None
    return Ratio(ratio=answer.speedup.ratio, low=answer.speedup.low, high=answer.speedup.high)


def _notes(answer: Verification) -> list[str]:
    notes = answer.details.get("notes", []) if isinstance(answer, Measurement) else []
    return [str(note) for note in notes]


def _limits(answer: Measurement) -> str:
    """One line: how far from the device's limit, and the profile's own words."""
    parts = []
    if answer.speed_of_light is not None:
        light = answer.speed_of_light
        parts.append(f"{light.fraction:.0%} of the speed of light, {light.bound}-bound")
    profile = answer.details.get("profile")
    told = profile.get("limited_by") if isinstance(profile, dict) else None
    if isinstance(told, str) and told:
        parts.append(told)
    return "; ".join(parts)[:300]
