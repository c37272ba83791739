"""What several commands share: option definitions, and how documents and errors leave the process."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tilecast.agent.record.store import Record, RunLog
    from tilecast.sandbox.source import Candidate

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; everything else on stderr.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="auto, cuda[:N], cpu, replay:DIR (recorded), ray[:ADDRESS] (a Ray cluster), or bundle:DIR (work for a host "
        "elsewhere).",
        metavar="DEVICE",
    ),
]
PureOption = Annotated[
    bool | None, typer.Option("--pure/--no-pure", help="Refuse library calls in a candidate.", show_default=False)
]
RequireSandboxOption = Annotated[
    bool | None,
    typer.Option(
        "--require-sandbox/--no-require-sandbox",
        help="Refuse to run candidates without full isolation.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", help="Seconds that one candidate may take.", min=0.1, metavar="S")
]
TargetOption = Annotated[str | None, typer.Option(help="GPU to forecast for where there is none here.", metavar="GPU")]
ProblemArgument = Annotated[str, typer.Argument(help="A problem file, or a folder with reference.py.")]
MaybeProblemArgument = Annotated[
    str | None, typer.Argument(help="A problem file, or a folder with reference.py.", show_default=False)
]
CandidatesArgument = Annotated[list[str], typer.Argument(help="Files with a class ModelNew.", metavar="CANDIDATE...")]
RunArgument = Annotated[
    str, typer.Argument(help="A run: its id, the start of it, its folder, or `last`.", metavar="RUN")
]


def print_json(document: Any) -> None:
    """One document on stdout: a model, or plain values."""
    if hasattr(document, "model_dump_json"):
        text = document.model_dump_json(by_alias=True)
    else:
        text = json.dumps(document, ensure_ascii=False)
    if "utf" not in (sys.stdout.encoding or "").lower():  # in JSON a character has an escape of its own
        text = json.dumps(json.loads(text))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def echo_wrapped(lines: Iterable[str]) -> None:
    """Print lines for people; on a terminal folded between words, where it would fold them within one."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        typer.echo(folded(line, width))


def folded(line: str, width: int) -> str:
    """A line as several of at most ``width`` columns, the later ones indented; a longer word stays whole. 0 leaves it."""
    if not width or len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    later = f"{indent}  "
    return textwrap.fill(line, width, subsequent_indent=later, break_long_words=False, break_on_hyphens=False)


def log_line(text: str) -> None:
    """One line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def tell_spaces(candidates: Iterable[Candidate]) -> None:
    """Say where CONFIG and SPACE of a candidate do not fit together."""
    from tilecast.sandbox.source import space_notes

    for candidate in candidates:
        for note in space_notes(candidate):
            log_line(f"note: {note}")


@contextmanager
def opened_record() -> Iterator[Record]:
    """The configured record, closed afterwards.

    Raises:
        TilecastError: if the configuration or the record cannot be read.
    """
    from tilecast.agent.config import home, resolve
    from tilecast.agent.record.store import Record, sqlite_url

    record = Record(resolve().database_url or sqlite_url(home()))
    try:
        yield record
    finally:
        record.close()


def read_run(record: Record, name: str) -> RunLog:
    """One run with its state.

    Raises:
        UsageError: if there is no such run.
    """
    import time

    return record.open(record.find(name), time.monotonic)
