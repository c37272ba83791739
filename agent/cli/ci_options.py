"""What ``tilecast ci`` can be told: one alias an option, so that the command reads as a list of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GITHUB = "On GitHub"

Base = Annotated[str | None, typer.Option(help="Commit to compare with (in Actions: the pull request's).")]
Head = Annotated[str | None, typer.Option(help="Commit to judge (default: the pull request's head, or HEAD).")]
Folder = Annotated[Path, typer.Option(help="Folder of tilecast.toml in the repository.")]
Format = Annotated[str, typer.Option("--format", help="markdown or json.")]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="auto (a GPU, else none), cuda[:N], cpu, replay:DIR, or none (forecasts only).",
        metavar="DEVICE",
    ),
]
Forecaster = Annotated[str | None, typer.Option(help="auto, learned, roofline or none.")]
Evidence = Annotated[
    bool | None,
    typer.Option("--evidence/--no-evidence", help="Compile both versions for the target.", show_default=False),
]
Threshold = Annotated[float | None, typer.Option(help="Relative change below which nothing is said (default 0.03).")]
FailOn = Annotated[str | None, typer.Option(help="never, incorrect or regression: exit code 1 on it.")]
Suggest = Annotated[
    bool | None, typer.Option("--suggest/--no-suggest", help="Look for a faster version.", show_default=False)
]
Model = Annotated[str | None, typer.Option(help="Model for suggestions (builtin needs no key).")]
Drafts = Annotated[bool | None, typer.Option("--drafts/--no-drafts", help="Also drafts.", show_default=False)]
Output = Annotated[
    Path | None, typer.Option(help="Folder for the document, patches and records (to upload as an artifact).")
]
Comment = Annotated[
    bool | None,
    typer.Option(
        "--comment/--no-comment",
        help="Comment on the pull request (default: in Actions, with a token).",
        show_default=False,
        rich_help_panel=GITHUB,
    ),
]
PullNumber = Annotated[int | None, typer.Option("--pr", help="Number of the pull request.", rich_help_panel=GITHUB)]
Repository = Annotated[str | None, typer.Option(help="owner/name.", rich_help_panel=GITHUB)]
ApiUrl = Annotated[
    str | None, typer.Option(help="The API's address (default: GITHUB_API_URL).", rich_help_panel=GITHUB)
]
Author = Annotated[
    str | None,
    typer.Option(help="Login under which the token writes, if it cannot say so itself.", rich_help_panel=GITHUB),
]
Post = Annotated[
    Path | None,
    typer.Option(
        help="Only comment, from the document that another run left here; nothing is compared.",
        metavar="PATH",
        rich_help_panel=GITHUB,
    ),
]
