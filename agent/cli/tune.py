"""`tilecast tune PROBLEM KERNEL`: the best CONFIG of a kernel that somebody has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.agent.cli.shared import DeviceOption, JsonOption, ProblemArgument, RequireSandboxOption, TimeoutOption

if TYPE_CHECKING:
    from tilecast.agent.request import OptimizeRequest
    from tilecast.agent.tuning import Tuned

FULL = "full"


def tune(
    problem: ProblemArgument,
    kernel: Annotated[
        Path | None, typer.Argument(help="The kernel, with CONFIG and SPACE (default: the folder's kernel.py).")
    ] = None,
    device: DeviceOption = None,
    forecaster: Annotated[str | None, typer.Option(help="auto, learned, roofline or none.")] = None,
    target: Annotated[str | None, typer.Option(help="GPU to forecast for where there is none here.")] = None,
    max_evals: Annotated[int | None, typer.Option(min=1, help="Configurations sent to the device.")] = None,
    max_gpu_seconds: Annotated[float | None, typer.Option(help="Device seconds.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Minutes of time.")] = None,
    patience: Annotated[int | None, typer.Option(min=1, help="Stop after N evaluations without a better one.")] = None,
    dispatch: Annotated[
        bool, typer.Option("--dispatch", help="Tune each workload (but small*) and print a table by workload.")
    ] = False,
    workload: Annotated[str, typer.Option("--workload", help="The workload to tune for.")] = FULL,
    output: Annotated[Path | None, typer.Option(help="Write the kernel with its best CONFIG to this file.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice (default 0).")] = None,
    require_sandbox: RequireSandboxOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the best CONFIG of one kernel: the forecaster ranks SPACE, the budget measures the promising part.

    Without a limit a quarter of SPACE is measured, at least 10 configurations. The answer is a CONFIG line to paste.

    Example: tilecast tune examples/softmax --max-evals 4
    """
    flags = {
        "model": "builtin",
        "device": device,
        "forecaster": forecaster,
        "target": target,
        "require_sandbox": require_sandbox,
        "timeout_s": timeout,
        "max_evals": max_evals,
        "max_gpu_seconds": max_gpu_seconds,
        "max_minutes": max_minutes,
    }
    more = {"target_speedup": None, "patience": patience, "seed": seed}
    raise typer.Exit(_tune(problem, kernel, flags, more, workload if not dispatch else None, output, as_json))


def _tune(
    problem: str,
    kernel: Path | None,
    flags: dict[str, Any],
    more: dict[str, Any],
    workload: str | None,
    output: Path | None,
    as_json: bool,
) -> int:
    from tilecast.agent.cli.optimize import drive
    from tilecast.agent.cli.request import build_request
    from tilecast.agent.cli.view import make_view
    from tilecast.agent.progress import Said
    from tilecast.agent.result import check_writable
    from tilecast.agent.tuning import space_size, tune
    from tilecast.sandbox.errors import UsageError

    if output is not None:
        check_writable(output, "--output")
    request, _ = build_request(problem, kernel, None, None, {**flags, "max_evals": flags["max_evals"] or 1}, more)
    if request.start is None:
        raise UsageError(f"{problem}: name a KERNEL; there is no kernel.py beside the problem")
    if not any(flags[name] for name in ("max_evals", "max_gpu_seconds", "max_minutes")):
        flags = {**flags, "max_evals": max(10, space_size(request.start) // 4)}
    request, notes = build_request(problem, kernel, None, None, flags, more)
    view = make_view(as_json)
    answers: list[Tuned] = []
    try:
        for note in notes:
            view(Said(note))
        names, word = ([workload], "") if workload is not None else _workloads(request)
        if word:
            view(Said(word))
        for answer in tune(request, names, [view], lambda engine: drive(engine, view)):
            answers.append(answer)
            if answer.result.stopped_by == "interrupted":
                break
    finally:
        view.close()
    _show(answers, as_json, dispatch=workload is None)
    if output is not None and answers[0].config is not None:
        from tilecast.agent.result import write_text

        assert request.start is not None
        write_text(output, request.start.with_config(answers[0].config).source)
    if answers[-1].result.stopped_by == "interrupted":
        return 130
    return 0 if all(answer.config is not None for answer in answers) else 1


def _workloads(request: OptimizeRequest) -> tuple[list[str], str]:
    """What ``--dispatch`` tunes for, and a word on what it leaves out."""
    from tilecast.agent.devices import make_sandbox
    from tilecast.agent.tuning import timed_workloads

    asked = request.settings
    sandbox = make_sandbox(asked.device, request.problem, None, asked.require_sandbox, asked.cluster).sandbox
    try:
        if sandbox.device.recorded:
            return [FULL], "the record holds times of `full` alone: the table has one line"
        facts = sandbox.preflight(request.problem, lambda text: None).facts
    finally:
        sandbox.close()
    return (timed_workloads([item.name for item in facts.workloads]) if facts is not None else [FULL]), ""


def _show(answers: list[Tuned], as_json: bool, dispatch: bool) -> None:
    from tilecast.agent.cli.shared import echo_wrapped, print_json
    from tilecast.agent.report.summary import result_lines
    from tilecast.agent.tuning import dispatch_literal

    if as_json:
        rows = [
            {
                "workload": a.workload,
                "config": a.config,
                "gain": a.gain,
                "start_ms": a.start_ms,
                "result": a.result.model_dump(mode="json", by_alias=True),
            }
            for a in answers
        ]
        print_json({"schema": 1, "workloads": rows})
        return
    for answer in answers:
        echo_wrapped(result_lines(answer.result))
        if answer.gain is not None:
            typer.echo(f"  {answer.gain:.2f}x the kernel as given, on workload {answer.workload}")
    if dispatch:
        typer.echo(dispatch_literal(answers))
    elif answers[0].config is not None:
        typer.echo(f"CONFIG = {answers[0].config!r}")
