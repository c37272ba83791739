"""ProblemFacts: workloads with shapes, dtypes, least bytes and flops, learned without allocating them where possible."""

from __future__ import annotations

from tilecast.sandbox.harness.judge.failure import ProblemRefused
from tilecast.sandbox.harness.judge.reference import FULL, Reference
from tilecast.sandbox.harness.wire import Message

_KEYS = ("inputs", "outputs", "min_bytes", "flops")


def describe_problem(reference: Reference, notes: list[str]) -> Message:
    """Facts of every workload (fields of the host's ``ProblemFacts``).

    Raises:
        ProblemRefused: if a workload can be described neither dry nor by running it.
    """
    workloads: list[Message] = []
    parameters: list[Message] = []
    notes = list(notes)
    for name in reference.workloads:
        facts = reference.describe(name)
        if "failed" in facts:
            dry_problem = facts["failed"]
            facts = _described_by_running(reference, name, str(dry_problem), notes)
        if not facts:
            continue
        workloads.append({"name": name, **{key: facts[key] for key in _KEYS}})
        if name == FULL or not parameters:
            parameters = facts["parameters"]
    if not workloads:
        raise ProblemRefused("INVALID_REFERENCE", "no workload could be described")
    return {
        "workloads": workloads,
        "tolerance": reference.tolerance,
        "domain": reference.domain,
        "parameters": parameters,
        "mutates_inputs": False,
        "notes": notes,
    }


def _described_by_running(reference: Reference, name: str, problem: str, notes: list[str]) -> Message:
    """A real run, for workloads that a machine without a GPU is expected to survive."""
    if not name.startswith("small") and len(reference.workloads) > 1:
        notes.append(f"workload {name!r} could not be described without running it ({problem})")
        return {}
    facts = reference.describe(name, dry=False)
    notes.append(f"workload {name!r}: {facts.get('note', '')}")
    return facts
