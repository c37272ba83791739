"""Tools about one candidate: forecast, verify, bench, profile; each answer becomes one line, and facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilecast.agent.report import wording
from tilecast.agent.toolbox import arguments as args
from tilecast.agent.toolbox.base import Fact, Refusal, ToolResult
from tilecast.agent.toolbox.workbench import Workbench
from tilecast.sandbox.corpus import read_info
from tilecast.sandbox.hardware import Hardware, find_hardware, require_hardware
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification
from tilecast.sandbox.schema import Forecast as ForecastDocument
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext
from tilecast.tools.forecast.factory import make_forecaster
from tilecast.tools.forecast.facts import facts_from_text, recorded_eager_ms, reference_as_candidate

REASON_CHARACTERS = 1500


def verify(bench: Workbench, asked: args.Verify) -> ToolResult:
    """Correctness and integrity."""
    candidate = bench.candidate(asked.path, asked.config)
    found = bench.judge(
        f"verifying {candidate.name}",
        False,
        lambda sandbox, options: sandbox.verify(bench.problem, candidate, options, bench.hooks.say),
    )
    summary = f"verify {_label(candidate, asked.config)}: {found.status}"
    fact = Fact(
        config=asked.config,
        kind="verified",
        candidate=candidate.name,
        source_sha256=candidate.sha256,
        status=str(found.status),
        reason=found.reason[:REASON_CHARACTERS],
        problem=bench.problem.name,
        where="verify",
    )
    return _judged("verify", summary, found, fact)


def bench(work: Workbench, asked: args.Bench | args.Profile, profile: bool = False) -> ToolResult:
    """Verified, then measured against the fastest baseline."""
    candidate = work.candidate(asked.path, asked.config)
    workload = asked.workload if isinstance(asked, args.Bench) else "full"
    name = "profile" if profile else "bench"
    found = work.judge(
        f"measuring {candidate.name}",
        True,
        lambda sandbox, options: sandbox.benchmark(
            work.problem,
            candidate,
            options.model_copy(update={"workload": workload, "profile": profile}),
            work.hooks.say,
        ),
    )
    summary = f"{name} {_label(candidate, asked.config)}: {measured_line(found)}"
    fact = fact_of(found, candidate, work.problem.name, name)
    return _judged(name, summary, found, fact.model_copy(update={"config": asked.config}))


def fact_of(found: Measurement, candidate: Candidate, problem: str, where: str) -> Fact:
    """What a measurement establishes."""
    common: dict[str, Any] = {
        "candidate": candidate.name,
        "source_sha256": candidate.sha256,
        "status": str(found.status),
        "reason": found.reason[:REASON_CHARACTERS],
        "problem": problem,
        "where": where,
    }
    if found.speedup is None or found.latency_ms is None:
        return Fact(kind="verified", **common)
    return Fact(
        kind="recorded" if found.recorded else "measured",
        ratio=found.speedup.ratio,
        low=found.speedup.low,
        high=found.speedup.high,
        ms=found.latency_ms.candidate,
        baseline=found.baseline,
        baseline_ms=found.latency_ms.baseline,
        verdict=found.verdict or "",
        light=found.speed_of_light.fraction if found.speed_of_light else None,
        **common,
    )


def measured_line(found: Measurement) -> str:
    """Verdict, speedup with its interval and time, or the status where there is none."""
    if found.speedup is None or found.latency_ms is None:
        untimed = found.status is EvaluationStatus.PASSED
        return f"{found.status}, not timed on this device" if untimed else str(found.status)
    light = f", {found.speed_of_light.fraction:.0%} of the speed of light" if found.speed_of_light else ""
    base = f"{found.baseline} {wording.milliseconds(found.latency_ms.baseline)}"
    return f"{wording.measured(found)} against {base}{light}"


def forecast(work: Workbench, asked: args.Forecast) -> ToolResult:
    """A prediction, marked as one everywhere."""
    candidate = work.candidate(asked.path, asked.config)
    if work.settings.forecaster in ("llm", "ensemble"):
        raise Refusal(
            "a forecaster that asks a language model is used by `tilecast forecast`; set forecaster = learned"
        )
    chosen, context = make_forecaster(work.settings.forecaster), _context(work)
    found = chosen.forecast([candidate], context)[0]
    target = "" if context.hardware is None else f" for {context.hardware.key.upper()}"
    summary = f"forecast {_label(candidate, asked.config)}: {wording.forecast_text(found)}"
    lines = [summary, f"why: {found.why}", f"This is a forecast{target}, not a measurement."]
    if found.latency_ms is not None:
        lines.insert(
            1, f"time: {_range(found)} on {found.baseline}'s workload, chance of being valid {found.p_valid:.0%}"
        )
    return ToolResult(
        tool="forecast",
        ok=True,
        summary=summary,
        text="\n".join(lines),
        facts=[_forecast_fact(found, candidate, asked, work.problem.name)] if found.speedup is not None else [],
        document=found.model_dump(mode="json", by_alias=True),
    )


def device_facts(work: Workbench, asked: args.Device) -> ToolResult:
    """The device in words, its peaks where they are known, and the problem's shapes as read from its text."""
    device = work.sandbox.device
    lines = [f"device {device.name}{wording.mark(device.recorded)}, {device.kind} {device.compute_capability}".rstrip()]
    known = find_hardware(device.name)
    if known is not None:
        lines.append(
            f"peaks: {known.bandwidth_gbs:g} GB/s, {known.fp32_tflops:g} TFLOP/s fp32, {known.fp16_tflops:g} TFLOP/s "
            f"fp16/bf16; {known.sms} SMs, {known.shared_per_block_bytes} bytes of shared memory a block"
        )
    for item in facts_from_text(work.problem).workloads:
        shapes = ", ".join(f"{t.name} {t.dtype}{t.shape}" for t in [*item.inputs, *item.outputs])
        lines.append(f"workload {item.name}: {shapes or 'shapes unknown'}; at least {item.min_bytes} bytes moved")
    lines += [f"{name} {version}" for name, version in device.versions.items()]
    return ToolResult(
        tool="device", ok=True, summary=lines[0], text="\n".join(lines), document=device.model_dump(mode="json")
    )


def _judged(tool: str, summary: str, found: Verification, fact: Fact) -> ToolResult:
    passed = found.status is EvaluationStatus.PASSED
    lines = [summary]
    if not passed:
        lines.append(f"reason: {found.reason[:REASON_CHARACTERS]}")
        first = found.reason.splitlines()[0] if found.reason else ""
        summary = f"{summary}: {first[:100]}" if first else summary
    lines += [f"workload {w.name}: {w.status}" for w in found.workloads if w.status is not EvaluationStatus.PASSED]
    lines += [f"failed check {c.name}: {c.detail}" for c in found.checks if not c.passed]
    details = found.details if isinstance(found, Measurement) else {}
    lines += [f"note: {note}" for note in details.get("notes", [])]
    lines += [f"{name}: {value}" for name, value in (details.get("profile") or {}).items()]
    document = found.model_dump(mode="json", by_alias=True)
    return ToolResult(tool=tool, ok=passed, summary=summary, text="\n".join(lines), facts=[fact], document=document)


def _label(candidate: Candidate, config: dict[str, Any]) -> str:
    return candidate.name + (f" {config}" if config else "")


def _range(found: ForecastDocument) -> str:
    assert found.latency_ms is not None
    low, high = wording.milliseconds(found.latency_ms.low), wording.milliseconds(found.latency_ms.high)
    return f"{wording.milliseconds(found.latency_ms.median)} ({low} to {high})"


def _forecast_fact(found: ForecastDocument, candidate: Candidate, asked: args.Forecast, problem: str) -> Fact:
    assert found.speedup is not None
    time = found.latency_ms
    common: dict[str, Any] = {"config": asked.config, "candidate": candidate.name, "source_sha256": candidate.sha256}
    if found.abstain:
        # Its figures are not stood by: they are no ground for a claim.
        return Fact(kind="forecast", status="abstains", reason=found.why, problem=problem, where="forecast", **common)
    return Fact(
        kind="forecast",
        **common,
        ratio=found.speedup.median,
        low=found.speedup.low,
        high=found.speedup.high,
        ms=time.median if time else None,
        ms_low=time.low if time else None,
        ms_high=time.high if time else None,
        baseline=found.baseline,
        baseline_ms=found.baseline_ms,
        problem=problem,
        where="forecast",
    )


def _context(work: Workbench) -> ForecastContext:
    """What the forecaster may know: the measured baseline, else the recorded one, else one that is itself forecast.

    A time counts only on the GPU that is forecast for.
    """
    problem, hardware = work.problem, _hardware(work)
    name, known = "eager", recorded_eager_ms(problem, hardware)
    if work.baselines is not None and hardware is not None and find_hardware(work.sandbox.device.name) == hardware:
        name, known = work.baselines.fastest, work.baselines.times_ms[work.baselines.fastest]
    context = ForecastContext(
        problem=problem,
        facts=facts_from_text(problem),
        hardware=hardware,
        on_cpu=hardware is None and work.sandbox.device.kind == "cpu",
        baseline_name=name,
        baseline_ms=known,
        incumbent_ms=None,
    )
    if known is not None or context.hardware is None:
        return context
    from tilecast.tools.forecast.learned import LearnedForecaster

    guess = LearnedForecaster.load(None).forecast([reference_as_candidate(problem)], context)[0]
    if guess.latency_ms is None:
        return context
    changes = {"baseline_name": "eager (forecast)", "baseline_ms": guess.latency_ms.median}
    return context.model_copy(update=changes)


def _hardware(work: Workbench) -> Hardware | None:
    """The GPU to forecast for: as configured, else the recorded one, else the one that is here."""
    if work.settings.target is not None:
        return require_hardware(work.settings.target)
    if work.problem.recorded is not None:
        return find_hardware(read_info(Path(work.problem.recorded)).gpu)
    return find_hardware(work.sandbox.device.name)
