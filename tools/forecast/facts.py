"""Problem facts and a baseline guess from text alone, for forecasts on a machine that runs nothing."""

from __future__ import annotations

import ast
from pathlib import Path

from tilecast.sandbox.corpus import EAGER, load_recorded, read_info
from tilecast.sandbox.hardware import Hardware, find_hardware
from tilecast.sandbox.problem import Problem, ProblemFacts, TensorFacts, WorkloadFacts
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.trace import trace_problem
from tilecast.tools.forecast.trace.values import Tensor


def facts_from_text(problem: Problem, workload: str = "full") -> ProblemFacts:
    """Facts of one workload by shape evaluation; with empty shapes where the text could not be walked (see ``notes``)."""
    traced = trace_problem(problem.source, workload)
    if traced is None:
        empty = WorkloadFacts(name=workload, inputs=[], outputs=[], min_bytes=0, flops=0)
        return ProblemFacts(
            workloads=[empty], tolerance=None, domain="open", notes=["shapes could not be read from the text"]
        )
    made = WorkloadFacts(
        name=workload,
        inputs=_facts([x for x in traced.inputs if isinstance(x, Tensor)], "input"),
        outputs=_facts(traced.outputs, "output"),
        min_bytes=int(traced.min_bytes),
        flops=int(traced.flops),
    )
    return ProblemFacts(
        workloads=[made], tolerance=None, domain="open", parameters=_facts(traced.parameters, "parameter")
    )


def recorded_eager_ms(problem: Problem, hardware: Hardware | None) -> float | None:
    """Eager's time recorded beside the problem, in milliseconds, if it was recorded on the GPU that is forecast for."""
    if problem.recorded is None or hardware is None:
        return None
    measured_on = find_hardware(read_info(Path(problem.recorded)).gpu)
    if measured_on is None or measured_on.key != hardware.key:
        return None
    row = load_recorded(problem.recorded).baselines.get(EAGER)
    return row.ms if row is not None else None


def _facts(tensors: list[Tensor], kind: str) -> list[TensorFacts]:
    return [TensorFacts(name=f"{kind}{i}", shape=list(t.shape), dtype=t.dtype) for i, t in enumerate(tensors)]


def reference_as_candidate(problem: Problem) -> Candidate:
    """The reference under a candidate's class name: what eager execution of it would be forecast as."""
    tree = ast.parse(problem.source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            node.name = "ModelNew"
        elif isinstance(node, ast.Name) and node.id == "Model":
            node.id = "ModelNew"
    return Candidate(name="eager", source=ast.unparse(tree))
