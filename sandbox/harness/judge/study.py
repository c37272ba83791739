"""A problem studied once and used for many candidates: which workloads are checked here, and whether it is fit to be used."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge import changes, families, parameters
from tilecast.sandbox.harness.judge.case import CaseBuilder, WorkloadCase, private_random
from tilecast.sandbox.harness.judge.compare import compare_values
from tilecast.sandbox.harness.judge.describe import describe_problem
from tilecast.sandbox.harness.judge.failure import ProblemRefused
from tilecast.sandbox.harness.judge.layouts import LayoutBroke
from tilecast.sandbox.harness.judge.reference import FULL, Reference, fresh_seed
from tilecast.sandbox.harness.judge.script import ScriptMaker
from tilecast.sandbox.harness.judge.segments import SegmentStore
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.wire import Message

Progress = Callable[[str], None]
_COPIES = 16
"""Copies of a workload's data that a check holds at once, float64 ones counted double."""
_CPU_FLOPS = 4e9
"""More than this a call and a CPU check on ``full`` would take minutes: the inputs are cut instead."""
_CUT_ROWS = 48
_CPU = torch.device("cpu")


@dataclass
class Study:
    """Reference, workload cases and script makers of one problem on one device."""

    reference: Reference
    builder: CaseBuilder
    cases: list[WorkloadCase]
    makers: dict[str, ScriptMaker]
    store: SegmentStore = field(default_factory=SegmentStore)
    notes: list[str] = field(default_factory=list)

    def close(self) -> None:
        """End the reference's worker."""
        self.reference.close()


def study_problem(zygotes: Zygotes, problem: Message, device: torch.device, progress: Progress) -> Study:
    """Load the reference and study every workload that is checked on this device.

    Raises:
        ProblemRefused: INVALID_REFERENCE or OUT_OF_MEMORY, with the reason.
    """
    refused: list[changes.LayoutKind] = []
    while True:
        try:
            return _study(zygotes, problem, device, progress, refused)
        except LayoutBroke as broke:  # once a layout at most: it is not tried again
            refused.append(broke.kind)


def _study(
    zygotes: Zygotes, problem: Message, device: torch.device, progress: Progress, refused: list[changes.LayoutKind]
) -> Study:
    """One try, in a worker of its own, without the layouts that are ``refused``.

    Raises:
        ProblemRefused: as :func:`study_problem`.
        LayoutBroke: if a layout ended the reference's worker.
    """
    reference = Reference.open(zygotes, problem, device)
    try:
        builder = CaseBuilder(reference, refused)
        notes = [f"the reference breaks down on inputs in the {kind} layout: it is not asked for" for kind in refused]
        cases = []
        names = workloads_to_check(reference, device, notes)
        for number, name in enumerate(names, 1):
            progress(f"studying workload {number} of {len(names)}, {name}")
            cases.append(_build(builder, name, device, notes))
        check_sensitivity(builder, cases)
        rng = private_random()
        makers = {case.name: ScriptMaker(builder, case, rng) for case in cases}
        reference.note_settings()
        reference.proven = True
        return Study(reference, builder, cases, makers, notes=notes)
    except BaseException:
        reference.close()
        raise


def workloads_to_check(reference: Reference, device: torch.device, notes: list[str]) -> list[str]:
    """On a GPU every workload; on a CPU those called ``small…``, and ``full`` where there are none."""
    if device.type == "cuda":
        return list(reference.workloads)
    small = [name for name in reference.workloads if name.startswith("small")]
    if small:
        return small
    notes.append("no workload is called small…: the CPU checks `full`")
    return [FULL]


def _build(builder: CaseBuilder, name: str, device: torch.device, notes: list[str]) -> WorkloadCase:
    if device.type == "cuda" or name != FULL:
        return builder.build(name)
    facts = builder.reference.describe(name)
    if "failed" in facts or not _too_large(facts):
        return builder.build(name)
    needed = _data_bytes(facts)
    if needed * 4 > free_bytes(_CPU):
        reason = (
            f"workload `full` needs about {needed >> 20} MiB for one set of inputs and outputs; add a small workload"
        )
        raise ProblemRefused("OUT_OF_MEMORY", reason)
    drawn = builder.reference.draw(name)
    for batched in _cut_choices(drawn, facts):
        builder.forget_cuts()
        try:
            case = builder.build(name, _CUT_ROWS, batched)
        except ProblemRefused:
            continue
        notes.append(
            f"`full` is too large for this CPU: checked with the first axis of input {batched} cut to {_CUT_ROWS}"
        )
        return case
    if needed * _COPIES > free_bytes(_CPU):
        reason = f"workload `full` needs about {needed * _COPIES >> 20} MiB to be checked; add a small workload"
        raise ProblemRefused("OUT_OF_MEMORY", reason)
    return builder.build(name)


def _too_large(facts: Message) -> bool:
    return float(facts["flops"]) > _CPU_FLOPS or _data_bytes(facts) * _COPIES > free_bytes(_CPU) // 2


def _data_bytes(facts: Message) -> int:
    total = 0
    for item in [*facts["inputs"], *facts["outputs"], *facts["parameters"]]:
        size = 8
        dtype = getattr(torch, str(item["dtype"]), None)
        if isinstance(dtype, torch.dtype):
            size = dtype.itemsize
        count = 1
        for length in item["shape"]:
            count *= int(length)
        total += size * count
    return total


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _cut_choices(drawn: list[Any], facts: Message) -> list[list[int]]:
    """Sets of inputs whose first axis may be the batch: all that share the output's, then each alone."""
    sizes = {int(item["shape"][0]) for item in facts["outputs"] if item["shape"]}
    tensors = [i for i, v in enumerate(drawn) if isinstance(v, Tensor) and v.ndim and v.shape[0] > _CUT_ROWS]
    shared = [i for i in tensors if drawn[i].shape[0] in sizes]
    choices = [shared, *([i] for i in shared), *([i] for i in tensors)]
    return [choice for n, choice in enumerate(choices) if choice and choice not in choices[:n]]


def check_sensitivity(builder: CaseBuilder, cases: list[WorkloadCase]) -> None:
    """Every input and every parameter must matter to the output, under some values of some workload.

    Raises:
        ProblemRefused: naming the input or parameter that does not, or saying that the output is constant.
    """
    unproven: set[str] = set()
    proven: set[str] = set()
    for case in cases:
        if not any(spec.elements for spec in case.specs):
            continue
        builder.reference.select(case.name)
        for subject in _subjects(case) - proven:
            (proven if _matters(builder, case, subject) else unproven).add(subject)
    missing = sorted(unproven - proven)
    if not missing:
        return
    if {item for item in missing if item.startswith("input")} and not {p for p in proven if p.startswith("input")}:
        raise ProblemRefused(
            "INVALID_REFERENCE", "the reference's output is the same for every input: any constant passes"
        )
    listed = ", ".join(missing)
    raise ProblemRefused(
        "INVALID_REFERENCE", f"the reference's output does not depend on {listed}: a candidate may ignore it"
    )


def _subjects(case: WorkloadCase) -> set[str]:
    inputs = {f"input {index}" for index in case.variable}
    named = {f"parameter {name}" for name, rule in case.rules.items() if rule != "keep"}
    return inputs | named


def _matters(builder: CaseBuilder, case: WorkloadCase, subject: str) -> bool:
    kind, _, name = subject.partition(" ")
    for choice in case.families[:6]:
        base = builder.draw_family(case, choice)
        seed = fresh_seed()
        native = builder.reference.run(base, seed, contract=case.contract)
        answer = builder.answer(case, base, native, seed)
        if kind == "input":
            donor = builder.draw_family(case, choice)
            changed = changes.change_operand(base, donor, int(name))
            moved = builder.reference.run(changed, seed, contract=case.contract)
        else:
            rules: dict[str, parameters.Rule] = {name: case.rules[name]}
            builder.reference.set_state(parameters.randomise(case.state, rules, builder.generator))
            moved = builder.reference.run(base, seed, contract=case.contract)
            builder.reference.set_state({name: case.state[name]})
        if not compare_values(answer, moved.values).passed and families.survives(moved.values, case.declared_is_finite):
            return True
    return False


def preflight(study_it: Callable[[], Study]) -> Message:
    """The fields of the host's ``Preflight``: facts of the problem, or why it is refused."""
    start = time.monotonic()
    try:
        study = study_it()
        facts = describe_problem(study.reference, study.notes)
    except ProblemRefused as refused:
        answer = {"status": refused.status, "reason": refused.reason, "facts": None}
        return {**answer, "seconds": time.monotonic() - start}
    facts["mutates_inputs"] = any(case.contract.written_inputs for case in study.cases)
    return {"status": "PASSED", "reason": "", "facts": facts, "seconds": time.monotonic() - start}
