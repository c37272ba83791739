"""Recorded kernels measured again with this harness: how far from the recorded medians, and which differ.

python benchmarks/corpus_remeasure.py --corpus ../shared/corpus --per-problem 6
"""

from __future__ import annotations

import argparse
import queue
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write
from _judge import JudgeClient, JudgeSaid, candidate_of, corpus_rows, options_for, problem_of, with_overrides

DIFFERS = 0.05


def choose(folder: Path, count: int) -> list[dict[str, Any]]:
    """Passed rows, spread evenly over the recorded times (the fastest always among them)."""
    rows = sorted((row for row in corpus_rows(folder) if row["status"] == "PASSED"), key=lambda row: row["ms"])
    last, count = len(rows) - 1, min(count, len(rows))
    return [rows[round(index * last / max(1, count - 1))] for index in range(count)]


def measure(client: JudgeClient, folder: Path, row: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """One row again."""
    file = folder / "candidates" / f"{row['candidate']}.py"
    source = with_overrides(file.read_text(encoding="utf-8"), row["config"])
    begun = time.perf_counter()
    candidate = candidate_of(row["candidate"], source)
    answer = client.ask("bench", {"problem": problem_of(folder), "candidate": candidate, "options": options})
    now_ms = (answer.get("latency_ms") or {}).get("candidate")
    details = answer.get("details") or {}
    return {
        "candidate": row["candidate"],
        "config": row["config"],
        "recorded_ms": row["ms"],
        "recorded_spread": abs(row["ms_a"] / row["ms_b"] - 1) if row.get("ms_a") and row.get("ms_b") else None,
        "ms": now_ms,
        "ratio": None if now_ms is None else round(now_ms / row["ms"], 4),
        "status": answer["status"],
        "reason": answer["reason"][:300],
        "clocks": details.get("clocks"),
        "empty_call_ms": details.get("empty_call_ms"),
        "window": details.get("window"),
        "notes": details.get("notes"),
        "phases_s": details.get("phases_s"),
        "seconds": round(time.perf_counter() - begun, 2),
    }


def problem(client: JudgeClient, folder: Path, count: int, options: dict[str, Any], deadline: float) -> dict[str, Any]:
    """All chosen rows of a problem, and its eager baseline."""
    recorded = {row["candidate"]: row["ms"] for row in corpus_rows(folder) if row["status"] == "BASELINE"}
    results = []
    for row in choose(folder, count):
        if time.perf_counter() > deadline:
            break
        results.append(measure(client, folder, row, options))
    try:
        baselines = client.ask("baselines", {"problem": problem_of(folder), "options": options})
    except JudgeSaid as error:
        baselines = {"error": str(error)[:300]}
    return {"recorded_baselines": recorded, "baselines": baselines, "results": results}


def summary(problems: dict[str, Any]) -> dict[str, Any]:
    """Agreement over all rows that passed again."""
    rows = [dict(row, problem=name) for name, item in problems.items() for row in item.get("results", [])]
    apart = [abs(row["ratio"] - 1) for row in rows if row["ratio"] is not None]
    if not apart:
        return {"measured": 0}
    apart.sort()
    differing = [row for row in rows if row["ratio"] is not None and abs(row["ratio"] - 1) > DIFFERS]
    return {
        "measured": len(apart),
        "median_difference": round(statistics.median(apart), 4),
        "p90_difference": round(apart[int(0.9 * (len(apart) - 1))], 4),
        "within_5_percent": round(sum(value <= DIFFERS for value in apart) / len(apart), 3),
        "differing": [f"{r['problem']}/{r['candidate']} {r['recorded_ms']:.4g} -> {r['ms']:.4g} ms" for r in differing],
        "other_status": [
            f"{r['problem']}/{r['candidate']}: {r['status']} {r['reason'][:120]}"
            for r in rows
            if r["status"] != "PASSED"
        ],
    }


def work(clients: Clients, waiting: queue.SimpleQueue[str], took: Took, options: argparse.Namespace) -> None:
    """One judge at work, a problem at a time, until none is left or the time is over; a judge that is gone is replaced."""
    client = clients.open()
    while time.perf_counter() < took.deadline:
        try:
            name = waiting.get_nowait()
        except queue.Empty:
            return
        if client.broken:
            client = clients.open()
        try:
            asked = options_for(client, baseline="eager", max_seconds=options.max_seconds)
            found = problem(client, options.corpus / name, options.per_problem, asked, took.deadline)
        except JudgeSaid as error:
            found = {"error": str(error)[:500]}
        took.add(name, found)


@dataclass
class Clients:
    """Judges of one device: any number verify, one times."""

    device: str
    state: Path
    lanes: int
    stack: ExitStack

    def open(self) -> JudgeClient:
        """One more."""
        client = JudgeClient(self.device, self.state, str(self.state / "quiet"), self.lanes)
        self.stack.callback(client.close)
        return client


@dataclass
class Took:
    """What was measured so far, written after each problem."""

    out: Path
    deadline: float
    names: list[str]
    problems: dict[str, Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, found: dict[str, Any]) -> None:
        """One problem."""
        with self.lock:
            self.problems[name] = found
            left_out = [name for name in self.names if name not in self.problems]
            ordered = {name: self.problems[name] for name in sorted(self.problems)}
            document = {"summary": summary(ordered), "left_out": left_out, "problems": ordered}
            write(self.out, "corpus_remeasure", header("corpus_remeasure") | document)


def main() -> None:
    """Run and compare."""
    arguments = parser(__doc__)
    arguments.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus")
    arguments.add_argument("--problems", default="", help="names with commas; all by default")
    arguments.add_argument("--per-problem", type=int, default=6)
    arguments.add_argument("--lanes", type=int, default=1, help="judges that share the device; one of them times")
    arguments.add_argument("--max-seconds", type=float, default=1.5, help="of one comparison")
    arguments.add_argument("--stop-after", type=float, default=540.0, help="seconds in all")
    options = arguments.parse_args()
    found = sorted(p.parent.name for p in options.corpus.glob("*/reference.py"))
    names = options.problems.split(",") if options.problems else found
    took = Took(options.out, time.perf_counter() + options.stop_after, names)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    with ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tilecast-state-")))
        clients = Clients(device_name(options.device), state, options.lanes, stack)
        with ThreadPoolExecutor(options.lanes) as pool:
            for done in [pool.submit(work, clients, waiting, took, options) for _ in range(options.lanes)]:
                done.result()


if __name__ == "__main__":
    main()
