"""What ``tilecast optimize`` can be told: one alias an option, so that the command reads as a list of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

BUDGET, STOPPING = "Budget", "When to stop"

Kernel = Annotated[Path | None, typer.Option(help="Kernel to start from (default: the folder's kernel.py).")]
Output = Annotated[Path | None, typer.Option(help="Write the winner to this file.")]
Model = Annotated[
    str | None, typer.Option(help="builtin (no key needed), replay:DIR, or a model's name.", metavar="NAME")
]
Strategy = Annotated[
    str | None, typer.Option(help="search (default), or agent: a model with tools.", metavar="[search|agent]")
]
Forecaster = Annotated[
    str | None,
    typer.Option(help="What predicts before measuring.", metavar="[auto|learned|llm|ensemble|roofline|none]"),
]
Language = Annotated[
    str | None,
    typer.Option(
        help="Language to write kernels in (default: that of the kernel).", metavar="[triton|cutile|cuda|cpp|torch]"
    ),
]
MaxEvals = Annotated[int | None, typer.Option(min=1, help="Candidates sent to the device.", rich_help_panel=BUDGET)]
MaxGpuSeconds = Annotated[
    float | None, typer.Option(help="Device seconds, preflight and baseline included.", rich_help_panel=BUDGET)
]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Tokens of the model.", rich_help_panel=BUDGET)]
MaxUsd = Annotated[float | None, typer.Option(help="US dollars for the model.", rich_help_panel=BUDGET)]
MaxMinutes = Annotated[float | None, typer.Option(help="Minutes of time.", rich_help_panel=BUDGET)]
TargetSpeedup = Annotated[
    float | None, typer.Option(help="Stop at this speedup over the baseline.", rich_help_panel=STOPPING)
]
Patience = Annotated[
    int | None, typer.Option(min=1, help="Stop after N evaluations without a better one.", rich_help_panel=STOPPING)
]
Confirm = Annotated[
    bool, typer.Option("--confirm/--no-confirm", help="Examine a new best a second time, in a fresh process.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of every random choice (default 0).")]
Lanes = Annotated[
    int | None, typer.Option(min=1, max=8, help="Judges on the GPU: several verify, one at a time times (default 1).")
]
InFlight = Annotated[
    int | None, typer.Option(min=1, max=64, help="Proposals of a model asked for at once (default 4).")
]
RunDir = Annotated[
    Path | None, typer.Option(help="Folder in which the run's own folder is made (default: TILECAST_HOME/runs).")
]
Resume = Annotated[str | None, typer.Option(help="Take up this run again.", metavar="RUN")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what the budget buys, and do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Go on with a budget for fewer than three candidates.")]
