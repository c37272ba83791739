"""One workload of a problem, studied on the reference alone: what its inputs are like, what may vary, what it does to them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor

from tilecast.sandbox.harness.judge import changes, families, parameters
from tilecast.sandbox.harness.judge.compare import alike, compare_values
from tilecast.sandbox.harness.judge.failure import ProblemRefused
from tilecast.sandbox.harness.judge.input_profiles import InputProfile, profile_inputs
from tilecast.sandbox.harness.judge.landing import LANDING_BYTES
from tilecast.sandbox.harness.judge.layouts import LayoutBroke, Layouts, laid_out_like, layouts_of, ordered_like
from tilecast.sandbox.harness.judge.oracle import Answer, expect
from tilecast.sandbox.harness.judge.reference import Reference, fresh_seed
from tilecast.sandbox.harness.judge.runs import Contract, NativeRun
from tilecast.sandbox.harness.tensors import TensorSpec, tensors_in

_TRIES_PER_OPERAND = 4
_LAYOUT_LIMIT_BYTES = 1 << 28
_SMALL_BYTES = 1 << 26
_DRAWN_AT_ONCE = 8
"""Inputs drawn by one request, where so many come with its answer."""
FamilyChoice = tuple[str, int | None]
"""A family, and the only operand it applies to (None: all of them)."""


@dataclass
class WorkloadCase:
    """Everything known of one workload before a candidate is seen. Values are private to the judge."""

    name: str
    arguments: list[Any]
    state: dict[str, Tensor]
    rules: dict[str, parameters.Rule]
    profiles: list[InputProfile]
    tolerance: float | None
    domain: str
    contract: Contract = field(default_factory=Contract)
    overlaps: tuple[bool, ...] = ()
    tree: dict[str, Any] = field(default_factory=dict)  # what the reference returns, as encoded
    input_bytes: int = 0
    specs: list[TensorSpec] = field(default_factory=list)
    families: list[FamilyChoice] = field(default_factory=list)
    layouts: list[changes.LayoutKind] = field(default_factory=list)
    declared_is_finite: bool = True
    answer_s: float = math.inf
    """What the reference takes for one answer, truth and all: the least there was. The first ones pay for what comes first."""
    rows: int | None = None
    """If the inputs were cut for want of memory or time: to how many entries of their first axis."""
    batched: list[int] = field(default_factory=list)
    reseeds: bool = False  # its constructor sets the seed of torch's global generator

    @property
    def variable(self) -> list[int]:
        """Inputs that may change from call to call."""
        return [index for index, profile in enumerate(self.profiles) if profile.variable]

    def specs_of(self, names: Sequence[str]) -> dict[str, TensorSpec]:
        """Dense specs of entries of the state."""
        return {name: TensorSpec.dense(tuple(self.state[name].shape), self.state[name].dtype) for name in names}

    @property
    def call_bytes(self) -> int:
        """What one call with its answer takes in the judge: inputs, and outputs with their float64 truth and bounds."""
        return self.input_bytes + 6 * sum(spec.extent for spec in self.specs)

    @property
    def is_small(self) -> bool:
        """Whether calls are kept for further candidates and checked in every way."""
        return self.call_bytes <= _SMALL_BYTES


def generator(device: torch.device) -> Generator:
    """A private generator with a seed from the operating system."""
    return torch.Generator(device=device).manual_seed(fresh_seed())


class CaseBuilder:
    """Studies one workload after the other on a reference, which is never given inputs in the ``refused`` layouts."""

    def __init__(self, reference: Reference, refused: Sequence[changes.LayoutKind] = ()) -> None:
        self.reference, self.refused = reference, refused
        self.device = reference.session.options.device
        self.generator = generator(self.device)
        self._whole: list[list[Any]] = []
        self._stock: dict[str, list[list[Any]]] = {}
        """Draws of small workloads that are still to be used: one request brings several."""
        self._cuts = 0

    def build(self, name: str, rows: int | None = None, batched: Sequence[int] = ()) -> WorkloadCase:
        """Study a workload.

        Raises:
            ProblemRefused: if the reference fails, is not deterministic under one seed, or gives NaN.
        """
        reference = self.reference
        seed = fresh_seed()
        arguments = reference.init_arguments(name, seed)
        reference.select(name, fresh_seed())
        other = reference.state()
        reference.select(name, seed)
        state = reference.state()
        named = set(state) - reference.session.buffers
        rules = parameters.parameter_rules(state, other, named)
        case = WorkloadCase(name, arguments, state, rules, [], reference.tolerance, reference.domain)
        case.rows, case.batched = rows, list(batched)
        case.reseeds = reference.session.reseeded
        draws = [self.inputs(case), self.inputs(case)]
        case.profiles = profile_inputs(draws)
        self._study(case, draws[0])
        self._choose_families(case)
        self._choose_layouts(case, draws[0])
        return case

    def inputs(self, case: WorkloadCase, seed: int | None = None) -> list[Any]:
        """A draw of ``get_inputs`` that nobody has had (cut, where the case says so); with a ``seed`` the one from it."""
        if case.rows is not None:
            return self._cut(case)
        many = case.specs and _DRAWN_AT_ONCE * case.input_bytes <= LANDING_BYTES
        if seed is not None or not many:
            return self.reference.draw(case.name, seed)
        stock = self._stock.setdefault(case.name, [])
        if not stock:
            stock += self.reference.draw_many(case.name, _DRAWN_AT_ONCE)
        return stock.pop()

    def run(
        self, case: WorkloadCase, inputs: Sequence[Any], seed: int, layouts: Sequence[TensorSpec | None] = ()
    ) -> NativeRun:
        """The reference's answer within the case's contract; on a small workload :meth:`answer` has its truth by that."""
        start = time.perf_counter()
        native = self.reference.run(inputs, seed, layouts, case.contract, truth=case.is_small)
        if native.raw is not None:
            case.answer_s = min(case.answer_s, time.perf_counter() - start)
        return native

    def many_inputs(self, case: WorkloadCase, count: int) -> list[list[Any]]:
        """So many fresh draws, all in memory at once."""
        if case.rows is None:
            return self.reference.draw_many(case.name, count)
        return [self._cut(case) for _ in range(count)]

    def forget_cuts(self) -> None:
        """Start over with another choice of what is cut (the whole draws are kept)."""
        self._cuts = 0

    def _cut(self, case: WorkloadCase) -> list[Any]:
        """Inputs too large to be drawn for every call: each from one of two whole draws, at a random place."""
        assert case.rows is not None
        while len(self._whole) < 2:
            self._whole.append(self.reference.draw(case.name))
        self._cuts += 1
        values = []
        for index in range(len(self._whole[0])):
            # The first two cuts come from different draws: whether an input varies is judged by them.
            which = self._cuts % 2 if self._cuts <= 2 else families.below(2, self.generator)
            value = self._whole[which][index]
            if index in case.batched:
                start = families.below(value.shape[0] - case.rows + 1, self.generator)
                value = ordered_like(value[start : start + case.rows].clone(), value)
            values.append(value)
        return values

    def _study(self, case: WorkloadCase, inputs: list[Any]) -> None:
        seed = fresh_seed()
        native = self.reference.run(inputs, seed)
        if not native.outputs:
            raise ProblemRefused("INVALID_REFERENCE", f"workload {case.name!r}: the reference returns no tensor")
        case.specs, case.overlaps, case.tree = native.specs, native.overlaps, native.tree
        case.input_bytes = sum(item.numel() * item.element_size() for item in tensors_in(inputs))
        case.contract.include(native.effects)
        start = time.perf_counter()
        self.answer(case, inputs, native, seed)
        truth_s = time.perf_counter() - start
        case.declared_is_finite = all(families.is_finite(item) for item in native.values)
        if any(_has_nan(item) for item in native.values):
            raise ProblemRefused("INVALID_REFERENCE", f"workload {case.name!r}: the reference's own output holds NaN")
        start = time.perf_counter()
        again = self.reference.run(inputs, seed, contract=case.contract)
        case.answer_s = time.perf_counter() - start + truth_s
        for index, (first, second) in enumerate(zip(native.values, again.values, strict=True)):
            if not alike(first, second):
                where = f"workload {case.name!r}, output {index}: forward is random"
                reason = f"{where}: two runs on the same input and seed differ, so there is nothing to compare with"
                raise ProblemRefused("INVALID_REFERENCE", reason)

    def answer(
        self, case: WorkloadCase, inputs: list[Any], native: NativeRun, seed: int, layouts: Layouts | None = None
    ) -> Answer:
        """Expected outputs, with their bounds."""
        with self.reference.careful(case.call_bytes):
            raw = self.reference.raw(inputs, native, seed, layouts or [])
            return expect(raw, case.tolerance, inputs=inputs)

    def _choose_families(self, case: WorkloadCase) -> None:
        for name in families.family_names(case.profiles, case.domain):
            whole = (name, None)
            if name == families.UNEQUAL:  # each in turn: half of a chance is too little for a few calls
                alone = [(name, index) for index in families.scalable(case.profiles)[:_TRIES_PER_OPERAND]]
                case.families += [choice for choice in alone if self._survives(case, choice)]
                continue
            if name == families.DECLARED or self._survives(case, whole):
                case.families.append(whole)
                continue
            if len(case.variable) > 1:
                alone = [(name, index) for index in case.variable[:_TRIES_PER_OPERAND]]
                case.families += [choice for choice in alone if self._survives(case, choice)]

    def _survives(self, case: WorkloadCase, choice: FamilyChoice) -> bool:
        inputs = self.draw_family(case, choice)
        try:
            native = self.reference.run(inputs, fresh_seed())
        except ProblemRefused:
            self.reference.select(case.name)
            return False
        case.contract.include(native.effects)
        return families.survives(native.values, case.declared_is_finite)

    def draw_family(self, case: WorkloadCase, choice: FamilyChoice) -> list[Any]:
        """Fresh inputs of a family."""
        name, only = choice
        fresh = self.inputs(case)
        return laid_out_like(families.draw(name, case.profiles, fresh, self.generator, only), fresh)

    def _choose_layouts(self, case: WorkloadCase, inputs: list[Any]) -> None:
        case.layouts = ["contiguous"]
        if case.input_bytes > _LAYOUT_LIMIT_BYTES:
            return
        seed = fresh_seed()
        plain = self.reference.run(inputs, seed, contract=case.contract)
        for kind in changes.layout_kinds(case.domain):
            known = kind == "contiguous" or kind in self.refused
            if not known and self._accepts(case, inputs, kind, plain, seed):
                case.layouts.append(kind)

    def _accepts(
        self, case: WorkloadCase, inputs: list[Any], kind: changes.LayoutKind, plain: NativeRun, seed: int
    ) -> bool:
        """Whether the reference takes a layout: it runs, and gives what it gave on the same values without (``plain``)."""
        try:
            native = self.reference.run(inputs, seed, layouts_of(inputs, kind), case.contract)
        except ProblemRefused:
            self._recover(case, inputs, kind, seed)
            return False
        # A layout under which the reference aliases more (a reshape that needs no copy) is another contract.
        if not {(a, b) for a, b in native.effects["aliases"]} <= case.contract.aliases:
            return False
        if len(native.values) == len(plain.values) and all(map(alike, plain.values, native.values)):
            return True
        # Equal elements may be named in another order.
        return agrees(self.answer(case, inputs, plain, seed), native)

    def _recover(self, case: WorkloadCase, inputs: list[Any], kind: changes.LayoutKind, seed: int) -> None:
        """After a failure in a layout: a GPU's process may be of no use any more, for one misaligned address is enough.

        Raises:
            LayoutBroke: if the reference fails without the layout as well.
            ProblemRefused: if all that it lacks is memory, which other judges may have: that says nothing of the layout.
        """
        try:
            self.reference.select(case.name)
            self.reference.run(inputs, seed, contract=case.contract)
        except ProblemRefused as refused:
            if refused.status == "OUT_OF_MEMORY" and self.reference.session.alive:
                raise
            raise LayoutBroke(kind) from refused

    def new_state(self, case: WorkloadCase) -> dict[str, Tensor]:
        """Other values for the parameters that may vary, already set in the reference's module; empty if there are none."""
        made = parameters.randomise(case.state, case.rules, self.generator)
        self.reference.set_state(made)
        return made


def agrees(answer: Answer, native: NativeRun) -> bool:
    """Whether a run of the reference itself would be accepted as this answer."""
    return len(native.values) == len(answer.outputs) and compare_values(answer, native.values).passed


def _has_nan(value: Tensor) -> bool:
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return False
    return bool(torch.isnan(value.float() if value.dtype.itemsize == 1 else value).any())


def private_random() -> random.Random:
    """Python's generator with a seed from the operating system."""
    return random.Random(fresh_seed())
