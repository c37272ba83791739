"""What the model is told: the values that fill the messages under ``prompts/``, from what the run knows."""

from __future__ import annotations

from typing import Any

from tilecast.prompts import guide, inline, items, languages, render
from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.hardware import Hardware, find_hardware
from tilecast.sandbox.problem import TensorFacts, WorkloadFacts
from tilecast.sandbox.roofline import floor_of
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import Candidate
from tilecast.tools.propose.base import ProposalContext, ProposalRequest, Tried
from tilecast.tools.propose.grid import skeleton_key

MOST_OTHERS, MOST_FAILURES, MOST_SOURCES = 6, 8, 1
SOURCE_LIMIT = 16_000
"""Characters of a further candidate's source that is worth its tokens."""
TIMED = "full"


def messages_for(request: ProposalRequest, context: ProposalContext) -> list[dict[str, Any]]:
    """The system and the user message of a proposal.

    Raises:
        UsageError: if there is no guide to the context's language.
    """
    return [
        {"role": "system", "content": render("propose_system")},
        {"role": "user", "content": render("propose", **values_for(request, context))},
    ]


def values_for(request: ProposalRequest, context: ProposalContext) -> dict[str, Any]:
    """Every name that ``prompts/propose.md`` uses."""
    measured = sorted((t for t in context.tried if t.latency_ms is not None), key=lambda t: t.latency_ms or 0.0)
    incumbent = measured[0] if measured else None
    parent = None if request.parent is None else _parent(request.parent, context)
    return {
        "problem_name": context.problem.name,
        "reference": context.problem.source,
        "timed_workload": TIMED,
        "workloads": [workload_line(workload) for workload in context.facts.workloads],
        "facts": _facts(context),
        "device": device_lines(context.device),
        "baseline": _baseline(context),
        "floor": _floor(context),
        "incumbent": None if incumbent is None else _item(incumbent),
        "show_incumbent": incumbent is not None and incumbent.candidate != request.parent,
        "others": [_item(tried) for tried in measured[1 : 1 + MOST_OTHERS]],
        "sources": [_item(tried) for tried in _other_structures(measured, request.parent)[:MOST_SOURCES]],
        "failures": [_item(tried) for tried in reversed(_failures(context)[-MOST_FAILURES:])],
        "language": context.language,
        "guide": _guide(context.language),
        "parent": parent,
        "aim": items("aims")[request.index % len(items("aims"))],
    }


def workload_line(workload: WorkloadFacts) -> str:
    """One workload: shapes, dtypes, least traffic and arithmetic."""
    inputs = ", ".join(_tensor(t) for t in workload.inputs)
    outputs = ", ".join(_tensor(t) for t in workload.outputs)
    work = f"at least {_bytes(workload.min_bytes)} moved"
    if workload.flops:
        work += f", {workload.flops / 1e9:.4g} GFLOP in matrix products"
    return f"`{inline(workload.name)}`: ({inline(inputs, 2000)}) -> ({inline(outputs, 2000)}); {work}"


def device_lines(device: DeviceFacts) -> list[str]:
    """The device's name and limits."""
    hardware = find_hardware(device.name) if device.kind != "cpu" else None
    versions = ", ".join(f"{name} {version}" for name, version in device.versions.items())
    lines = [
        inline(
            f"{device.name}{f' (compute capability {device.compute_capability})' if device.compute_capability else ''}"
        )
    ]
    if hardware is not None:
        lines += _limits(hardware)
    if versions:
        lines.append(inline(f"Software: {versions}"))
    return lines


def _limits(hardware: Hardware) -> list[str]:
    bandwidth = f"{hardware.bandwidth_gbs:.0f} GB/s"
    if hardware.measured_bandwidth_gbs:
        bandwidth += f" on paper, about {hardware.measured_bandwidth_gbs:.0f} GB/s reached by a large copy"
    return [
        f"Memory: {bandwidth}; L2 {_bytes(hardware.l2_bytes)}",
        f"Arithmetic, dense, TFLOP/s: float32 {hardware.fp32_tflops:g} (TF32 {hardware.tf32_tflops:g}, which the rules exclude "
        f"for float32 problems), float16 and bfloat16 {hardware.fp16_tflops:g}, float8 {hardware.fp8_tflops:g}, "
        f"float64 {hardware.fp64_tflops:g}",
        f"{hardware.sms} SMs; per SM {hardware.max_warps_per_sm} warps, {hardware.max_blocks_per_sm} blocks, "
        f"{hardware.registers_per_sm} registers, {_bytes(hardware.shared_per_sm_bytes)} shared memory "
        f"(at most {hardware.shared_per_block_bytes} bytes a block)",
        f"A kernel launch takes about {hardware.launch_us:g} µs",
    ]


def _guide(language: str) -> str:
    try:
        return guide(language)
    except KeyError:
        raise UsageError(
            f"there is no guide to language {language!r}: --language is one of {', '.join(languages())}"
        ) from None


def _tensor(tensor: TensorFacts) -> str:
    return f"{tensor.name} {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


def _facts(context: ProposalContext) -> list[str]:
    facts = context.facts
    lines = [f"Parameters: {', '.join(map(_tensor, facts.parameters))}"] if facts.parameters else []
    lines.append(
        "Values may be any of their dtype"
        if facts.domain == "open"
        else "Values are as `get_inputs` makes them, drawn anew"
    )
    if facts.tolerance is not None:
        lines.append(f"Relative L2 error allowed in each output: at most {facts.tolerance:g}")
    if facts.mutates_inputs:
        lines.append("The reference changes its inputs; the candidate must change them in the same way")
    return [inline(line, 2000) for line in (*lines, *facts.notes)]


def _baseline(context: ProposalContext) -> str:
    if context.baseline_ms is None:
        return f"{inline(context.baseline_name)} (not measured yet)"
    return f"{inline(context.baseline_name)}, {context.baseline_ms:.4g} ms on `{TIMED}`"


def _floor(context: ProposalContext) -> str:
    """The least possible time and what sets it, or an empty text where it is not known."""
    hardware = find_hardware(context.device.name) if context.device.kind != "cpu" else None
    timed = next((w for w in context.facts.workloads if w.name == TIMED), None)
    if hardware is None or timed is None:
        return "" if context.floor_ms is None else f"{context.floor_ms:.4g} ms"
    floor = floor_of(timed, hardware)
    least = floor.ms if context.floor_ms is None else context.floor_ms
    parts = f"memory {floor.memory_ms:.3g} ms, arithmetic {floor.compute_ms:.3g} ms, launch {floor.launch_ms:.3g} ms"
    return f"{least:.4g} ms ({parts})"


def _item(tried: Tried) -> dict[str, Any]:
    return {"name": tried.candidate.name, "summary": summary(tried), "source": tried.candidate.source}


def summary(tried: Tried) -> str:
    """One candidate's outcome in a line."""
    parts = []
    if tried.latency_ms is not None:
        parts.append(f"{tried.latency_ms:.4g} ms")
        if tried.speedup is not None:
            parts.append(f"{tried.speedup:.3g}x the baseline's speed")
        if tried.fraction_of_light is not None:
            parts.append(f"{100 * tried.fraction_of_light:.0f} % of the speed of light")
    elif tried.status is None:
        parts.append("left out by the forecaster")
    else:
        parts.append(str(tried.status))
    details = [tried.limits, tried.reason if tried.latency_ms is None else "", tried.note, _config(tried.candidate)]
    return "; ".join([*[", ".join(parts)], *[inline(text, 240) for text in details if text]])


def _config(candidate: Candidate) -> str:
    return f"CONFIG {candidate.config}" if candidate.config else ""


def _parent(parent: Candidate, context: ProposalContext) -> dict[str, Any]:
    known = next((t for t in context.tried if t.candidate.source == parent.source), None)
    return {"name": parent.name, "source": parent.source, "summary": "" if known is None else summary(known)}


def _failures(context: ProposalContext) -> list[Tried]:
    """What did not work, without the candidates that merely were not in a record."""
    return [t for t in context.tried if t.latency_ms is None and t.status is not EvaluationStatus.NOT_RECORDED]


def _other_structures(measured: list[Tried], parent: Candidate | None) -> list[Tried]:
    """Measured kernels that are no variants of the best or of the parent, short enough to be shown."""
    shown = {skeleton_key(measured[0].candidate.source)} if measured else set()
    if parent is not None:
        shown.add(skeleton_key(parent.source))
    found = []
    for tried in measured[1:]:
        key = skeleton_key(tried.candidate.source)
        if key not in shown and len(tried.candidate.source) <= SOURCE_LIMIT:
            shown.add(key)
            found.append(tried)
    return found
