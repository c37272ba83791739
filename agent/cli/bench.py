"""`tilecast bench PROBLEM CANDIDATE...`: verified, and measured against the baseline in one window."""

from __future__ import annotations

from typing import Annotated

import typer

from tilecast.agent.cli.shared import (
    CandidatesArgument,
    DeviceOption,
    JsonOption,
    ProblemArgument,
    PureOption,
    RequireSandboxOption,
    TimeoutOption,
    tell_spaces,
)


def bench(
    problem: ProblemArgument,
    candidates: CandidatesArgument,
    device: DeviceOption = None,
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline",
            help="auto (the fastest of eager, compile, max-autotune), one of these, or a file to compare with.",
        ),
    ] = "auto",
    workload: Annotated[str, typer.Option("--workload", help="The workload to time.")] = "full",
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", help="Device seconds that one comparison may take.", min=0.1, max=3600)
    ] = 20.0,
    profile: Annotated[bool, typer.Option("--profile", help="Also say what limits the kernel.")] = False,
    confirm: Annotated[bool, typer.Option("--confirm", help="Time it again in a fresh process, and soak it.")] = False,
    pure: PureOption = None,
    require_sandbox: RequireSandboxOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure candidates against the baseline: interleaved, with an interval and a verdict; every timed output is checked.

    Exit code 1 if any candidate is rejected, 3 if one passed and could not be timed because there is no GPU here.

    Example: tilecast bench examples/softmax_cpp examples/softmax_cpp/kernel.py --device cpu
    """
    from tilecast.agent.cli.verdicts import finish, show_measurement
    from tilecast.agent.config import resolve
    from tilecast.agent.judging import benchmark_all, options_of, read_inputs

    settings = resolve({"device": device, "pure": pure, "require_sandbox": require_sandbox, "timeout_s": timeout})
    options = options_of(
        settings, baseline, workload=workload, max_seconds=max_seconds, profile=profile, confirm=confirm
    )
    inputs = read_inputs(problem, candidates)
    tell_spaces(inputs.candidates)
    finish(inputs, lambda say: benchmark_all(inputs, settings, options, say), show_measurement, as_json)
