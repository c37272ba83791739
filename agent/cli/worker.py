"""``tilecast worker``: does the work of a bundle folder on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilecast.agent.cli.shared import JsonOption


def worker(
    folder: Annotated[Path, typer.Argument(help="The folder named after --device bundle:", metavar="DIR")],
    device: Annotated[str, typer.Option("--device", help="cuda[:N] or cpu.", metavar="DEVICE")] = "cuda",
    once: Annotated[bool, typer.Option("--once", help="Do what is there, then stop.")] = False,
    wait: Annotated[float | None, typer.Option(min=0, help="Stop after S seconds without work.", metavar="S")] = None,
    for_s: Annotated[
        float | None, typer.Option("--for", min=0, help="Begin nothing after S seconds.", metavar="S")
    ] = None,
    require_sandbox: Annotated[
        bool, typer.Option("--require-sandbox", help="Refuse to run without full isolation.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate what a run elsewhere wrote into DIR, one item at a time, and write the results beside it.

    Killed or interrupted, it goes on where it was. On a host without tilecast, `python3 DIR/tilecast-worker.pyz` does the
    same with torch, triton and numpy alone.

    Examples: tilecast worker work --once | tilecast worker /shared/work --device cuda:1 --wait 600
    """
    from tilecast.sandbox.harness.bundles.worker import main

    given = [str(folder), "--device", device]
    given += ["--json"] * as_json + ["--once"] * once + ["--require-sandbox"] * require_sandbox
    given += [] if wait is None else ["--wait", str(wait)]
    given += [] if for_s is None else ["--for", str(for_s)]
    raise typer.Exit(main(given))
