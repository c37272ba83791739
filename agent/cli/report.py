"""``tilecast report``: a whole run as Markdown, HTML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilecast.agent.cli.shared import JsonOption, RunArgument, log_line, opened_record, read_run

if TYPE_CHECKING:
    from tilecast.agent.record.store import RunLog

FORMATS = ("markdown", "html", "json", "corpus")


def report(
    run: RunArgument,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="markdown, html (one file, with plots), json, corpus (to replay).",
            metavar="FORMAT",
        ),
    ] = "markdown",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of stdout (corpus: this folder).")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write the report of a run: best, every candidate with its reason, forecasts against measurements, spend.

    Examples: tilecast report last > report.md | tilecast report last --format html -o report.html |
    tilecast report last --format corpus -o my-record
    """
    from tilecast.sandbox.errors import UsageError

    wanted = "json" if json_output else format_name
    if wanted not in FORMATS:
        raise UsageError(f"--format {wanted}: there are {', '.join(FORMATS)}")
    if wanted == "corpus":
        _write_corpus(run, output)
        return
    with opened_record() as record:
        text = _written(read_run(record, run), wanted)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"--output {output}: {problem.strerror}; name a file in a folder that exists") from problem
    log_line(f"written to {output}")


def _written(log: RunLog, wanted: str) -> str:
    """The report as the text of one file."""
    from tilecast.agent.report.build import build_report

    built = build_report(log)
    if wanted == "json":
        return built.model_dump_json(by_alias=True) + "\n"
    if wanted == "html":
        from tilecast.agent.report.page import html
        from tilecast.agent.report.texts import texts_of

        return html(built, texts_of(log, built))
    from tilecast.agent.report.markdown import markdown

    return markdown(built)


def _write_corpus(run: str, folder: Path | None) -> None:
    from tilecast.agent.report.corpus import write_corpus
    from tilecast.sandbox.errors import UsageError

    if folder is None:
        raise UsageError("--format corpus writes several files: name a folder with --output DIR")
    with opened_record() as record:
        for path in write_corpus(read_run(record, run), folder):
            typer.echo(str(path))
