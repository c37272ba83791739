"""What a workload has to do at least: bytes moved by the reference's own operators, and its arithmetic."""

from __future__ import annotations

from typing import Any

from tilecast.sandbox.harness.judge.case import CaseBuilder, WorkloadCase
from tilecast.sandbox.harness.judge.failure import WorkerFailed
from tilecast.sandbox.harness.judge.timing import physics
from tilecast.sandbox.harness.tensors import dtype_name, tensors_in


def least_work(builder: CaseBuilder, case: WorkloadCase, hardware: dict[str, Any] | None) -> physics.Work:
    """Bytes, operations and the type of the products, found once with the reference in its own worker.

    Args:
        hardware: data-sheet figures, which say in what type products are fastest.
    """
    reference = builder.reference
    facts = reference.describe(case.name)
    if "failed" in facts:
        facts = reference.describe(case.name, dry=False)
    reference.select(case.name)
    session = reference.session
    inputs = builder.inputs(case)
    prepared = session.prepare(inputs, [])
    try:
        moved = session.request({**prepared.to_message(), "op": "traffic"}, "count of least traffic")
    except WorkerFailed:  # a reference that cannot be watched: no limit is known for it, none is applied
        moved = {"read_bytes": 0, "written_bytes": 0}
    finally:
        session.memory.discard(prepared)
        reference.set_state(case.state)
    # The floating type among inputs and parameters whose products are fastest: what a candidate may use.
    tensors = [*tensors_in(inputs), *case.state.values()]
    names = {dtype_name(t.dtype) for t in tensors if t.is_floating_point()} or {"float32"}
    dtype = max(sorted(names), key=lambda name: physics.sheet_tflops(hardware, name))
    return physics.Work(int(moved["read_bytes"]), int(moved["written_bytes"]), int(facts.get("flops", 0)), dtype)
