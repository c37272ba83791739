"""``tilecast runs``: what ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tilecast.agent.cli.shared import JsonOption, opened_record, print_json

if TYPE_CHECKING:
    from tilecast.agent.record.summary import RunSummary


MOST = 1_000_000
"""Most runs that can be asked for; a database takes no number of any size."""
FITTED = 100
"""Most rows that are fitted to the width of the terminal; longer lists are for programs, a line a run."""


def runs(
    problem: Annotated[str | None, typer.Option(help="Only runs of the problem with this name.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many, newest first.")] = 30,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All of them.")] = False,
    json_output: JsonOption = False,
) -> None:
    """List runs, newest first: what each was about, where it stands, its best result.

    Examples: tilecast runs | tilecast runs --problem softmax --json
    """
    with opened_record() as record:
        found = record.runs(None if everything else limit, problem)
    if json_output:
        print_json({"schema": 1, "runs": [{**run.model_dump(), "status": status(run)} for run in found]})
        return
    if not found:
        about = "" if problem is None else f" of problem {problem!r}"
        typer.echo(f"no runs{about} yet; begin one with: tilecast optimize PROBLEM")
        return
    for line in _table(found):
        typer.echo(line)


def status(run: RunSummary) -> str:
    """As recorded; a run that nobody works on any more although it was never stopped is ``cut off``."""
    from pathlib import Path

    from tilecast.agent.turns import is_worked_on

    return "cut off" if run.status == "running" and not is_worked_on(Path(run.run_dir)) else run.status


def _table(found: list[RunSummary]) -> list[str]:
    from tilecast.agent.cli.table import Column, lay_out, terminal_width

    columns = [
        Column("run", whole=True),
        Column("problem", breaks=True),
        Column("device", dropped=1),
        Column("status", dropped=3),
        Column("evals", right=True, dropped=2),
        Column("best"),
    ]
    width = terminal_width() if len(found) <= FITTED else None
    return lay_out(columns, [_row(run) for run in found], width)


def _row(run: RunSummary) -> tuple[str, ...]:
    from tilecast.agent.cli.table import TIE
    from tilecast.agent.report import wording

    best = (
        ""
        if run.best_speedup is None or run.best_ms is None
        else (
            f"{wording.ratio(run.best_speedup)} {wording.milliseconds(run.best_ms).replace(' ', TIE)}{wording.mark(run.recorded)}"
        )
    )
    device = f"{run.device}{wording.mark(run.recorded)}"
    return (run.run, run.problem, device, status(run), str(run.evals), best)
