"""``tilecast report``: a whole run as Markdown or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilecast.agent.cli.shared import JsonOption, RunArgument, opened_record, read_run

FORMATS = ("markdown", "json", "corpus")


def report(
    run: RunArgument,
    format_name: Annotated[
        str, typer.Option("--format", "-f", help="markdown, json, or corpus (a record to replay).", metavar="FORMAT")
    ] = "markdown",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of stdout (corpus: this folder).")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write the report of a run: best, every candidate with its reason, forecasts against measurements, spend.

    Examples: tilecast report last > report.md | tilecast report last --format corpus -o my-record
    """
    from tilecast.agent.report.build import build_report
    from tilecast.agent.report.markdown import markdown
    from tilecast.sandbox.errors import UsageError

    wanted = "json" if json_output else format_name
    if wanted not in FORMATS:
        raise UsageError(f"--format {wanted}: there are {', '.join(FORMATS)}")
    if wanted == "corpus":
        _write_corpus(run, output)
        return
    with opened_record() as record:
        built = build_report(read_run(record, run))
    text = markdown(built) if wanted == "markdown" else built.model_dump_json(by_alias=True) + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8")


def _write_corpus(run: str, folder: Path | None) -> None:
    from tilecast.agent.report.corpus import write_corpus
    from tilecast.sandbox.errors import UsageError

    if folder is None:
        raise UsageError("--format corpus writes several files: name a folder with --output DIR")
    with opened_record() as record:
        for path in write_corpus(read_run(record, run), folder):
            typer.echo(str(path))
