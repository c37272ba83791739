"""How `verify` and `bench` show their answers: a line or a few for people, one JSON document for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import typer

from tilecast.agent.cli.shared import log_line, print_json
from tilecast.agent.judging import Inputs
from tilecast.sandbox.base import ProgressSink
from tilecast.sandbox.errors import InvalidReference
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification

Result = TypeVar("Result", bound=Verification)


def finish(
    inputs: Inputs,
    run: Callable[[ProgressSink], Iterator[Result]],
    show: Callable[[Result], None],
    as_json: bool,
) -> None:
    """Print results as they come (or all as one document) and leave with the contract's exit code.

    Raises:
        typer.Exit: 1 if a candidate was rejected, 3 if the machine could not judge one.
        InvalidReference: if the problem itself is refused (exit 2); with ``as_json`` that is a document, too.
    """
    results: list[Result] = []
    try:
        for result in run(log_line):
            results.append(result)
            if not as_json:
                show(result)
    except InvalidReference as error:
        if as_json:
            _print_all([refused(inputs, index, error) for index in range(len(inputs.candidates))])
        raise
    if as_json:
        _print_all(results)
    statuses = {result.status for result in results}
    if statuses == {EvaluationStatus.PASSED}:
        return
    raise typer.Exit(3 if statuses <= {EvaluationStatus.PASSED, EvaluationStatus.ENVIRONMENT_ERROR} else 1)


def refused(inputs: Inputs, index: int, error: InvalidReference) -> Verification:
    """What a candidate of a refused problem is told."""
    candidate = inputs.candidates[index]
    return Verification(
        status=EvaluationStatus.INVALID_REFERENCE,
        reason=str(error),
        source_sha256=candidate.sha256,
        candidate=candidate.name,
    )


def show_verification(result: Verification) -> None:
    """Status, time, and the reason where it was rejected."""
    print(f"{result.candidate}: {result.status} in {result.seconds:.1f} s ({result.device}, {result.sandbox_level})")
    if result.status is not EvaluationStatus.PASSED:
        print(f"  {result.reason}")
        for check in result.checks:
            if not check.passed and check.detail != result.reason:
                print(f"  failed check: {check.name}{': ' + check.detail if check.detail else ''}")


def show_measurement(result: Measurement) -> None:
    """Verdict with its interval, or why there is none."""
    if result.speedup is None or result.latency_ms is None:
        show_verification(result)
        if result.status is EvaluationStatus.PASSED:
            print("  not timed: there is no device here that runs it as it is meant to run")
        _show_notes(result)
        return
    speed, time = result.speedup, result.latency_ms
    source = "RECORDED, not measured here" if result.recorded else f"{result.samples} samples"
    found = {"same": "same as", "undecided": "undecided against"}.get(str(result.verdict), f"{result.verdict} than")
    print(
        f"{result.candidate}: {found} {result.baseline}: {speed.ratio:.3f}x "
        f"[{speed.low:.3f}, {speed.high:.3f}], {time.candidate:.4g} ms against {time.baseline:.4g} ms ({source}; {result.device})"
    )
    if result.speed_of_light is not None:
        print(f"  {result.speed_of_light.fraction:.0%} of the speed of light, {result.speed_of_light.bound}-bound")
    _show_notes(result)
    for name, value in (result.details.get("profile") or {}).items():
        print(f"  {name}: {value}")


def _show_notes(result: Measurement) -> None:
    for note in result.details.get("notes", []):
        print(f"  note: {note}")


def _print_all(results: list[Result]) -> None:
    print_json([r.model_dump(mode="json", by_alias=True) for r in results] if len(results) != 1 else results[0])
