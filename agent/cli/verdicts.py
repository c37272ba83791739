"""How `verify` and `bench` show their answers: a line or a few for people, one JSON document for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import typer

from tilecast.agent.cli.shared import log_line, print_json
from tilecast.agent.judging import Inputs
from tilecast.sandbox.base import ProgressSink
from tilecast.sandbox.errors import InvalidReference, TilecastError
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification

Result = TypeVar("Result", bound=Verification)
PASSED = EvaluationStatus.PASSED
CPU = "cpu"
TIMING = {"verdict", "speedup", "latency_ms", "baseline", "samples", "speed_of_light"}
"""Fields of a document of `bench` that are there only if the candidate passed."""


def finish(
    inputs: Inputs,
    run: Callable[[ProgressSink], Iterator[Result]],
    show: Callable[[Result], None],
    as_json: bool,
) -> None:
    """Print results as they come (or all as one document) and leave with the contract's exit code.

    Raises:
        typer.Exit: 1 if a candidate was rejected, 3 if the machine could not judge or time one.
        InvalidReference: if the problem itself is refused (exit 2); with ``as_json`` that is a document, too.
        KeyboardInterrupt, TilecastError: what ended it early; what was judged before is printed.
    """
    results: list[Verification] = []
    try:
        for result in run(log_line):
            results.append(result)
            if not as_json:
                show(result)
    except InvalidReference as error:
        if as_json:
            _print_all(
                [*results, *(refused(inputs, index, error) for index in range(len(results), _asked(inputs)))], inputs
            )
        raise
    except (KeyboardInterrupt, TilecastError):
        if results:
            log_line(f"{len(results)} of {_asked(inputs)} candidate(s) were judged before it ended")
        if as_json and results:
            _print_all(results, inputs)
        raise
    if as_json:
        _print_all(results, inputs)
    _leave(results)


def _leave(results: Sequence[Verification]) -> None:
    """Exit code 0 if every candidate passed, and was timed where that was asked.

    Raises:
        typer.Exit: 1 if one was rejected or a device here could not time it, 3 if what is missing is the device.
    """
    untimed = [r for r in results if isinstance(r, Measurement) and r.status is PASSED and r.verdict is None]
    for result in untimed:
        log_line(f"error: {result.candidate} passed, and was not timed: {_why_untimed(result)}")
    statuses = {result.status for result in results}
    if statuses == {PASSED} and not untimed:
        return
    here = any(result.device != CPU for result in untimed)
    raise typer.Exit(1 if here or not statuses <= {PASSED, EvaluationStatus.ENVIRONMENT_ERROR} else 3)


def _why_untimed(result: Measurement) -> str:
    notes = "; ".join(map(str, result.details.get("notes", [])))
    return (
        notes if result.device != CPU else f"{notes or 'its time would mean nothing'}; a GPU is needed (--device cuda)"
    )


def _asked(inputs: Inputs) -> int:
    return len(inputs.candidates)


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
    if result.status is not PASSED:
        print(f"  {result.reason}")
        for check in result.checks:
            if not check.passed and check.detail != result.reason:
                print(f"  failed check: {check.name}{': ' + check.detail if check.detail else ''}")


def show_measurement(result: Measurement) -> None:
    """Verdict with its interval, or why there is none."""
    if result.speedup is None or result.latency_ms is None:
        show_verification(result)
        if result.status is PASSED:
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


def _print_all(results: Sequence[Verification], inputs: Inputs) -> None:
    """One document, a list where several candidates were asked about; what only a timed one has is left out of a rejected one."""
    documents = [
        r.model_dump(mode="json", by_alias=True, exclude=None if r.status is PASSED else TIMING) for r in results
    ]
    print_json(documents if _asked(inputs) != 1 else documents[0])
