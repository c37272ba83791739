"""The last lines of a run: how far it came, with an interval; true shares of the budget; folded between words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from loop_parts import Scripted, make_request, making, variant

from tilecast.agent.budget import Amount, Ledger, Limits
from tilecast.agent.cli.shared import folded
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import Said
from tilecast.agent.report.detail import detail, detail_lines, find_candidate
from tilecast.agent.result import best_of, since_start
from tilecast.agent.state import Services
from tilecast.sandbox.schema import Interval


def finished() -> Any:
    """The log of a run that began with one point and found a faster one."""
    result = Engine(make_request(), make=making(Scripted([variant(64, 1), variant(256, 2)]))).run()
    log: Any = open_record(None, make_request().home).open(result.run, lambda: 0.0)
    log.header = log.header.model_copy(update={"start_sha256": log.state.candidates[0].sha256})
    return log


def started_at(log: Any, speedup: Interval, *notes: str, settled: bool = True) -> str:
    """What is said of a run whose start was measured so, and whose best has the interval [1.9, 2.1] around 2."""
    candidate = log.state.candidates[0]
    update = {"speedup": speedup, "details": {"notes": list(notes)}, "settled": settled}
    candidate.result = candidate.result.model_copy(update=update)
    best = best_of(log, None)
    assert best is not None
    return since_start(log, best.model_copy(update={"speedup": Interval(ratio=2.0, low=1.9, high=2.1)}))


def test_how_far_a_run_came_has_an_interval_or_is_not_said() -> None:
    log = finished()
    told = started_at(log, Interval(ratio=1.0, low=0.95, high=1.05))
    assert told.startswith("2x [1.81, 2.21] the speed of the kernel it began with (combined from the intervals of both")
    assert started_at(log, Interval(ratio=1.0, low=0.5, high=2.5)) == "", "1 is inside"
    assert started_at(log, Interval(ratio=1.0, low=0.95, high=1.05), settled=False) == ""


def test_what_the_judge_remarked_is_shown_with_the_candidate() -> None:
    log = finished()
    started_at(log, Interval(ratio=1.0, low=0.95, high=1.05), "calls are short", "timed on `small`")
    lines = detail_lines(detail(log, find_candidate(log, "0")))
    assert "  note: calls are short" in lines and "  note: timed on `small`" in lines


@pytest.mark.parametrize(
    ("steps", "said"), [([1, 1, 1], ["66 % of evals is spent (2 of 3)"]), ([3], [])], ids=["one by one", "all at once"]
)
def test_the_share_spent_is_the_true_one_and_all_of_it_is_no_warning(steps: list[int], said: list[str]) -> None:
    told: list[str] = []
    ledger = Ledger(Limits(evals=3), lambda: 0.0)
    services = SimpleNamespace(ledger=ledger, pool=SimpleNamespace(in_flight=0))
    services.tell = lambda event: told.append(event.text) if isinstance(event, Said) else None
    for count in steps:
        ledger.charge(Amount(evals=count))
        Services.tell_spent(services)  # type: ignore[arg-type]
    assert told == said


def test_lines_are_folded_between_words_and_words_stay_whole() -> None:
    line = f"  best: {'faster than the baseline, ' * 5}written to /a/{'long' * 30}/best-one.py"
    parts = folded(line, 80).splitlines()
    assert " ".join(part.strip() for part in parts) == line.strip()
    assert all(len(part) <= 80 or " " not in part.strip() for part in parts)
    assert parts[0].startswith("  best") and all(part.startswith("    ") for part in parts[1:])
    assert folded(line, 0) == line, "a pipe gets the line as it is"
