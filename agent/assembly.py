"""Puts together what a run needs from what was asked: device, proposer, language; and says what the budget will buy."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from tilecast.agent.budget import PerCandidate, Plan, plan
from tilecast.agent.devices import REPLAY, ChosenDevice, make_sandbox
from tilecast.agent.record.store import RunLog
from tilecast.agent.request import OptimizeRequest
from tilecast.sandbox.base import Expected, Preflight
from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.sandbox.languages import language_named, language_of
from tilecast.sandbox.local import LocalSandbox
from tilecast.tools.forecast.base import Forecaster
from tilecast.tools.forecast.factory import make_forecaster
from tilecast.tools.model.settings import DEFAULT_OUTPUT_TOKENS
from tilecast.tools.propose.builtin import BuiltinProposer
from tilecast.tools.propose.factory import ChosenProposer, ProposerSources, make_proposer

DEFAULT_LANGUAGE, CPU_LANGUAGE, PLAIN = "triton", "cpp", "torch"
AGENT = "agent"
ASKING = frozenset({"llm", "ensemble"})
TIMED_ON_CPU = frozenset({CPU_LANGUAGE, PLAIN})
TYPICAL_INPUT_TOKENS, TYPICAL_OUTPUT_TOKENS = 6_000, 6_000
"""Assumed for one proposal of a language model, for estimates only; what is spent is what the provider reports."""
TYPICAL_ANSWER_S = 45.0
"""Assumed time of one answer of a language model, for estimates only."""


@dataclass(frozen=True)
class Parts:
    """What a run is made of. ``model`` is the spec that names the proposer again when the run is resumed."""

    device: ChosenDevice
    proposer: ChosenProposer
    model: str
    language: str
    in_flight: int
    forecaster: Forecaster | None = None
    """None where it asks the model and needs the run's journal."""


def elsewhere() -> ChosenDevice:
    """A GPU of another machine, for a plan alone: nothing can be run on it from here."""
    return ChosenDevice(LocalSandbox("cuda", index=0), "device: planned for a CUDA GPU, which is not here", "cuda:0")


def assemble(request: OptimizeRequest, known: Preflight | None, device: ChosenDevice | None = None) -> Parts:
    """Make device and proposer; with ``device`` that one is taken, whatever the configuration names.

    Raises:
        UsageError: naming what cannot be used, and the remedy.
        EnvironmentFailure: if a device that is named is not there.
    """
    settings = request.settings
    device = device or make_sandbox(
        settings.device, request.problem, known, settings.require_sandbox, settings.cluster, settings.lanes
    )
    expect = getattr(device.sandbox, "expect", None)
    if expect is not None:
        expect(Expected(request.options, request.start, request.confirm))
    # Where kernels cannot be timed at all, that is what the user has to know first.
    language = _language(request, device)
    _check_can_be_timed(language, device)
    sources = ProposerSources(
        problem=request.problem,
        start=request.start,
        models=settings.models,
        base_url=settings.base_url,
        home=request.home,
        recorded=device.replayed,
    )
    chosen = _proposer(request, device, sources)
    _check_can_be_written(language, request, chosen)
    if request.limits.usd is not None and chosen.settings is not None and chosen.settings.price_known() is None:
        raise UsageError(
            f"--max-usd {request.limits.usd:g}: the price of {chosen.settings.name} is unknown, so dollars cannot be "
            f'counted; set it in tilecast.toml under [models."{chosen.settings.name}".price], or use --max-tokens'
        )
    asks = settings.forecaster in ASKING and chosen.model is not None
    forecaster = None if asks else make_forecaster(settings.forecaster)
    if settings.strategy == AGENT:
        chosen = _agent(chosen, forecaster, settings.target)
    paid = chosen.proposer.costs_money
    of_model = chosen.settings.in_flight if chosen.settings is not None else None
    return Parts(
        device=device,
        proposer=chosen,
        model=_spec(settings.model, chosen),
        language=language,
        in_flight=(of_model or settings.in_flight) if paid and settings.strategy != AGENT else 1,
        forecaster=forecaster,
    )


def _proposer(request: OptimizeRequest, device: ChosenDevice, sources: ProposerSources) -> ChosenProposer:
    """As :func:`make_proposer`; on a machine without a GPU a refusal says that too, since it decides what would help."""
    try:
        return make_proposer(request.settings.model, sources)
    except UsageError as error:
        if not device.on_cpu or request.start is not None:
            raise
        raise UsageError(
            f"there is no GPU here, so that only {CPU_LANGUAGE} and plain {PLAIN} kernels can be timed; and {error}"
        ) from None


def _agent(chosen: ChosenProposer, forecaster: Forecaster | None, target: str | None) -> ChosenProposer:
    """The same model, with tools in its hands.

    Raises:
        UsageError: if there is no language model.
    """
    if chosen.model is None:
        raise UsageError(
            "--strategy agent is a language model with tools: name one with --model, or set OPENAI_API_KEY"
        )
    from tilecast.agent.autonomous import AgentProposer

    proposer = AgentProposer(chosen.model, forecaster, target)
    return replace(chosen, proposer=proposer, line=f"{chosen.line}; as an agent with tools")


def _language(request: OptimizeRequest, device: ChosenDevice) -> str:
    """As asked, else that of the kernel to start from, else what runs on the device."""
    asked = request.settings.language
    if asked is not None:
        try:
            return language_named(asked).name
        except KeyError as error:
            raise UsageError(f"--language: {error.args[0]}") from None
    own = language_of(request.start.source) if request.start is not None else PLAIN
    if own not in (PLAIN, "unknown"):
        return own
    return CPU_LANGUAGE if device.on_cpu else DEFAULT_LANGUAGE


def _check_can_be_timed(language: str, device: ChosenDevice) -> None:
    """Said before anything is spent: on a CPU a GPU's kernels run in an interpreter, and such a time would mean nothing."""
    if device.on_cpu and language not in TIMED_ON_CPU:
        raise EnvironmentFailure(
            f"there is no GPU here to time {language} kernels on (this machine's CPU can only check them: tilecast verify); "
            f"use a machine with a GPU, recorded measurements (--device replay:DIR), or --language {CPU_LANGUAGE}"
        )


def _check_can_be_written(language: str, request: OptimizeRequest, chosen: ChosenProposer) -> None:
    """A language that is asked for and that no proposal will be written in is a misunderstanding: said, not passed over."""
    if request.settings.language is None or request.start is None or not isinstance(chosen.proposer, BuiltinProposer):
        return
    own = language_of(request.start.source)
    if own != language:
        raise UsageError(
            f"--language {language}: builtin rewrites CONFIG of the kernel it starts from ({request.start.name}), which is {own}; "
            f"start from a {language} kernel, or name a language model with --model"
        )


def check_same_run(log: RunLog, request: OptimizeRequest, parts: Parts) -> None:
    """A run goes on only where it began.

    Raises:
        UsageError: naming the difference in problem, device or seed.
    """
    header, problem, device = log.header, request.problem, parts.device.sandbox.device
    extras = hashlib.sha256(problem.extras.model_dump_json().encode()).hexdigest()
    pairs = [
        ("problem", header.problem, problem.name),
        ("text of the problem (sha256)", header.problem_sha256[:12], problem.sha256[:12]),
        ("problem.toml (sha256)", header.extras_sha256[:12], extras[:12]),
        ("kind of device", header.device.kind, device.kind),
        ("kernel to start from (sha256)", (header.start_sha256 or "none")[:12], _start(request)),
        ("seed", header.seed, request.seed),
    ]
    measured_on = header.device if log.state.preflight is None else log.state.preflight.device
    if measured_on.kind != "bundle" or log.state.preflight is not None:  # else no device has answered yet
        pairs.append(("device", measured_on.name, device.name))
        pairs.append(("compute capability", measured_on.compute_capability, device.compute_capability))
    if header.device.recorded and header.device_spec.startswith(REPLAY):
        pairs.append(("record", header.device_spec, parts.device.spec))
    different = [f"{name}: {then} then, {now} now" for name, then, now in pairs if then != now]
    if different:
        raise UsageError(f"run {log.run_id} cannot be taken up here: {'; '.join(different)}; begin a new run")


def plan_of(request: OptimizeRequest, parts: Parts) -> Plan:
    """What the limits buy, from the sandbox's estimate of an evaluation and the assumed size of an answer."""
    estimate = parts.device.sandbox.estimate(request.problem)
    recorded = parts.device.replayed is not None
    eval_minutes = 0.0 if recorded else estimate.seconds_per_eval / 60
    paid = parts.proposer.proposer.costs_money
    cost = PerCandidate(
        gpu_seconds=estimate.seconds_per_eval,
        minutes=eval_minutes,
        setup_gpu_seconds=estimate.setup_seconds,
        basis=f"evaluation time {estimate.basis}",
    )
    if paid:
        cost = _with_answers(cost, parts)
    size = getattr(parts.proposer.proposer, "size", None)
    return plan(request.limits, cost, size if isinstance(size, int) and not paid else None)


def _with_answers(cost: PerCandidate, parts: Parts) -> PerCandidate:
    """The cost with a model's answers, of which as many tokens are set aside as an answer may take at most."""
    settings = parts.proposer.settings
    price = settings.price_known() if settings else None
    most_output = (settings.max_tokens if settings else None) or DEFAULT_OUTPUT_TOKENS
    tokens = TYPICAL_INPUT_TOKENS + min(TYPICAL_OUTPUT_TOKENS, most_output)
    aside = TYPICAL_INPUT_TOKENS + most_output
    return replace(
        cost,
        tokens=tokens,
        usd=None if price is None else price.usd(TYPICAL_INPUT_TOKENS, tokens - TYPICAL_INPUT_TOKENS),
        aside_tokens=aside,
        aside_usd=None if price is None else price.usd(TYPICAL_INPUT_TOKENS, most_output),
        minutes=max(cost.minutes, TYPICAL_ANSWER_S / 60 / parts.in_flight),
        basis=f"{cost.basis}; an answer assumed to take {tokens} tokens and {TYPICAL_ANSWER_S:.0f} s, {aside} tokens set aside",
    )


def _spec(given: str | None, chosen: ChosenProposer) -> str:
    if given is not None and given.startswith(REPLAY):
        return f"{REPLAY}{Path(given.removeprefix(REPLAY)).resolve()}"
    return given or (chosen.settings.name if chosen.settings is not None else chosen.proposer.name)


def _start(request: OptimizeRequest) -> str:
    return request.start.sha256[:12] if request.start else "none"
