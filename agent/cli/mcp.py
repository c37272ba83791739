"""`tilecast mcp [PROBLEM]`: the tools for other agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilecast.agent.cli.shared import DeviceOption, RequireSandboxOption, TimeoutOption, print_json


def mcp(
    problem: Annotated[str | None, typer.Argument(help="A problem to load at once.", show_default=False)] = None,
    device: DeviceOption = None,
    forecaster: Annotated[str | None, typer.Option(help="auto, learned, roofline or none.")] = None,
    target: Annotated[str | None, typer.Option(help="GPU to forecast for where there is none here.")] = None,
    max_evals: Annotated[int | None, typer.Option(min=1, help="Evaluations (default 40).")] = None,
    max_gpu_seconds: Annotated[float | None, typer.Option(help="Device seconds.")] = None,
    require_sandbox: RequireSandboxOption = None,
    timeout: TimeoutOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what would be served as one JSON document, and serve nothing.")
    ] = False,
) -> None:
    """Serve forecast, verify, bench, tune, optimize and show over the Model Context Protocol, on stdin and stdout.

    The working folder is the one it is started in; the budget is for the life of the server.

    Example of a client's configuration: {"command": "tilecast", "args": ["mcp", "examples/softmax"]}
    """
    from tilecast.agent.config import resolve
    from tilecast.agent.request import DEFAULT_EVALS, limits_of
    from tilecast.sandbox.errors import EnvironmentFailure

    flags = {
        "device": device,
        "forecaster": forecaster,
        "target": target,
        "require_sandbox": require_sandbox,
        "timeout_s": timeout,
        "max_evals": max_evals,
        "max_gpu_seconds": max_gpu_seconds,
    }
    settings = resolve(flags)
    limits = limits_of(settings.budget)
    if not limits.any:
        limits = limits_of(resolve({**flags, "max_evals": DEFAULT_EVALS}).budget)
    try:
        import anyio

        from tilecast.agent.serving import Served
    except ImportError as error:
        raise EnvironmentFailure(f"the protocol's SDK is not installed ({error}): pip install 'mcp>=2'") from error
    from tilecast.agent.chat.signals import guarded

    served = Served(settings, limits, Path.cwd())
    if problem is not None:
        served.box.work.load(problem)
    if as_json:
        print_json(served.document())
        return
    with guarded():
        anyio.run(served.run)
