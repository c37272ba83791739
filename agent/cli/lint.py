"""`tilecast lint PROBLEM`: would the checker catch a wrong kernel on this problem?"""

from __future__ import annotations

import typer

from tilecast.agent.cli.shared import DeviceOption, JsonOption, ProblemArgument, print_json


def lint(
    problem: ProblemArgument,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run wrong answers (zeros, mean, low precision, a wrong row, stale output, …) through the checker.

    Exit code 1 if one of them would pass: the problem is weak, whatever a kernel does.

    Example: tilecast lint examples/softmax
    """
    from tilecast.agent import judging
    from tilecast.agent.cli.shared import log_line
    from tilecast.agent.config import resolve
    from tilecast.sandbox.problem import load_problem

    loaded = load_problem(problem)
    settings = resolve({"device": device or "cpu"})
    report = judging.lint(loaded, settings, log_line)
    if as_json:
        print_json({"schema": 1, "problem": loaded.name, **report})
    else:
        for mutation in report["mutations"]:
            mark = "would PASS" if mutation["would_pass"] else "caught"
            print(f"{mutation['name']:<24} {mark:<11} {mutation['detail']}")
        for advice in report["advice"]:
            print(f"advice: {advice}")
        print(
            f"{loaded.name}: {'weak: wrong kernels would pass' if report['weak'] else 'every wrong answer is caught'}"
        )
    if report["weak"]:
        raise typer.Exit(1)
