"""Terminals of 60 and 80 columns: tables fold, or leave whole columns out; no name, id or number is cut off."""

from __future__ import annotations

import io

import pytest
from loop_parts import Scripted, make_request, making, variant
from rich.console import Console
from test_newcomer import only_candidate
from test_optimize_cli import Cli
from test_optimize_cli import cli as cli

from tilecast.agent.cli.app import COMMANDS
from tilecast.agent.cli.runs import _table
from tilecast.agent.cli.table import TIE, Column, lay_out
from tilecast.agent.cli.view import LiveView
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import BaselineKnown, Finished, Fleet, Spent, Step
from tilecast.sandbox.base import BaselineTimes, WorkerState
from tilecast.sandbox.schema import LedgerDocument, Meter

COLUMNS = [Column("id", whole=True), Column("name", breaks=True), Column("where", dropped=1), Column("n", right=True)]
ROW = ("2026-abc", "a_name_that_is_long", "some machine elsewhere", f"12{TIE}ms")


def test_columns_fold_between_words_then_are_left_out_and_names_break_last() -> None:
    assert lay_out(COLUMNS, [ROW], None)[1] == "2026-abc  a_name_that_is_long  some machine elsewhere  12 ms"
    assert lay_out(COLUMNS, [ROW], 50)[1:] == [
        "2026-abc  a_name_that_is_long  some machine  12 ms",
        "                               elsewhere",
    ]
    assert lay_out(COLUMNS, [ROW], 38)[1:] == ["2026-abc  a_name_that_is_long  12 ms"]
    assert lay_out(COLUMNS, [ROW], 30)[1:] == ["2026-abc  a_name_that_i  12 ms", "          s_long"]
    # Too narrow for anything: lines are longer than the terminal, which wraps them.
    assert lay_out(COLUMNS, [ROW], 5)[1:] == ["2026-abc  a_name_that_  12 ms", "          is_long"]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_runs_keep_ids_names_and_figures(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_request()
    result = Engine(request, make=making(Scripted([variant(256, 2)]))).run()
    monkeypatch.setenv("COLUMNS", str(width))
    (found,) = open_record(None, request.home).runs(None, None)
    long = found.model_copy(update={"problem": "a_problem_with_a_rather_long_name"})
    lines = _table([found, long])
    assert max(map(len, lines)) <= width and "…" not in "".join(lines)
    assert sum(line.startswith(result.run) for line in lines) == 2 and sum("0.5 ms" in line for line in lines) == 2
    start = lines[0].index("problem")
    name = "".join(line[start : start + 34].split("  ")[0].strip() for line in lines[2:])
    assert long.problem in name


def test_a_list_that_nobody_looks_at_is_as_wide_as_it_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    Engine(make_request(), make=making(Scripted([variant(256, 2)]))).run()
    assert len(cli("runs").out.splitlines()) == 2


@pytest.mark.parametrize("width", [60, 80])
def test_the_live_picture_cuts_no_figure(width: int) -> None:
    console = Console(width=width, record=True, force_terminal=True, file=io.StringIO())
    view = LiveView(console)
    view(Finished(only_candidate(64, 1)))
    view(BaselineKnown(BaselineTimes(times_ms={"max-autotune": 0.8}, fastest="max-autotune")))
    view(
        Spent(
            LedgerDocument(**{name: Meter(spent=1_234_567, limit=2_000_000) for name in LedgerDocument.model_fields}), 4
        )
    )
    view(
        Fleet(
            (WorkerState(name="worker 1", device="NVIDIA H200 on a.far.away.internal", state="busy", item="k_007"),), ""
        )
    )
    view(Step("checking small_wide, part 3 of 10: waiting for cuda:0: another run is using it", 3))
    view.close()
    console.print(view._picture())
    lines = [line.strip("│ ") for line in console.export_text().split("╭")[-1].splitlines()]
    shown = " ".join(" ".join(lines).split())
    assert "…" not in shown
    for words in (
        "slower 0.889x [0.873, 0.905] 0.9 ms (recorded) against max-autotune · candidate 0 kernel",
        "tokens 1234567 of 2000000",
        "0 done, busy k_007",
        "another run is using it; 4 proposals in flight",
    ):
        assert words in shown


@pytest.mark.parametrize("width", [60, 80])
def test_help_cuts_no_option(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.main import get_command
    from typer.testing import CliRunner

    from tilecast.agent.cli.app import app

    monkeypatch.setenv("COLUMNS", str(width))
    commands = {(name,): get_command(app).get_command(None, name) for name in COMMANDS}  # type: ignore[attr-defined,arg-type]
    commands |= {("forecaster", name): one for name, one in commands[("forecaster",)].commands.items()}
    for names, command in commands.items():
        shown = CliRunner().invoke(app, [*names, "--help"]).output
        assert [
            opt for option in command.params for opt in option.opts if opt.startswith("--") and opt not in shown
        ] == []
