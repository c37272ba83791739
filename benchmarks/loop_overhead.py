"""What the loop adds per candidate (everything but compile and measure), in ms, and peak memory, by the length of the run.

Each run is a process of its own: the whole loop with its durable record, on a kernel whose SPACE has 32,000 points. The device is a
formula that answers at once (its own time is taken off), marked as recorded, so that no figure of a run passes for a measurement.

    python benchmarks/loop_overhead.py [--counts 100 1000 10000] [--kinds builtin/none builtin/roofline] [--out FOLDER]
"""

from __future__ import annotations

import _bootstrap  # isort: skip

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(_bootstrap.ROOT / "tests"))

from scale_parts import FormulaSandbox, Mark, run_of, write_problem

LAST = 100
"""Candidates at the end of a run whose mean is given."""
PARTS = ("record", "checkpoint", "proposer", "forecaster", "parent")


class Stopwatch:
    """Seconds inside some functions, by part; a part within another one is counted there only."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._inside = False

    def wrap(self, part: str, owner: Any, name: str) -> None:
        """Replace a function by itself, timed."""
        inner: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return inner(*args, **kwargs)
            self._inside, began_s = True, time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self._inside = False
                self.seconds[part] += time.perf_counter() - began_s

        setattr(owner, name, timed)


def watch(forecaster: str) -> Stopwatch:
    """Time the parts of the loop from here on."""
    from tilecast.agent import graph, proposing
    from tilecast.agent.record.store import RunLog
    from tilecast.tools.propose.builtin import BuiltinProposer

    stopwatch = Stopwatch()
    stopwatch.wrap("record", RunLog, "append")
    for name in ("put", "put_writes"):
        stopwatch.wrap("checkpoint", graph.LatestOnly, name)
    for name in ("propose", "pool", "claim"):
        stopwatch.wrap("proposer", BuiltinProposer, name)
    stopwatch.wrap("parent", proposing, "choose_parent")
    from tilecast.tools.forecast.learned import LearnedForecaster
    from tilecast.tools.forecast.nothing import NoForecaster
    from tilecast.tools.forecast.roofline import RooflineForecaster

    kind = {"none": NoForecaster, "roofline": RooflineForecaster, "learned": LearnedForecaster}[forecaster]
    stopwatch.wrap("forecaster", kind, "forecast")
    return stopwatch


def live_view_ms(states: list[Any]) -> float:
    """Milliseconds of one update of the live view: an event taken in and the picture drawn, mean of 50."""
    from rich.console import Console

    from tilecast.agent.cli.view import LiveView
    from tilecast.agent.progress import Finished

    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    view = LiveView(console)
    try:
        began_s = time.perf_counter()
        for state in states[-50:]:
            view(Finished(state))
            console.print(view._picture())
        return (time.perf_counter() - began_s) / len(states[-50:]) * 1e3
    finally:
        view.close()


def one_run(place: Path, count: int, forecaster: str) -> dict[str, Any]:
    """One run of ``count`` evaluations in this process."""
    stopwatch, marks, sandbox = watch(forecaster), [], FormulaSandbox()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def note(mark: Mark) -> None:
        marks.append((mark, dict(stopwatch.seconds)))

    engine = run_of(place, count, sandbox, note, forecaster)
    result = engine.run()
    tail = marks[-min(LAST, len(marks) // 2) :]
    (first, parts_then), (last, parts_now) = tail[0], tail[-1]
    steps = len(tail) - 1
    split = {part: (parts_now[part] - parts_then[part]) / steps * 1e3 for part in PARTS}
    total_ms = ((last.at_s - first.at_s) - (last.sandbox_s - first.sandbox_s)) / steps * 1e3
    split["rest"] = total_ms - sum(split.values())
    home = Path(os.environ["TILECAST_HOME"])
    assert engine._log is not None
    states = list(engine._log.state.candidates.values())
    return {
        "candidates": len(marks),
        "evaluations": result.ledger.evals.spent,
        "proposer": "builtin",
        "forecaster": forecaster,
        "ms_per_candidate": round(total_ms, 2),
        "processor_ms_per_candidate": round((last.processor_s - first.processor_s) / steps * 1e3, 2),
        "of_the_last": steps,
        "split_ms": {part: round(ms, 3) for part, ms in split.items()},
        "live_view_update_ms": round(live_view_ms(states), 2),
        "peak_rss_mib": round(last.peak_kib / 1024, 1),
        "peak_rss_before_mib": round(before_kib / 1024, 1),
        "peak_rss_at_100_mib": round(marks[min(99, len(marks) - 1)][0].peak_kib / 1024, 1),
        "record_mib": round(sum(f.stat().st_size for f in home.rglob("record.sqlite*")) / 2**20, 1),
    }


def main() -> None:
    """All runs, one process each."""
    parser = _bootstrap.parser(__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--kinds", nargs="+", default=["builtin/none", "builtin/roofline"])
    parser.add_argument("--one", nargs=3, metavar=("PLACE", "COUNT", "FORECASTER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one_run(Path(given.one[0]), int(given.one[1]), given.one[2])))
        return
    runs = []
    with tempfile.TemporaryDirectory() as place:
        write_problem(Path(place))
        for kind in given.kinds:
            forecaster = kind.partition("/")[2]
            for count in given.counts:
                environment = {**os.environ, "TILECAST_HOME": f"{place}/home-{forecaster}-{count}"}
                command = [sys.executable, __file__, "--one", place, str(count), forecaster]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(done.stderr)
                runs.append(json.loads(done.stdout))
                print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    _bootstrap.write(given.out, "loop_overhead", {**_bootstrap.header("loop_overhead"), "runs": runs})


if __name__ == "__main__":
    main()
