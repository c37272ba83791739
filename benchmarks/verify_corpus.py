"""Every candidate of a corpus, with its own CONFIG, through the judge's `verify`: which are refused, why, in how many seconds.

    python benchmarks/verify_corpus.py --corpus ../shared/corpus [--device cpu|cuda] [--jobs 4] [--limit-s 540]

One JSON line a candidate goes to the journal as it is done; run again with the same journal to go on where it ended. Problems
take turns, a few candidates at a time, so that a run that ends early has seen all of them. Nothing is timed here, so several
judges may share a device.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write
from _judge import JudgeClient, JudgeSaid, candidate_of, corpus_rows, judge, problem_of

Chunk = tuple[Path, list[Path]]
_TOLD = ("problem", "candidate", "status", "recorded", "reason", "seconds")


@dataclass
class Journal:
    """Lines that are there, and new ones as they come; safe for several threads."""

    file: Path
    rows: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def read(cls, file: Path, retry: bool) -> Journal:
        """What an earlier run left; with ``retry`` only what passed counts as done."""
        made = cls(file)
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                made.rows[row["problem"], row["candidate"], row["sha256"]] = row
        if retry:
            made.rows = {key: row for key, row in made.rows.items() if row["status"] == "PASSED"}
        return made

    def add(self, row: dict[str, Any]) -> None:
        """Keep a line, on disk before it counts."""
        with self.lock:
            self.rows[row["problem"], row["candidate"], row["sha256"]] = row
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
            print(
                f"{len(self.rows)} {row['problem']}/{row['candidate']}: {row['status']}, {row['seconds']} s", flush=True
            )


def chunks(corpus: Path, names: list[str], only: list[str], journal: Journal, size: int) -> deque[Chunk]:
    """Candidates that are not in the journal, by turns of the problems, ``size`` of one problem together."""
    open_: list[Chunk] = []
    for name in names:
        files = sorted((corpus / name / "candidates").glob("*.py"))
        wanted = [f for f in files if not only or f.stem in only]
        undone = [f for f in wanted if (name, f.stem, _sha256(f)) not in journal.rows]
        open_.append((corpus / name, undone))
    made: deque[Chunk] = deque()
    while any(files for _, files in open_):
        made.extend((folder, files[:size]) for folder, files in open_ if files)
        open_ = [(folder, files[size:]) for folder, files in open_]
    return made


def _sha256(file: Path) -> str:
    return str(candidate_of(file.stem, file.read_text(encoding="utf-8"))["sha256"])


def judged(client: JudgeClient, folder: Path, file: Path, options: dict[str, Any]) -> dict[str, Any]:
    """One candidate's line."""
    begun = time.monotonic()
    candidate = candidate_of(file.stem, file.read_text(encoding="utf-8"))
    answer = client.ask("verify", {"problem": problem_of(folder), "candidate": candidate, "options": options})
    return {
        "problem": folder.name,
        "candidate": file.stem,
        "sha256": candidate["sha256"],
        "status": answer["status"],
        "reason": answer["reason"][:600],
        "seconds": round(float(answer["seconds"]), 2),
        "with_study_s": round(time.monotonic() - begun, 2),
        "checks": next((c["detail"] for c in answer["checks"] if c["name"] == "calls"), ""),
        "level": answer["sandbox_level"],
    }


def work(
    device: str,
    jobs: int,
    quiet: str,
    waiting: deque[Chunk],
    journal: Journal,
    options: dict[str, Any],
    deadline: float,
) -> None:
    """One judge at work until nothing is left or the time is over; a judge that is gone is replaced."""
    while waiting and time.monotonic() < deadline:
        with judge(device, sharers=jobs, quiet=quiet) as client:
            while not client.broken and time.monotonic() < deadline:
                try:
                    folder, files = waiting.popleft()
                except IndexError:
                    return
                for number, file in enumerate(files):
                    if time.monotonic() >= deadline or client.broken:
                        waiting.appendleft((folder, files[number:]))
                        break
                    try:
                        journal.add(judged(client, folder, file, options))
                    except JudgeSaid as error:
                        journal.add(_unjudged(folder, file, str(error)))


def _unjudged(folder: Path, file: Path, why: str) -> dict[str, Any]:
    shown = {"problem": folder.name, "candidate": file.stem, "sha256": _sha256(file)}
    return {**shown, "status": "NO_VERDICT", "reason": why[:600], "seconds": 0.0, "with_study_s": 0.0, "checks": ""}


def recorded_statuses(corpus: Path, names: list[str]) -> dict[tuple[str, str], str]:
    """What the record says of each candidate with its own CONFIG, by (problem, candidate)."""
    rows = [(name, row) for name in names for row in corpus_rows(corpus / name)]
    return {(name, row["candidate"]): row["status"] for name, row in rows if not row.get("config")}


def summary(rows: list[dict[str, Any]], total: int, recorded: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Counts by status and by problem, seconds, and every candidate that was not accepted with its reason."""
    rows = [{**row, "recorded": recorded.get((row["problem"], row["candidate"]), "")} for row in rows]
    refused = [row for row in rows if row["status"] != "PASSED"]
    seconds = sorted(row["seconds"] for row in rows) or [0.0]
    by_problem: dict[str, Counter[str]] = {}
    for row in rows:
        by_problem.setdefault(row["problem"], Counter())[row["status"]] += 1
    return {
        "candidates": total,
        "judged": len(rows),
        "by_status": dict(Counter(row["status"] for row in rows)),
        "by_problem": {name: dict(count) for name, count in sorted(by_problem.items())},
        "median_s": round(statistics.median(seconds), 2),
        "p90_s": seconds[int(0.9 * (len(seconds) - 1))],
        "slowest": [f"{r['problem']}/{r['candidate']} {r['seconds']} s" for r in _slowest(rows)],
        "not_passed": [{key: row[key] for key in _TOLD} for row in refused],
        "passed_here_alone": [
            f"{row['problem']}/{row['candidate']}: recorded {row['recorded']}"
            for row in rows
            if row["status"] == "PASSED" != row["recorded"]
        ],
    }


def _slowest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -row["seconds"])[:12]


def main() -> int:
    """Run, print what was refused, write the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus")
    arguments.add_argument("--problems", default="", help="names with commas; all by default")
    arguments.add_argument("--candidates", default="", help="stems with commas; all by default")
    arguments.add_argument("--limit-s", type=float, default=float("inf"), help="no candidate is begun after so long")
    arguments.add_argument("--timeout", type=float, default=60.0, help="of one candidate, as `verify --timeout`")
    arguments.add_argument("--jobs", type=int, default=1, help="judges at once")
    arguments.add_argument("--chunk", type=int, default=8, help="candidates of a problem in a row")
    arguments.add_argument("--journal", type=Path, help="default: verify_corpus_DEVICE.jsonl in the folder of --out")
    arguments.add_argument("--retry", action="store_true", help="judge again what did not pass")
    given = arguments.parse_args()
    device = device_name(given.device)
    name = f"verify_corpus_{device.partition(':')[0]}"
    given.out.mkdir(parents=True, exist_ok=True)
    journal = Journal.read(given.journal or given.out / f"{name}.jsonl", given.retry)
    names = (
        given.problems.split(",")
        if given.problems
        else sorted(p.parent.name for p in given.corpus.glob("*/candidates"))
    )
    total = sum(len(list((given.corpus / n / "candidates").glob("*.py"))) for n in names)
    only = given.candidates.split(",") if given.candidates else []
    waiting = chunks(given.corpus, names, only, journal, given.chunk)
    deadline = time.monotonic() + given.limit_s
    options = {"timeout_s": given.timeout}
    quiet = str(given.out / f"quiet-{device.replace(':', '-')}")
    with ThreadPoolExecutor(given.jobs) as pool:
        for done in [
            pool.submit(work, device, given.jobs, quiet, waiting, journal, options, deadline) for _ in range(given.jobs)
        ]:
            done.result()
    rows = sorted(journal.rows.values(), key=lambda row: (row["problem"], row["candidate"]))
    told = summary(rows, total, recorded_statuses(given.corpus, names))
    write(given.out, name, {**header("verify_corpus"), "device": device, "timeout_s": given.timeout, "summary": told})
    return 1 if told["not_passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
