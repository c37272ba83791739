"""``tilecast optimize``: the loop, from flags to exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tilecast.agent.cli import optimize_options as options
from tilecast.agent.cli.shared import (
    DeviceOption,
    JsonOption,
    MaybeProblemArgument,
    PureOption,
    RequireSandboxOption,
    TargetOption,
    TimeoutOption,
)

if TYPE_CHECKING:
    from tilecast.agent.budget import Plan
    from tilecast.agent.engine import Engine
    from tilecast.agent.request import OptimizeRequest
    from tilecast.sandbox.schema import OptimizeResult

FEWEST_CANDIDATES = 3


def optimize(
    problem: MaybeProblemArgument = None,
    kernel: options.Kernel = None,
    output: options.Output = None,
    model: options.Model = None,
    device: DeviceOption = None,
    strategy: options.Strategy = None,
    forecaster: options.Forecaster = None,
    target: TargetOption = None,
    language: options.Language = None,
    max_evals: options.MaxEvals = None,
    max_gpu_seconds: options.MaxGpuSeconds = None,
    max_tokens: options.MaxTokens = None,
    max_usd: options.MaxUsd = None,
    max_minutes: options.MaxMinutes = None,
    target_speedup: options.TargetSpeedup = None,
    patience: options.Patience = None,
    confirm: options.Confirm = True,
    seed: options.Seed = None,
    lanes: options.Lanes = None,
    in_flight: options.InFlight = None,
    run_dir: options.RunDir = None,
    resume: options.Resume = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    pure: PureOption = None,
    require_sandbox: RequireSandboxOption = None,
    timeout: TimeoutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Propose, forecast, verify and benchmark kernels for PROBLEM until a budget is spent.

    Examples: tilecast optimize examples/softmax --max-evals 20
    | tilecast optimize problem.py --model gpt-5 --max-usd 2 --max-evals 40 --output fast.py
    """
    flags = {
        "model": model,
        "device": device,
        "strategy": strategy,
        "forecaster": forecaster,
        "target": target,
        "language": language,
        "in_flight": in_flight,
        "lanes": lanes,
        "pure": pure,
        "require_sandbox": require_sandbox,
        "timeout_s": timeout,
        "max_evals": max_evals,
        "max_gpu_seconds": max_gpu_seconds,
        "max_tokens": max_tokens,
        "max_usd": max_usd,
        "max_minutes": max_minutes,
    }
    more = {"target_speedup": target_speedup, "patience": patience, "seed": seed, "confirm": confirm}
    code = _optimize(problem, kernel, run_dir, resume, flags, more, _Faces(output, dry_run, yes, json_output))
    raise typer.Exit(code)


class _Faces:
    """How the run is shown and what is done with its result."""

    def __init__(self, output: Path | None, dry_run: bool, yes: bool, json_output: bool) -> None:
        self.output, self.dry_run, self.yes, self.json = output, dry_run, yes, json_output


def _optimize(
    problem: str | None,
    kernel: Path | None,
    run_dir: Path | None,
    resume: str | None,
    flags: dict[str, Any],
    more: dict[str, Any],
    faces: _Faces,
) -> int:
    from tilecast.agent.cli.request import build_request
    from tilecast.agent.cli.view import make_view
    from tilecast.agent.engine import Engine
    from tilecast.agent.progress import Said
    from tilecast.agent.result import check_writable

    if faces.output is not None:
        check_writable(faces.output, "--output")
    request, notes = build_request(problem, kernel, run_dir, resume, flags, more)
    view, engine = None if faces.dry_run else make_view(faces.json), None
    try:
        if view is None:
            engine, missing = _planned(request, resume)
            return _dry_run(engine, [*notes, *_chosen(engine)], faces, missing)
        engine = Engine(request, [view], resume)
        lines = [*notes, *_chosen(engine)]
        for line in lines:
            view(Said(line))
        if resume is None:
            _check_plan(engine.plan(), faces.yes)
        result = drive(engine, view)
    finally:
        if view is not None:
            view.close()
        if engine is not None:
            engine.close()
    return _finish(engine, result, faces)


def drive(engine: Engine, view: Any) -> OptimizeResult:
    """Run an engine with Ctrl-C handled: once finishes the step, twice kills.

    Raises:
        TilecastError: what ended the run; the line says how to go on.
    """
    from tilecast.agent.interrupts import two_step
    from tilecast.agent.progress import Said, StopAsked
    from tilecast.sandbox.errors import TilecastError

    sandbox = engine.parts.device.sandbox
    with two_step(
        engine.interrupt, lambda: view(StopAsked()), sandbox.close, lambda text: view(Said(text, warning=True))
    ):
        try:
            return engine.run()
        except TilecastError as error:
            if engine.run_id is not None and error.exit_code == 3:
                error.args = (f"{error} (to go on: tilecast optimize --resume {engine.run_id})",)
            raise


def _check_plan(plan: Plan, yes: bool) -> None:
    """Refuse a budget that cannot teach anything.

    Raises:
        UsageError: naming the limit and what it buys.
    """
    from tilecast.agent.budget import FLAGS
    from tilecast.sandbox.errors import UsageError

    if yes or plan.candidates is None or plan.limited_by is None or plan.candidates >= FEWEST_CANDIDATES:
        return
    raise UsageError(
        f"the budget buys {plan.candidates} candidate(s), fewer than {FEWEST_CANDIDATES}, limited by "
        f"{FLAGS[plan.limited_by]} ({plan.basis}); raise it, or go on with --yes"
    )


def _chosen(engine: Engine) -> list[str]:
    """Which device and which proposer, as lines."""
    return [engine.parts.device.line, engine.parts.proposer.line]


def _planned(request: OptimizeRequest, resume: str | None) -> tuple[Engine, str]:
    """An engine to plan with, and what this machine lacks to run it: then the plan is for a GPU elsewhere."""
    from tilecast.agent.assembly import assemble, elsewhere
    from tilecast.agent.engine import Engine
    from tilecast.sandbox.errors import EnvironmentFailure

    try:
        return Engine(request, [], resume), ""
    except EnvironmentFailure as error:
        if resume is not None:
            raise
        return Engine(request, [], None, lambda asked, known: assemble(asked, known, elsewhere())), str(error)


def _dry_run(engine: Engine, lines: list[str], faces: _Faces, missing: str) -> int:
    from tilecast.agent.cli.shared import print_json
    from tilecast.agent.report.plan import plan_document, plan_lines

    plan = engine.plan()
    if faces.json:
        print_json({**plan_document(plan, lines), "missing": [missing] if missing else []})
    else:
        for line in [*lines, *plan_lines(plan), *([f"missing here: {missing}"] if missing else [])]:
            typer.echo(line)
    _check_plan(plan, faces.yes)
    return 0


def _finish(engine: Engine, result: OptimizeResult, faces: _Faces) -> int:
    from tilecast.agent.cli.shared import echo_wrapped, log_line, print_json
    from tilecast.agent.report.summary import result_lines
    from tilecast.agent.result import write_text

    if faces.output is not None and result.best is not None:
        write_text(faces.output, Path(result.best.path).read_text(encoding="utf-8"))
        best = result.best.model_copy(update={"path": str(faces.output.absolute())})
        result = result.model_copy(update={"best": best})
    if faces.json:
        print_json(result)
    else:
        echo_wrapped(result_lines(result))
    if result.stopped_by == "interrupted":
        return 130
    if result.best is None:
        log_line(result.why_nothing)
        return 1
    return 0
