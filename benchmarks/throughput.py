"""Verified and benchmarked candidates a minute, against a plain harness with a fresh process a candidate, in the same call.

    python benchmarks/throughput.py --corpus ../shared/corpus

Candidates are recorded Triton kernels under 1 ms. Ours: all checks on all workloads, paired timing, every output checked.
The plain one: five correctness trials and a hundred timing runs (``_plain_harness.py``). Compilation is included in both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write
from _judge import JudgeClient, candidate_of, corpus_rows, judge, options_for, problem_of, with_overrides


def choose(folder: Path, count: int) -> list[dict[str, Any]]:
    """Passed Triton rows under a millisecond, one a candidate file, spread over the speeds."""
    rows = [row for row in corpus_rows(folder) if row["status"] == "PASSED" and row.get("kernels") and row["ms"] < 1.0]
    first = {row["candidate"]: row for row in sorted(rows, key=lambda row: row["ms"], reverse=True)}
    ordered = sorted(first.values(), key=lambda row: row["ms"])
    step = max(1, len(ordered) // max(1, count))
    return ordered[::step][:count]


def source_of(folder: Path, row: dict[str, Any]) -> str:
    """The text of a recorded variant."""
    return with_overrides((folder / "candidates" / f"{row['candidate']}.py").read_text(encoding="utf-8"), row["config"])


def ours(client: JudgeClient, folder: Path, rows: list[dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
    """All candidates of a problem; set-up of the problem apart."""
    results = []
    start = time.perf_counter()
    client.ask("baselines", {"problem": problem_of(folder), "options": options})
    setup_s = time.perf_counter() - start
    for row in rows:
        begun = time.perf_counter()
        candidate = candidate_of(row["candidate"], source_of(folder, row))
        answer = client.ask("bench", {"problem": problem_of(folder), "candidate": candidate, "options": options})
        results.append(
            {
                "candidate": row["candidate"],
                "seconds": round(time.perf_counter() - begun, 3),
                "status": answer["status"],
                "reason": answer["reason"][:200],
                "verdict": answer.get("verdict"),
                "ms": (answer.get("latency_ms") or {}).get("candidate"),
                "recorded_ms": row["ms"],
                "timing_seconds": (answer.get("details") or {}).get("sampling_seconds"),
            }
        )
    return {"setup_seconds": round(setup_s, 2), "results": results}


def plain(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same candidates, one process each."""
    results = []
    with tempfile.TemporaryDirectory() as place:
        for row in rows:
            file = Path(place) / f"{row['candidate']}.py"
            file.write_text(source_of(folder, row), encoding="utf-8")
            command = [
                sys.executable,
                str(ROOT / "benchmarks" / "_plain_harness.py"),
                str(folder / "reference.py"),
                str(file),
            ]
            environment = {**os.environ, "TRITON_CACHE_DIR": f"{place}/cache-{row['candidate']}"}
            begun = time.perf_counter()
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
            except subprocess.TimeoutExpired:
                results.append({"candidate": row["candidate"], "seconds": 120.0, "status": "TIMEOUT"})
                continue
            seconds = time.perf_counter() - begun
            lines = done.stdout.strip().splitlines()
            answer = json.loads(lines[-1]) if lines and done.returncode == 0 else {"status": done.stderr[-200:]}
            results.append({"candidate": row["candidate"], "seconds": round(seconds, 3), **answer})
    return results


def main() -> None:
    """Run both and compare."""
    arguments = parser(__doc__)
    arguments.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus")
    arguments.add_argument("--problems", default="softmax,layernorm,vector_add,group_norm")
    arguments.add_argument("--per-problem", type=int, default=6)
    arguments.add_argument("--max-seconds", type=float, default=2.0, help="of one comparison")
    options = arguments.parse_args()
    device = device_name(options.device)
    problems: dict[str, Any] = {}
    with judge(device) as client:
        asked = options_for(client, baseline="eager", max_seconds=options.max_seconds)
        for name in options.problems.split(","):
            folder = options.corpus / name
            rows = choose(folder, options.per_problem)
            problems[name] = {"ours": ours(client, folder, rows, asked), "plain": plain(folder, rows)}
            print(f"{name}: done", file=sys.stderr, flush=True)
    mine = [r["seconds"] for p in problems.values() for r in p["ours"]["results"]]
    theirs = [r["seconds"] for p in problems.values() for r in p["plain"]]
    setup = sum(p["ours"]["setup_seconds"] for p in problems.values())
    document = header("throughput") | {
        "candidates": len(mine),
        "ours_a_minute": round(60 * len(mine) / sum(mine), 1),
        "ours_a_minute_with_setup": round(60 * len(mine) / (sum(mine) + setup), 1),
        "plain_a_minute": round(60 * len(theirs) / sum(theirs), 1),
        "times": round(sum(theirs) / sum(mine), 2),
        "passed": sum(r["status"] == "PASSED" for p in problems.values() for r in p["ours"]["results"]),
        "problems": problems,
    }
    write(options.out, "throughput", document)


if __name__ == "__main__":
    main()
