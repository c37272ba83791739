"""Contents for timed calls, drawn as the problem draws them, and the strict rule behind the quick check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from tilecast.sandbox.harness.judge.case import CaseBuilder, WorkloadCase
from tilecast.sandbox.harness.judge.compare import compare_values
from tilecast.sandbox.harness.judge.failure import Failure
from tilecast.sandbox.harness.judge.oracle import default_tolerance
from tilecast.sandbox.harness.judge.reference import fresh_seed
from tilecast.sandbox.harness.judge.timing.workers import Content
from tilecast.sandbox.harness.tensors import TensorSpec, tensors_in

_DRAWN_BYTES = 1 << 30
"""Inputs that are drawn in one request, at most: the reference's worker holds them until they are taken."""


class CaseContents:
    """The contents of one workload, from its reference's own worker."""

    def __init__(self, builder: CaseBuilder, case: WorkloadCase) -> None:
        self.builder, self.case = builder, case
        first = builder.inputs(case)
        inputs = sum(TensorSpec.dense(tuple(t.shape), t.dtype).extent for t in tensors_in(first))
        self._together = max(1, _DRAWN_BYTES // max(1, inputs))
        self.call_bytes = inputs + sum(spec.extent for spec in case.specs)
        """Memory that one call's inputs and outputs take."""

    @property
    def tolerances(self) -> tuple[float, ...]:
        """Relative, one an output."""
        given = self.case.tolerance
        return tuple(_tolerance(spec, given) for spec in self.case.specs)

    def draw(self, count: int) -> list[Content]:
        """Fresh draws of ``get_inputs``, each from a seed of the operating system."""
        seeded = self.case.contract.consumes_rng
        drawn: list[list[Any]] = []
        while len(drawn) < count:  # asking takes longer than drawing where a call is short
            drawn += self.builder.many_inputs(self.case, min(count - len(drawn), self._together))
        return [Content(inputs, fresh_seed() if seeded else None) for inputs in drawn]

    def strict(self, content: Content, outputs: Sequence[Tensor | None]) -> Failure | None:
        """Float64 truth and error budget for these very inputs."""
        got = [item for item in outputs if item is not None]
        if len(got) != len(self.case.specs):
            return Failure("INCORRECT_SHAPE", f"a timed call returned {len(got)} outputs of {len(self.case.specs)}")
        reference, seed = self.builder.reference, content.seed or fresh_seed()
        reference.select(self.case.name)
        reference.set_state(self.case.state)
        native = reference.run(content.inputs, seed)
        answer = self.builder.answer(self.case, content.inputs, native, seed)
        result = compare_values(replace(answer, outputs=answer.outputs[: len(got)]), got, "a timed call: ")
        return None if result.passed else Failure(result.status, result.reason)


def _tolerance(spec: TensorSpec, given: float | None) -> float:
    if not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        return 0.0
    return default_tolerance(spec.dtype) if given is None else given
