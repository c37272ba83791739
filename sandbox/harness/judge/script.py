"""What one candidate will be asked, drawn before it is: segments of calls with inputs, expected outputs and parameters.

A segment starts with its own parameters and a fresh draw, so segments can come in any order; they may be kept and used
for further candidates (a worker is thrown away, and never sees contents twice), with some drawn anew each time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilecast.sandbox.harness.judge import changes, families, planting, probes
from tilecast.sandbox.harness.judge.case import CaseBuilder, FamilyChoice, WorkloadCase, agrees
from tilecast.sandbox.harness.judge.failure import ProblemRefused
from tilecast.sandbox.harness.judge.layouts import Layouts, laid_out_like, layouts_of
from tilecast.sandbox.harness.judge.oracle import expect
from tilecast.sandbox.harness.judge.probes import Step, fresh_families
from tilecast.sandbox.harness.judge.reference import fresh_seed
from tilecast.sandbox.harness.judge.runs import NativeRun
from tilecast.sandbox.harness.judge.segments import Call, Repeat, Segment

POPULAR_SEEDS = (0, 1, 2, 3, 42, 123, 1234, 1337, 2024, 2025)


class ScriptMaker:
    """Draws segments of one workload."""

    def __init__(self, builder: CaseBuilder, case: WorkloadCase, rng: random.Random) -> None:
        self.builder, self.case, self.rng = builder, case, rng
        self._choices = {_spell(choice): choice for choice in case.families}

    def warm_calls(self, most: int | None = None) -> list[Call]:
        """One call a layout: whatever a candidate compiles is compiled by these."""
        self.builder.reference.select(self.case.name)
        self.builder.reference.set_state(self.case.state)
        steps = [Step(families.DECLARED, layout=kind) for kind in self.case.layouts[:most]]
        calls = [self._call(step, None) for step in steps]
        resized = self._resized() if most is None else None
        return calls if resized is None else [*calls, resized]

    def _resized(self) -> Call | None:
        """One call with another number of rows, where the problem has several sizes and its reference takes this one."""
        case, drawn, other = self.case, self.builder.inputs(self.case), self.builder.inputs(self.case)
        shapes = [spec.shape for spec in case.specs]
        if not all(shapes) or len({shape[0] for shape in shapes}) != 1:
            return None
        rows = shapes[0][0]
        counts = changes.row_counts(rows, len(self.builder.reference.workloads), case.domain)
        # A size that the constructor was given may be built into the module.
        if not counts or rows in case.arguments or case.rows is not None:
            return None
        count = self.rng.choice(counts)
        for batched in changes.batch_choices(drawn, rows):
            made = self._with_rows(changes.with_rows(drawn, batched, count, other), count)
            if made is not None:
                return made
        return None

    def _with_rows(self, inputs: list[Any], count: int) -> Call | None:
        seed, reference, case = fresh_seed(), self.builder.reference, self.case
        try:
            native = self.builder.run(case, inputs, seed)
            if any(spec.shape[:1] != (count,) for spec in native.specs) or len(native.specs) != len(case.specs):
                return None
            answer = self.builder.answer(case, inputs, native, seed)
        except ProblemRefused:
            reference.select(case.name)
            return None
        return Call(Step(families.DECLARED, content="rows"), inputs, [], answer, seed, native.specs)

    def repeat_calls(self, *, popular: bool) -> list[Repeat]:
        """Declared inputs to be given twice: a fresh draw and, if asked for, those of seeds that people guess."""
        self.builder.reference.select(self.case.name)
        self.builder.reference.set_state(self.case.state)
        drawn = [self.builder.inputs(self.case)]
        if popular:
            drawn += [self.builder.inputs(self.case, seed) for seed in POPULAR_SEEDS]
        return [Repeat(self._repeated(inputs), self._altered(inputs)) for inputs in drawn]

    def _repeated(self, inputs: list[Any], content: probes.Content = "fresh") -> Call:
        seed = fresh_seed()
        native = self.builder.run(self.case, inputs, seed)
        answer = self.builder.answer(self.case, inputs, native, seed)
        return Call(Step(families.DECLARED, content, poison=self.rng.randrange(2)), inputs, [], answer, seed)

    def _altered(self, inputs: list[Any]) -> Call | None:
        donor = self.builder.inputs(self.case)
        made = changes.change_elements(self.case.profiles, inputs, donor, self.builder.generator)
        return None if made is None else self._repeated(laid_out_like(made, inputs), "elements")

    def burst(self, asked: Counter[str] | None = None) -> list[Step]:
        """Calls back to back; families that were ``asked`` the least come first."""
        return probes.burst(self.rng, self._names((), asked or Counter()), len(self.case.variable))

    def _names(self, kept: Sequence[Segment], asked: Counter[str]) -> list[str]:
        """Families, those first of which the segments ``kept`` have the fewest, then those ``asked`` the least elsewhere."""
        here = fresh_families(step for segment in kept for step in segment.steps)
        names = list(self._choices)
        self.rng.shuffle(names)
        names.sort(key=lambda name: (here[name], asked[name]))
        return names

    def plan(self, calls: int, kept: Sequence[Segment] = (), asked: Counter[str] | None = None) -> list[list[Step]]:
        """Steps of each segment, about ``calls`` in all; for ``kept`` and ``asked`` see :meth:`_names`."""
        names = self._names(kept, asked or Counter())
        steps = probes.schedule(self.rng, names, calls, len(self.case.variable), self.case.layouts or ["contiguous"])
        groups: list[list[Step]] = [[]]
        for step in steps:
            if step.update_parameters and groups[-1]:
                groups.append([])
            groups[-1].append(step)
        return [self._with_planted(self._with_a_change(group)) for group in groups]

    def _with_a_change(self, group: list[Step]) -> list[Step]:
        """At least one call whose inputs differ in few elements from the call before: who keeps answers must look at all."""
        operands = len(self.case.variable)
        if not operands or len(group) < 2 or any(step.burst or step.content != "fresh" for step in group[1:]):
            return group
        place = self.rng.randrange(1, len(group))
        made = list(group)
        # Both in the same tensor objects: who goes by addresses takes the second for the first as well.
        made[place - 1] = replace(made[place - 1], buffer="refill", layout="contiguous")
        operand = self.rng.randrange(operands)
        made[place] = replace(made[place], content="elements", buffer="refill", layout="contiguous", operand=operand)
        return made

    def _with_planted(self, group: list[Step]) -> list[Step]:
        """Now and then a NaN or an infinity, where any value may come."""
        if self.case.domain == "declared" or not self.case.variable or group[-1].burst:
            return group
        return [*group, Step(families.DECLARED, content="nan"), Step(families.DECLARED, content="inf")]

    def segment(self, steps: list[Step]) -> Iterator[Call | Segment]:
        """Draw the calls of a segment one by one: first the segment itself (with its parameters), then each call."""
        self.builder.reference.select(self.case.name)
        state = self.builder.new_state(self.case) or self.case.state
        yield Segment(self.case, state)
        previous: Call | None = None
        for index, step in enumerate(steps):
            call = self._call(step if index else replace(step, content=_first(step)), previous)
            previous = call if call.step.content not in ("nan", "inf") else None
            yield call

    def _call(self, step: Step, previous: Call | None) -> Call:
        if step.content in ("nan", "inf"):
            made = self._planted(step)
            if made is not None:
                return made
            step = replace(step, content="fresh")
        inputs = self._changed(step, previous)
        if inputs is None:
            step = replace(step, content="fresh")
            inputs = self.builder.draw_family(self.case, self._choices.get(step.family, (families.DECLARED, None)))
        if step.layout not in self.case.layouts:  # no longer trusted since this step was planned
            step = replace(step, layout="contiguous")
        layouts = layouts_of(inputs, step.layout)  # type: ignore[arg-type]
        seed = fresh_seed()
        native = self.builder.run(self.case, inputs, seed, layouts)
        if layouts and not all(families.is_finite(value) for value in native.values):
            return self._in_doubt(step, inputs, layouts, native, seed)
        return Call(step, inputs, layouts, self.builder.answer(self.case, inputs, native, seed, layouts), seed)

    def _in_doubt(self, step: Step, inputs: list[Any], layouts: Layouts, native: NativeRun, seed: int) -> Call:
        """A call whose reference was not finite in its layout: the same values laid out plainly decide what is expected.

        A reference that answers those otherwise let something in that lies between the rows or behind them. So would a
        candidate that calls the same library: the layout is given up for the workload.
        """
        plain = self.builder.run(self.case, inputs, seed)
        answer = self.builder.answer(self.case, inputs, plain, seed)
        if not agrees(answer, native):
            self.case.layouts = [kind for kind in self.case.layouts if kind != step.layout]
            step, layouts = replace(step, layout="contiguous"), []
        return Call(step, inputs, layouts, answer, seed)

    def _changed(self, step: Step, previous: Call | None) -> list[Any] | None:
        if step.content == "fresh" or previous is None:
            return None
        choice = self._choices.get(previous.step.family, (families.DECLARED, None))
        donor = self.builder.draw_family(self.case, choice)
        operand = None if step.operand is None else self.case.variable[step.operand % len(self.case.variable)]
        if step.content == "operand" and operand is not None:
            return changes.change_operand(previous.inputs, donor, operand)
        made = changes.change_elements(self.case.profiles, previous.inputs, donor, self.builder.generator, operand)
        return None if made is None else laid_out_like(made, previous.inputs)

    def _planted(self, step: Step) -> Call | None:
        what = "nan" if step.content == "nan" else "inf"
        base = self.builder.draw_family(self.case, (families.DECLARED, None))
        made = planting.plant(what, self.case.profiles, base, self.builder.generator)  # type: ignore[arg-type]
        if made is None:
            return None
        inputs = laid_out_like(made.inputs, base)
        seed, reference, contract = fresh_seed(), self.builder.reference, self.case.contract
        try:
            native = self.builder.run(self.case, inputs, seed)
            low = reference.run(made.low, seed, contract=contract)
            high = reference.run(made.high, seed, contract=contract)
            depends = planting.dependent(low.values, high.values)
            with reference.careful(self.case.call_bytes):
                raw = reference.raw(inputs, native, seed)
                answer = expect(raw, self.case.tolerance, nonfinite=made.nonfinite, depends=depends, inputs=inputs)
        except ProblemRefused:
            reference.select(self.case.name)
            return None
        return Call(replace(step, layout="contiguous"), inputs, [], answer, seed)


def _first(step: Step) -> probes.Content:
    return step.content if step.content in ("nan", "inf") else "fresh"


def _spell(choice: FamilyChoice) -> str:
    name, only = choice
    return name if only is None else f"{name} (input {only})"
