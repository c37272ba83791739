"""``--pure``: no library call may do a candidate's work.

On a GPU the share of time in library kernels is measured. Everywhere the operators that torch dispatched outside of the
candidate's kernels are looked at, and calls are made again with the launch of its kernels removed: an answer that is
still right was not the kernels'.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecast.sandbox.harness.judge import families
from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.compare import compare_values
from tilecast.sandbox.harness.judge.failure import Rejected, WorkerFailed
from tilecast.sandbox.harness.judge.segments import Call
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.tensors import tensors_in
from tilecast.sandbox.harness.wire import Message

_LIBRARY_SHARE = 0.2
"""More of a GPU's time than this in library kernels, and the work is the library's."""
_FULL_PASS = 0.5
"""Library arithmetic that touches more than this share of the inputs' and outputs' elements is a pass over the data."""


@dataclass(frozen=True)
class Work:
    """What one call did."""

    operators: list[Message]
    launches: int
    extensions: bool
    kernels: list[Message]

    @property
    def own_code(self) -> bool:
        """Whether anything of the candidate's own ran that is not Python."""
        # What NVRTC compiled is launched past all that can be counted, and seen in the trace of the device alone.
        traced = any(not item["library"] and not item["moves"] for item in self.kernels)
        return self.launches > 0 or self.extensions or traced

    def elements(self, *kinds: str) -> int:
        """Elements that operators of these kinds touched."""
        return sum(int(item["elements"]) for item in self.operators if item["kind"] in kinds)

    def names(self, *kinds: str) -> str:
        """Operators of these kinds, the largest first."""
        found = sorted((i for i in self.operators if i["kind"] in kinds), key=lambda i: -int(i["elements"]))
        return ", ".join(item["name"] if "." in item["name"] else f"aten.{item['name']}" for item in found[:4])


def check_purity(session: Session, case: WorkloadCase, call: Call) -> str:
    """In a fresh session with the module built: look at one call, then repeat it without launches. Returns the evidence.

    Raises:
        Rejected: REWARD_HACK, with the rule ``library-call`` or ``decoy-kernel``.
    """
    prepared = session.prepare(call.inputs, case.specs)
    reply = session.request({**prepared.to_message(), "op": "watch_work"}, "look at its operators")
    try:
        work = Work(
            [dict(item) for item in reply["operators"]],
            int(reply["launches"]),
            reply["extensions"] is True,
            [dict(item) for item in reply["kernels"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Rejected("REWARD_HACK", f"its report on operators makes no sense: {error}", "forged-answer") from error
    _judge_operators(case, call, work)
    if work.kernels:
        _judge_kernels(case, work)
    if work.launches:
        _judge_ghost(session, case, call)
    return f"{work.launches} own launches a call; library operators: {work.names('moves', 'computes') or 'none'}"


def _judge_operators(case: WorkloadCase, call: Call, work: Work) -> None:
    problem = sum(item.numel() for item in tensors_in(call.inputs)) + sum(spec.elements for spec in case.specs)
    heavy = work.names("heavy")
    if heavy:
        raise _library(case, f"{heavy} is called: the library does the work")
    if not work.own_code and len(case.contract.aliases) < len(case.specs):
        seen = work.names("moves", "computes") or "something that is no kernel"
        raise _library(case, f"no kernel of its own was launched; {seen} did the work")
    computed = work.elements("computes")
    if computed > _FULL_PASS * problem:
        names = work.names("computes")
        detail = f"{names} touched {computed} elements, the problem has {problem}: the library does part of the work"
        raise _library(case, detail)


def _judge_kernels(case: WorkloadCase, work: Work) -> None:
    total = sum(float(item["us"]) for item in work.kernels)
    library = [item for item in work.kernels if item["library"]]
    spent = sum(float(item["us"]) for item in library)
    if total > 0 and spent > _LIBRARY_SHARE * total:
        largest = max(library, key=lambda item: float(item["us"]))
        detail = f"{spent / total:.0%} of the device time is in library kernels, most of it in {largest['name'][:80]}"
        raise _library(case, detail)


def _judge_ghost(session: Session, case: WorkloadCase, call: Call) -> None:
    session.request({"op": "ghost"}, "removal of launches")
    prepared = session.prepare(call.inputs, case.specs)
    try:
        result = session.call(prepared, poison=0xFF, seed=call.seed, watch=False)
    except WorkerFailed:
        return  # without its kernels it does not even run: they matter
    outputs = [item for item in result.outputs if item is not None]
    count = len(case.specs)
    shapes = [(tuple(item.shape), item.dtype) for item in outputs]
    if shapes != [(spec.shape, spec.dtype) for spec in case.specs] or len(call.answer.outputs) != count:
        return
    if compare_values(call.answer, outputs).passed and families.is_finite(outputs[0]):
        reason = "with the launch of its kernels removed the answer is the same: they are decoys, something else does the work"
        raise Rejected("REWARD_HACK", f"workload {case.name!r}: {reason}", "decoy-kernel", case.name)


def _library(case: WorkloadCase, detail: str) -> Rejected:
    return Rejected(
        "REWARD_HACK", f"workload {case.name!r}: {detail} (--pure allows no library calls)", "library-call", case.name
    )
