"""One comparison with all it left behind, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilecast.sandbox.harness.judge.timing import clocks
from tilecast.sandbox.harness.judge.timing.paired import PairedLegs
from tilecast.sandbox.harness.judge.timing.sampling import Sampled
from tilecast.sandbox.harness.judge.timing.window import Window


@dataclass
class Timed:
    """One comparison with all it left behind."""

    sampled: Sampled
    legs: PairedLegs
    window: Window
    device_type: str
    notes: list[str] = field(default_factory=list)

    def fields(
        self, report: clocks.ClockReport, baseline: str, light: dict[str, Any] | None, review: str
    ) -> dict[str, Any]:
        """The timing fields of a ``Measurement``; ``light`` is its speed of light, ``review`` what people should look at."""
        sampled, estimate = self.sampled, self.sampled.estimate
        return {
            "verdict": estimate.verdict,
            "speedup": {"ratio": estimate.ratio, "low": estimate.low, "high": estimate.high},
            "latency_ms": {"candidate": sampled.candidate_ms, "baseline": sampled.baseline_ms},
            "baseline": baseline,
            "samples": sampled.samples,
            "speed_of_light": light,
            "settled": sampled.stable,
            "details": {
                "cache": "cold" if self.device_type == "cuda" else "as left by the process that wrote the inputs",
                "blocks": estimate.blocks,
                "calls_per_leg": sampled.calls_per_leg,
                "sampling_seconds": round(sampled.seconds, 3),
                "outputs_checked": self.legs.checked,
                "discarded": sampled.discarded,
                "window": self.window.report(),
                "waited_for_cpu": {side: round(w.share, 4) for side, w in self.legs.waiting.items()},
                "clocks": report.as_details(),
                "empty_call_ms": _median(self.legs.empty_call_ms),
                "end_marker": "synchronised" if self.legs.joined_by_synchronising else "joined",
                "review": review,
                "notes": self._remarks(report, review),
            },
        }

    def _remarks(self, report: clocks.ClockReport, review: str) -> list[str]:
        """For people; what decides anything is a field of its own."""
        notes = [*self.notes, *([review] if review else [])]
        if not report.polices:
            notes.append(
                f"calls of {self.sampled.candidate_ms:.4g} ms are below what the judge's clock can police "
                f"(tolerance {report.tolerance_ms:.3g} ms a call)"
            )
        if not self.sampled.stable:
            notes.append("times had not settled when the warm-up ended")
        return notes


def _median(values: list[float]) -> float | None:
    return round(float(np.median(values)), 5) if values else None
