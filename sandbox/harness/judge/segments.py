"""Calls with inputs, expected outputs and parameters, in segments; and which segments are kept for further candidates."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.layouts import Layouts
from tilecast.sandbox.harness.judge.oracle import Answer
from tilecast.sandbox.harness.judge.probes import Step
from tilecast.sandbox.harness.tensors import TensorSpec, tensors_in

_KEPT_BYTES = 1 << 30
_MAX_DRAWS_ANEW = 4


@dataclass(frozen=True)
class Call:
    """One call with all that is needed to make and to judge it."""

    step: Step
    inputs: list[Any]
    layouts: Layouts
    answer: Answer
    seed: int
    specs: list[TensorSpec] | None = None
    """Of the outputs, where they differ from the workload's (another number of rows)."""

    @property
    def label(self) -> str:
        """For reasons: family, content and layout."""
        parts = [f"{self.step.family} inputs"]
        if self.step.content != "fresh":
            named = {"nan": "NaN planted", "inf": "infinities planted", "rows": f"{self._rows} rows"}
            parts.append(named.get(self.step.content, "few changed"))
        if self.step.layout != "contiguous":
            parts.append(f"{self.step.layout} layout, which an open DOMAIN allows: use strides or .contiguous()")
        return ", ".join(parts)

    @property
    def _rows(self) -> int:
        return self.specs[0].shape[0] if self.specs and self.specs[0].shape else 0


@dataclass(frozen=True)
class Repeat:
    """Inputs to be given twice, and the same with a few elements changed, for who knows them by some of their elements."""

    call: Call
    altered: Call | None


@dataclass
class Segment:
    """Calls under one set of parameters."""

    case: WorkloadCase
    state: dict[str, Tensor]
    calls: list[Call] = field(default_factory=list)

    @property
    def is_burst(self) -> bool:
        """Whether it has a stretch long enough to be taken for a timing loop."""
        return sum(call.step.burst for call in self.calls) >= 8

    @property
    def steps(self) -> list[Step]:
        """Of its calls."""
        return [call.step for call in self.calls]

    @property
    def size_bytes(self) -> int:
        """Memory it holds, roughly."""
        return sum(call_bytes(call) for call in self.calls)


def call_bytes(call: Call) -> int:
    """Memory that its inputs and expected outputs take, roughly."""
    inputs = sum(item.numel() * item.element_size() for item in tensors_in(call.inputs))
    return inputs + sum(item.truth.numel() * item.truth.element_size() * 2 for item in call.answer.outputs)


@dataclass
class SegmentStore:
    """Segments kept for further candidates, within a budget of memory."""

    kept: dict[str, list[Segment]] = field(default_factory=dict)
    warm: dict[str, list[Call]] = field(default_factory=dict)
    repeats: dict[str, list[Repeat]] = field(default_factory=dict)
    used_bytes: int = 0

    def take(self, name: str, rng: random.Random) -> list[Segment]:
        """Kept segments of a workload in random order, some of them dropped (to be drawn anew)."""
        segments = self.kept.setdefault(name, [])
        drop = min(len(segments), max(1, min(_MAX_DRAWS_ANEW, len(segments) // 4))) if segments else 0
        for _ in range(drop):
            gone = segments.pop(rng.randrange(len(segments)))
            self.used_bytes -= gone.size_bytes
        chosen = list(segments)
        rng.shuffle(chosen)
        return chosen

    def keep(self, segment: Segment) -> None:
        """Keep one, if there is room."""
        size = segment.size_bytes
        if self.used_bytes + size <= _KEPT_BYTES:
            self.used_bytes += size
            self.kept.setdefault(segment.case.name, []).append(segment)
