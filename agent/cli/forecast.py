"""`tilecast forecast PROBLEM CANDIDATE...`: how fast would it be, and how sure is that? Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.agent.cli.shared import CandidatesArgument, JsonOption, ProblemArgument, log_line, print_json, tell_spaces

if TYPE_CHECKING:
    from tilecast.agent.config import Settings
    from tilecast.sandbox.hardware import Hardware
    from tilecast.sandbox.problem import Problem
    from tilecast.sandbox.schema import Forecast
    from tilecast.sandbox.source import Candidate
    from tilecast.tools.forecast.base import EvidenceProvider, ForecastContext, Forecaster


def forecast(
    problem: ProblemArgument,
    candidates: CandidatesArgument,
    target: Annotated[str | None, typer.Option(help="GPU to forecast for (default: this machine's).")] = None,
    forecaster: Annotated[str | None, typer.Option(help="auto, learned, llm, ensemble, roofline or none.")] = None,
    evidence: Annotated[
        bool, typer.Option("--evidence/--no-evidence", help="Compile for the target first (about a second a kernel).")
    ] = False,
    baseline_ms: Annotated[
        float | None,
        typer.Option(min=1e-6, max=1e9, help="Measured milliseconds of eager; otherwise as recorded, else forecast."),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Forecaster weights (default: those shipped).")] = None,
    model: Annotated[str | None, typer.Option(help="Language model, for llm and ensemble.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Forecast time and speedup of candidates, with an interval and with silence where nothing is known.

    A forecast is never a measurement, and no GPU second is spent on it.

    Example: tilecast forecast examples/softmax examples/softmax/kernel.py --target H200
    """
    from tilecast.agent.config import resolve
    from tilecast.sandbox.problem import load_problem
    from tilecast.sandbox.source import check_defines_model, check_parses, load_candidate

    settings = resolve({"target": target, "forecaster": forecaster, "model": model})
    read = load_problem(problem)
    given = [load_candidate(path) for path in candidates]
    for path, candidate in zip(candidates, given, strict=True):
        check_parses(candidate.source, path)
        check_defines_model(candidate.source, path)
    tell_spaces(given)
    hardware = _hardware(settings, read, given)
    chosen = _forecaster(settings, weights)
    with _evidence(read, hardware, evidence) as provider:
        context = _context(read, hardware, provider, baseline_ms, weights)
        found = chosen.forecast(given, context)
    target = "" if hardware is None else hardware.key.upper()
    if as_json:
        documents = [_document(item, provider, source, target) for item, source in zip(found, given, strict=True)]
        print_json(documents if len(documents) > 1 else documents[0])
        return
    for item in found:
        _show(item, target)


def _document(item: Forecast, provider: EvidenceProvider | None, candidate: Any, target: str) -> dict[str, Any]:
    """The contract's document and the GPU it is for; with evidence collected, the compiler's words under ``evidence.compiled``."""
    document = {**item.model_dump(mode="json", by_alias=True), "target": target or None}
    if provider is not None:
        document["evidence"]["compiled"] = provider(candidate)
    return document


def _hardware(settings: Settings, problem: Problem, candidates: list[Candidate]) -> Hardware | None:
    """The GPU to forecast for: named, else recorded beside the problem, else this machine's; None where no candidate uses one.

    Raises:
        UsageError: if none is named and there is none, or the one named is unknown.
    """
    from pathlib import Path

    from tilecast.agent.machine import gpus
    from tilecast.sandbox.corpus import read_info
    from tilecast.sandbox.errors import UsageError
    from tilecast.sandbox.hardware import catalogue, require_device, require_hardware
    from tilecast.tools.forecast.gpu_only import runs_on_cpu

    named = None if settings.target is None else require_hardware(settings.target)
    if all(map(runs_on_cpu, candidates)):
        return None
    if named is not None:
        return named
    if problem.recorded is not None:
        return require_device(read_info(Path(problem.recorded)).gpu)
    here = gpus()
    if not here:
        known = ", ".join(catalogue())
        raise UsageError(f"there is no GPU here to forecast for: name one with --target (known: {known})")
    return require_device(here[0].name)


def _forecaster(settings: Settings, weights: str | None) -> Forecaster:
    from tilecast.tools.forecast.factory import make_forecaster

    if settings.forecaster not in ("llm", "ensemble") or settings.model is None:
        return make_forecaster(settings.forecaster, weights=weights)
    from tilecast.agent.config import home
    from tilecast.tools.model.client import OpenAIChatModel
    from tilecast.tools.model.memory import InMemoryJournal
    from tilecast.tools.model.settings import model_settings

    chosen = model_settings(settings.model, settings.models, settings.base_url)
    client = OpenAIChatModel(chosen, chosen.key(), home())
    return make_forecaster(settings.forecaster, model=client, journal=InMemoryJournal(), weights=weights)


@contextmanager
def _evidence(problem: Problem, hardware: Hardware | None, wanted: bool) -> Iterator[EvidenceProvider | None]:
    """A provider of evidence for the target, or None where it was not asked for."""
    if not wanted or hardware is None:
        yield None
        return
    from tilecast.agent.config import home
    from tilecast.sandbox.errors import TilecastError
    from tilecast.sandbox.evidence import EvidenceCollector

    with EvidenceCollector(home() / "cache" / "evidence") as collector:

        def provide(candidate: Any) -> dict[str, Any] | None:
            try:
                return collector.collect(problem, candidate, hardware.key).model_dump(mode="json")
            except TilecastError as error:
                log_line(f"{candidate.name}: no evidence: {error}")
                return None

        yield provide


def _context(
    problem: Problem,
    hardware: Hardware | None,
    provider: EvidenceProvider | None,
    baseline_ms: float | None,
    weights: str | None,
) -> ForecastContext:
    """What forecasters are told; a baseline that nobody measured is forecast, and named so."""
    from tilecast.tools.forecast.base import ForecastContext
    from tilecast.tools.forecast.facts import facts_from_text, recorded_eager_ms, reference_as_candidate
    from tilecast.tools.forecast.learned import LearnedForecaster

    name, known = "eager", baseline_ms if baseline_ms is not None else recorded_eager_ms(problem, hardware)
    blank = ForecastContext(
        problem=problem,
        facts=facts_from_text(problem),
        hardware=hardware,
        baseline_name=name,
        baseline_ms=known,
        incumbent_ms=None,
        evidence=provider,
    )
    if known is not None or hardware is None:
        return blank
    guess = LearnedForecaster.load(weights).forecast(
        [reference_as_candidate(problem)], blank.model_copy(update={"evidence": None})
    )[0]
    if guess.latency_ms is None:
        return blank
    log_line(f"eager was not measured here: {guess.latency_ms.median:.4g} ms is a forecast (give --baseline-ms)")
    return blank.model_copy(update={"baseline_name": "eager (forecast)", "baseline_ms": guess.latency_ms.median})


def _show(item: Forecast, target: str) -> None:
    if item.latency_ms is None or item.speedup is None:
        print(f"{item.candidate}: no forecast: {item.why}")
        return
    latency, speedup = item.latency_ms, item.speedup
    silent = "  (abstains: measure it)" if item.abstain else ""
    print(
        f"{item.candidate}: {latency.median:.4g} ms on {target} ({latency.low:.4g} to {latency.high:.4g}), "
        f"{speedup.median:.2f}x {item.baseline} ({speedup.low:.2f} to {speedup.high:.2f}), "
        f"faster with {item.p_faster:.0%} if valid, valid with {item.p_valid:.0%}{silent}"
    )
    print(f"  {item.why}")
