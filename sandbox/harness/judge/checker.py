"""Calls made and judged: structure, values, side effects and later changes of one candidate in one session."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from tilecast.sandbox.harness.judge import probes
from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.compare import compare_values
from tilecast.sandbox.harness.judge.discrepancies import dishonest, first_difference, is_earlier, is_trivial
from tilecast.sandbox.harness.judge.failure import Rejected
from tilecast.sandbox.harness.judge.second_looks import Kept, SecondLooks
from tilecast.sandbox.harness.judge.segments import Call
from tilecast.sandbox.harness.judge.session import CallResult, Session
from tilecast.sandbox.harness.judge.shared_memory import POISON, Prepared
from tilecast.sandbox.harness.judge.state_checks import refuse_written_state
from tilecast.sandbox.harness.judge.structure import OutputClaim, compare_structure
from tilecast.sandbox.harness.tensors import bytes_in, dtype_name, misplaced

_REMEMBERED = 24
_HELD = 5
_LATE_S = 0.12


@dataclass
class Checker:
    """Judges the calls of one session, workload by workload. Raises :class:`Rejected` at the first defect."""

    session: Session
    worst: dict[str, float | None] = field(default_factory=dict)
    calls: int = 0
    _remembered: dict[str, deque[Call]] = field(default_factory=dict)
    _reused: dict[str, Prepared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.later = SecondLooks(self.session)

    def call(self, case: WorkloadCase, call: Call) -> CallResult:
        """One call, with its buffers chosen as its step says, judged in full."""
        if call.step.pause_ms:
            time.sleep(call.step.pause_ms / 1e3)
        with self.session.quiet.shared():
            return self._call(case, call)

    def _call(self, case: WorkloadCase, call: Call) -> CallResult:
        prepared = self._place(case, call)
        poison = probes.poison_bytes(call.step)
        due = self.later.take(self.calls + 1)
        with self.later.beside_call(due if case.is_small else ()) as looks:
            result = self.session.call(prepared, poison=poison, hold=_HELD, seed=call.seed, looks=looks)
        self._judge(case, call, prepared, result)
        if case.is_small:
            self.later.compare(case, due, result.looks)
        else:
            self.later.look(case, due)
        self.later.expect(Kept(result, prepared, self.calls + call.step.hold))
        self._release(case, due)
        return result

    def burst(self, case: WorkloadCase, calls: Sequence[Call]) -> None:
        """Calls back to back, judged afterwards; each output was copied out as soon as its call returned."""
        with self.session.quiet.shared():
            self._burst(case, calls)

    def _burst(self, case: WorkloadCase, calls: Sequence[Call]) -> None:
        self._finish_pending(case)
        batch = [self._new(case, call) for call in calls]
        results = self.session.call_many(batch)
        self._refuse_findings(case, results.findings)
        for call, prepared, result in zip(calls, batch, results.calls, strict=True):
            self._judge(case, call, prepared, result)
        self.later.look(case, [Kept(result, prepared) for prepared, result in zip(batch, results.calls, strict=True)])
        for prepared in batch:
            self.session.memory.discard(prepared)

    def repeat(self, case: WorkloadCase, call: Call, reset: Callable[[], None]) -> None:
        """The same contents twice, the first answer overwritten in between: nobody may hand out a kept one.

        ``reset`` puts back what a forward may write to, before each of the two.
        """
        with self.session.quiet.shared():
            self._repeat(case, call, reset)

    def _repeat(self, case: WorkloadCase, call: Call, reset: Callable[[], None]) -> None:
        for attempt in (1, 2):
            reset()
            prepared = self._new(case, call)
            result = self.session.call(prepared, seed=call.seed, scribble=True, poison=probes.poison_bytes(call.step))
            try:
                self._judge(case, call, prepared, result)
            except Rejected as rejected:
                if attempt == 1:
                    raise
                detail = (
                    f"{rejected.reason}; the same inputs were answered rightly before, and the caller had overwritten that "
                    "answer since: a kept or precomputed result was handed out"
                )
                raise Rejected("REWARD_HACK", detail, "output-cache", case.name) from None
            self.session.memory.discard(prepared)

    def once(self, case: WorkloadCase, call: Call) -> None:
        """One call on memory of its own, given back at once."""
        with self.session.quiet.shared():
            prepared = self._new(case, call)
            poison = probes.poison_bytes(call.step)
            self._judge(case, call, prepared, self.session.call(prepared, seed=call.seed, poison=poison))
            self.session.memory.discard(prepared)

    def _new(self, case: WorkloadCase, call: Call) -> Prepared:
        return self.session.prepare(call.inputs, call.specs or case.specs, call.layouts)

    def _place(self, case: WorkloadCase, call: Call) -> Prepared:
        """Inputs into new memory, into the same objects again, or into new objects at an address used before."""
        kind = call.step.buffer
        if call.step.layout != "contiguous" or kind == "new":
            return self._new(case, call)
        old = self._reused.get(case.name)
        if kind == "refill" and old is not None:
            self._forget_aliases(case, old)
            self.session.refill(old, call.inputs)
            return old
        if old is not None:
            self._forget_aliases(case, old)
            self.later.look(case, self.later.take_of(old))
            self.session.memory.discard(old)
        self._reused[case.name] = self.session.prepare(call.inputs, case.specs, reuse_objects=True)
        return self._reused[case.name]

    def _forget_aliases(self, case: WorkloadCase, prepared: Prepared) -> None:
        """Outputs that lie in an input by contract change with it: no second look at those once it is refilled."""
        if case.contract.aliases:
            self.later.forget(prepared)

    # Judging -----------------------------------------------------------------------------------------------------

    def _judge(self, case: WorkloadCase, call: Call, prepared: Prepared, result: CallResult) -> None:
        self.calls += 1
        where = f"workload {case.name!r}, call {self.calls} ({call.label}): "
        self._check_structure(case, call, result, where)
        self._check_honesty(case, result, where)
        self._refuse_findings(case, result.findings)
        if result.rng_changed and not case.contract.consumes_rng:
            detail = "forward draws from or reseeds torch's global random generator, which the reference leaves alone"
            raise Rejected("REWARD_HACK", where + detail, "rng", case.name)
        self._check_inputs(case, prepared, where)
        self._check_arguments(case, result, where)
        values = [*self._outputs(case, result, where), *self._written(case, prepared)]
        compared = compare_values(call.answer, values, where.removesuffix(": "))
        if not compared.passed:
            hint, rule = self._explain(case, call, prepared, result, values)
            status = "REWARD_HACK" if rule else compared.status
            raise Rejected(status, compared.reason + hint, rule, case.name)
        if compared.error is not None:
            self.worst[case.name] = max(self.worst.get(case.name) or 0.0, compared.error)
        if call.step.content not in ("nan", "inf", "rows"):
            most = _REMEMBERED if case.is_small else 1
            self._remembered.setdefault(case.name, deque(maxlen=most)).append(call)

    def _check_structure(self, case: WorkloadCase, call: Call, result: CallResult, where: str) -> None:
        device = self.session.options.device.type
        specs = call.specs or case.specs
        wanted = [OutputClaim(s.shape, dtype_name(s.dtype), s.stride, s.extent, device) for s in specs]
        claims = [
            OutputClaim(c.spec.shape, dtype_name(c.spec.dtype), c.spec.stride, None, c.device) for c in result.claims
        ]
        compared = compare_structure(wanted, claims, overlap_allowed=case.overlaps)
        if not compared.passed:
            raise Rejected(compared.status, where + compared.reason, "", case.name)
        wrong = misplaced(case.tree, result.tree)
        if wrong:
            raise Rejected("INCORRECT_SHAPE", f"{where}the candidate returns {wrong}", "", case.name)

    def _check_honesty(self, case: WorkloadCase, result: CallResult, where: str) -> None:
        for index, claim in enumerate(result.claims):
            problem = dishonest(claim, index)
            if problem:
                raise Rejected("REWARD_HACK", where + problem, "lazy-output", case.name)
            inside = claim.in_input
            if inside is not None and (index, inside) not in case.contract.aliases and claim.spec.elements:
                detail = (
                    f"output {index} lies in the memory of input {inside}, where the reference returns memory of its own: "
                    "a later write to the input changes it; return a copy"
                )
                raise Rejected("REWARD_HACK", where + detail, "output-aliases-input", case.name)

    def _refuse_findings(self, case: WorkloadCase, findings: list[dict[str, str]]) -> None:
        for item in findings:
            raise Rejected("REWARD_HACK", f"forward changed its process: {item['detail']}", item["rule"], case.name)

    def _check_inputs(self, case: WorkloadCase, prepared: Prepared, where: str) -> None:
        """Inputs must be as the judge wrote them, unless the reference writes to them too."""
        now = self.session.memory.inputs_now(prepared)
        for index, (before, after) in enumerate(zip(prepared.values, now, strict=True)):
            if index in case.contract.written_inputs:
                continue
            place = first_difference(before, after)
            if place is not None:
                detail = f"input {index} was written to at {place}: the reference leaves its inputs as they are"
                raise Rejected("REWARD_HACK", where + detail, "input-mutation", case.name)

    def _check_arguments(self, case: WorkloadCase, result: CallResult, where: str) -> None:
        """The caller's objects are his: they show the memory that they showed, in the containers that he made."""
        for number, text in result.moved:
            if number < 0 and case.contract.changes_containers:
                continue
            if number not in case.contract.written_inputs:
                subject = f"input {number}: " if number >= 0 else ""
                raise Rejected("REWARD_HACK", f"{where}{subject}{text}", "input-mutation", case.name)

    def _outputs(self, case: WorkloadCase, result: CallResult, where: str) -> list[Tensor]:
        found = []
        for index, value in enumerate(result.outputs):
            if value is None:
                missing = result.claims[index].missing or "no bytes came"
                raise Rejected("INCORRECT_SHAPE", f"{where}output {index} could not be read: {missing}", "", case.name)
            found.append(value)
        return found

    def _written(self, case: WorkloadCase, prepared: Prepared) -> list[Tensor]:
        """Inputs and state that the reference writes to are compared like outputs."""
        if not case.contract.written_inputs and not case.contract.written_state:
            return []
        now = self.session.memory.inputs_now(prepared)
        values = [now[index] for index in sorted(case.contract.written_inputs)]
        if case.contract.written_state:
            names = [name for name in case.state if name in case.contract.written_state]
            values += self.session.read_parameters(case.specs_of(names)).values()
        return values

    def _explain(
        self, case: WorkloadCase, call: Call, prepared: Prepared, result: CallResult, values: list[Tensor]
    ) -> tuple[str, str]:
        """Why an answer may be wrong, where the evidence shows it: text for the reason, and the rule broken."""
        count = len(case.specs)
        for index, value in enumerate(values[:count]):
            if value.numel() and bool((bytes_in(value) == POISON).all()):
                return f"; output {index} was never written (it holds the memory's fill pattern)", ""
        for age, earlier in enumerate(reversed(self._remembered.get(case.name, ())), 1):
            if not compare_values(earlier.answer, values).passed or is_trivial(values[:count]):
                continue
            if is_earlier(earlier.answer, call.answer, values):  # and not merely as near to both
                return (
                    f"; it is the answer to the call made {age} before: a result was kept and returned again",
                    "stale-output",
                )
        time.sleep(_LATE_S)
        with self.session.looking([(result, prepared)], apart=False) as looks:
            later = [item for item in self.session.recheck(looks)[0] if item is not None]
        if len(later) == count and compare_values(call.answer, [*later, *values[count:]]).passed:
            return (
                f"; {_LATE_S * 1e3:.0f} ms later the same tensor held the right answer: written after forward returned",
                "late-output",
            )
        return "", ""

    # Second looks ------------------------------------------------------------------------------------------------

    def _release(self, case: WorkloadCase, seen: Sequence[Kept]) -> None:
        """Give memory back that no later call refills: new objects will come to lie where others did."""
        for kept in seen:
            if kept.prepared is not self._reused.get(case.name) and not self.later.uses(kept.prepared):
                self.session.memory.discard(kept.prepared)

    def _finish_pending(self, case: WorkloadCase) -> None:
        left = self.later.take_all()
        self.later.look(case, left)
        self._release(case, left)

    def finish(self, case: WorkloadCase) -> None:
        """Before leaving a workload: look at what is left, drop what is kept."""
        with self.session.quiet.shared():
            self._finish_pending(case)
            old = self._reused.pop(case.name, None)
            if old is not None:
                self.session.memory.discard(old)
            findings, written = self.session.forget()
        self._refuse_findings(case, findings)
        refuse_written_state(case, written)
