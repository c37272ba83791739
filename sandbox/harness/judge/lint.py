"""``tilecast lint``: would the checker catch a wrong kernel on this problem? Mutations go through the very comparison
that candidates meet.

A mutation *passes* if no set of inputs that a verification would use exposes it. The reference alone runs here; there
is no candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tilecast.sandbox.harness.judge import mutations
from tilecast.sandbox.harness.judge.case import CaseBuilder, WorkloadCase
from tilecast.sandbox.harness.judge.compare import compare_values
from tilecast.sandbox.harness.judge.failure import ProblemRefused
from tilecast.sandbox.harness.judge.families import DECLARED
from tilecast.sandbox.harness.judge.mutations import Mutation
from tilecast.sandbox.harness.judge.oracle import Answer
from tilecast.sandbox.harness.judge.reference import fresh_seed
from tilecast.sandbox.harness.judge.structure import Comparison
from tilecast.sandbox.harness.judge.study import Study

Progress = Callable[[str], None]
_TOLD_EVERY = 4
_DRAWS = 2
"""Sets of inputs a family: a mutation must be exposed by what any single verification is sure to use."""


@dataclass
class _Tally:
    """How one mutation (in one variant, such as a precision) fared."""

    mutation: Mutation
    variant: str
    tried: int = 0
    caught: Comparison | None = None
    worst_ratio: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.mutation.name} ({self.variant})" if self.variant else self.mutation.name

    @property
    def would_pass(self) -> bool:
        return self.tried > 0 and self.caught is None

    def add(self, result: Comparison) -> None:
        self.tried += 1
        self.worst_ratio = max(self.worst_ratio, result.ratio)
        if not result.passed and self.caught is None:
            self.caught = result

    def to_message(self) -> dict[str, Any]:
        if self.caught is not None:
            detail = f"a kernel that {self.mutation.means} is caught: {self.caught.reason}"
        else:
            detail = (
                f"a kernel that {self.mutation.means} would PASS: at most {self.worst_ratio:.2g} times what is allowed"
            )
        return {"name": self.name, "would_pass": self.would_pass, "detail": detail[:600]}


@dataclass
class _Lint:
    builder: CaseBuilder
    tallies: dict[tuple[str, str], _Tally] = field(default_factory=dict)
    constant: list[set[str]] = field(default_factory=list)
    """Per workload, the axes along which an output never varies."""
    identities: list[set[str]] = field(default_factory=list)
    """Per workload, the inputs that have the output's shape."""

    def add(self, mutation: Mutation, variant: str, answer: Answer, outputs: list[Tensor] | None, where: str) -> None:
        if outputs is None:
            return
        tally = self.tallies.setdefault((mutation.name, variant), _Tally(mutation, variant))
        if tally.caught is None:
            tally.add(compare_values(answer, outputs, where))

    def case(self, case: WorkloadCase, progress: Progress) -> None:
        """All mutations on every family of one workload."""
        reference = self.builder.reference
        reference.select(case.name)
        self.builder.new_state(case)
        self.identities.append(set())
        seen: list[list[Tensor]] = []
        for number, choice in enumerate(case.families, 1):
            if number % _TOLD_EVERY == 1:
                progress(f"input family {number} of {len(case.families)}")
            for _ in range(_DRAWS):
                inputs = self.builder.draw_family(case, choice)
                seed = fresh_seed()
                native = self.builder.run(case, inputs, seed)
                answer = self.builder.answer(case, inputs, native, seed)
                where = f"workload {case.name!r}, {choice[0]} inputs"
                self._outputs(answer, native.values, native.outputs, inputs, where)
                if seen and _alike(seen[-1], native.values):
                    self.add(mutations.STALE, "", answer, seen[-1], where)
                self._precision(case, answer, inputs, native.values, where)
                seen.append(native.values)
        finite = [draw for draw in seen if all(item.numel() for item in draw)]
        if finite:
            self.constant.append(set(mutations.constant_axes(finite)))

    def _outputs(self, answer: Answer, values: list[Tensor], count: int, inputs: list[Any], where: str) -> None:
        for mutation in mutations.OUTPUT_MUTATIONS:
            self.add(mutation, "", answer, mutations.mutate_outputs(mutation, values), where)
        for number, stand_in in enumerate(mutations.identities(values[:count], inputs)):
            if len(values) == count:
                variant = f"input {number}" if number else ""
                self.identities[-1].add(variant)
                self.add(mutations.IDENTITY, variant, answer, stand_in, where)

    def settle(self) -> None:
        """An input that has the output's shape on some workloads only gives itself away on the others."""
        for (name, variant), tally in self.tallies.items():
            everywhere = all(variant in found for found in self.identities)
            if name == mutations.IDENTITY.name and tally.caught is None and not everywhere:
                tally.caught = Comparison("INCORRECT_SHAPE", "its shape is not the output's on every workload")

    def _precision(
        self, case: WorkloadCase, answer: Answer, inputs: list[Any], values: list[Tensor], where: str
    ) -> None:
        """Operands or results of a lower precision than the problem's."""
        floats = {v.dtype for v in inputs if isinstance(v, Tensor) and v.dtype.is_floating_point}
        names = sorted({name for dtype in floats for name in mutations.lower_precisions(dtype)})
        exact = all(not item.dtype.is_floating_point for item in values)
        for name in names:
            if exact:
                continue
            rounded = mutations.rounded_inputs(inputs, name)
            try:
                moved = self.builder.reference.run(rounded, fresh_seed(), contract=case.contract)
            except ProblemRefused:
                self.builder.reference.select(case.name)
                continue
            self.add(mutations.LOW_INPUT, name, answer, moved.values, where)
        for name in sorted({n for v in values for n in mutations.lower_precisions(v.dtype)}):
            self.add(mutations.LOW_OUTPUT, name, answer, mutations.rounded_outputs(values, name), where)


def _alike(a: list[Tensor], b: list[Tensor]) -> bool:
    return [item.shape for item in a] == [item.shape for item in b]


def lint_study(study: Study, progress: Progress) -> dict[str, Any]:
    """``{"mutations": [{"name", "would_pass", "detail"}], "weak": bool, "advice": [...]}`` for a problem that can be
    studied.
    """
    lint = _Lint(study.builder)
    for number, case in enumerate(study.cases, 1):
        place = f"workload {number} of {len(study.cases)}, {case.name}"
        if any(spec.elements for spec in case.specs):
            lint.case(case, lambda part, place=place: progress(f"wrong answers on {place}: {part}"))  # type: ignore[misc]
    lint.settle()
    tallies = list(lint.tallies.values())
    weak = any(tally.would_pass for tally in tallies)
    return {
        "mutations": [tally.to_message() for tally in tallies],
        "weak": weak,
        "advice": [*_advice(tallies), *_notes(study, lint)],
    }


def refused(reason: str) -> dict[str, Any]:
    """The answer where the problem itself is refused: nothing can be trusted on it."""
    return {"mutations": [], "weak": True, "advice": [f"the problem is refused: {reason}"]}


def _advice(tallies: list[_Tally]) -> Iterator[str]:
    for tally in tallies:
        if tally.would_pass:
            yield f"{tally.name}: a kernel that {tally.mutation.means} would pass; {tally.mutation.advice}"


def _notes(study: Study, lint: _Lint) -> Iterator[str]:
    """What makes a problem easier to fool without any mutation passing."""
    everywhere = set.intersection(*lint.constant) if lint.constant else set()
    for place in sorted(everywhere):
        yield f"{place} never varies: one slice computed is as good as all"
    if any(case.domain == DECLARED for case in study.cases):
        yield "DOMAIN is declared: kernels are only tried on values as get_inputs draws them"
    if len(study.cases) == 1:
        yield "only one workload is checked here: kernels that are right for one size alone would pass"
