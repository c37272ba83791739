"""Verified and benchmarked candidates a minute, against a plain harness with a fresh process a candidate, in the same call.

    python benchmarks/throughput.py --corpus ../shared/corpus

Candidates are recorded Triton kernels under 1 ms. Ours: all checks on all workloads, paired timing, every output checked.
One judge, and then several that share the device: any number of them verify, one alone times. The plain one: five correctness
trials and a hundred timing runs (``_plain_harness.py``), one process after another. Compilation is included in both.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write
from _judge import JudgeClient, candidate_of, corpus_rows, options_for, problem_of, with_overrides


def choose(folder: Path, count: int) -> list[dict[str, Any]]:
    """Passed Triton rows under a millisecond, spread over the speeds: one a file, then other CONFIGs of them."""
    rows = [row for row in corpus_rows(folder) if row["status"] == "PASSED" and row.get("kernels") and row["ms"] < 1.0]
    rows.sort(key=lambda row: row["ms"])
    first = {row["candidate"]: row for row in reversed(rows)}
    kept = list(first.values())
    if len(kept) > count:
        kept.sort(key=lambda row: row["ms"])
        return kept[:: len(kept) // max(1, count)][:count]
    others = [row for row in rows if row not in kept]
    missing = min(count - len(kept), len(others))
    kept += [others[index * len(others) // missing] for index in range(missing)]
    return sorted(kept, key=lambda row: row["ms"])


def source_of(folder: Path, row: dict[str, Any]) -> str:
    """The text of a recorded variant."""
    return with_overrides((folder / "candidates" / f"{row['candidate']}.py").read_text(encoding="utf-8"), row["config"])


def ours(
    clients: list[JudgeClient], folder: Path, rows: list[dict[str, Any]], options: dict[str, Any]
) -> dict[str, Any]:
    """All candidates of a problem, each judge taking the next; set-up of the problem apart."""
    results: list[dict[str, Any]] = []
    request = {"problem": problem_of(folder), "options": options}
    start = time.perf_counter()
    # The first judge finds the baselines' times and leaves compiled code for the others.
    clients[0].ask("baselines", request)
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: client.ask("baselines", request), clients[1:]))
    setup_s = time.perf_counter() - start
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    for row in rows:
        waiting.put(row)

    def work(client: JudgeClient) -> None:
        while True:
            try:
                row = waiting.get_nowait()
            except queue.Empty:
                return
            begun = time.perf_counter()
            candidate = candidate_of(row["candidate"], source_of(folder, row))
            answer = client.ask("bench", {**request, "candidate": candidate})
            results.append(_result(row, answer, time.perf_counter() - begun))

    start = time.perf_counter()
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(work, clients))
    return {"setup_seconds": round(setup_s, 2), "seconds": time.perf_counter() - start, "results": results}


def _result(row: dict[str, Any], answer: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "candidate": row["candidate"],
        "seconds": round(seconds, 3),
        "status": answer["status"],
        "reason": answer["reason"][:200],
        "verdict": answer.get("verdict"),
        "speedup": answer.get("speedup"),
        "ms": (answer.get("latency_ms") or {}).get("candidate"),
        "recorded_ms": row["ms"],
        "timing_seconds": (answer.get("details") or {}).get("sampling_seconds"),
        "discarded": (answer.get("details") or {}).get("discarded"),
        "tries": [check["detail"] for check in answer["checks"] if check["name"] == "another try"],
        "phases_s": (answer.get("details") or {}).get("phases_s"),
    }


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
    """Run all and compare."""
    arguments = parser(__doc__)
    arguments.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus")
    arguments.add_argument("--problems", default="softmax,layernorm,vector_add,group_norm")
    arguments.add_argument("--per-problem", type=int, default=6)
    arguments.add_argument(
        "--lanes", default="1,2,3,4", help="how many judges share the device, with commas; one of them times"
    )
    arguments.add_argument("--max-seconds", type=float, default=2.0, help="of one comparison")
    options = arguments.parse_args()
    device = device_name(options.device)
    names = options.problems.split(",")
    chosen = {name: choose(options.corpus / name, options.per_problem) for name in names}
    trusting = {name: plain(options.corpus / name, rows) for name, rows in chosen.items()}
    found: dict[int, dict[str, Any]] = {}
    for lanes in (int(text) for text in options.lanes.split(",")):
        found[lanes] = {}
        with lanes_on(device, lanes) as clients:
            asked = options_for(clients[0], baseline="eager", max_seconds=options.max_seconds)
            for name, rows in chosen.items():
                found[lanes][name] = ours(clients, options.corpus / name, rows, asked)
                write(options.out, "throughput", header("throughput") | summary(found, trusting))


@contextmanager
def lanes_on(device: str, lanes: int, quiet: str = "", sharers: int = 0) -> Iterator[list[JudgeClient]]:
    """New judges that share a device, with a state folder that is thrown away; with others too, by their lock and number."""
    with ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tilecast-state-")))
        lock, number = quiet or str(state / "quiet"), sharers or lanes
        clients = [JudgeClient(device, state, lock, number) for _ in range(lanes)]
        for client in clients:
            stack.callback(client.close)
        yield clients


def summary(found: dict[int, dict[str, Any]], trusting: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Candidates a minute, of wall time, by number of judges; of the plain harness over the same candidates."""
    theirs = [row["seconds"] for rows in trusting.values() for row in rows]
    plain_s = sum(theirs) / len(theirs)
    rates = []
    for lanes, problems in found.items():
        mine = [row for problem in problems.values() for row in problem["results"]]
        took_s = sum(problem["seconds"] for problem in problems.values())
        setup_s = sum(problem["setup_seconds"] for problem in problems.values())
        rates.append(
            {
                "lanes": lanes,
                "candidates": len(mine),
                "passed": sum(row["status"] == "PASSED" for row in mine),
                "a_minute": round(60 * len(mine) / took_s, 1),
                "a_minute_with_setup": round(60 * len(mine) / (took_s + setup_s), 1),
                "times": round(plain_s / (took_s / len(mine)), 2),
            }
        )
    return {"plain_a_minute": round(60 / plain_s, 1), "rates": rates, "ours": found, "plain": trusting}


if __name__ == "__main__":
    main()
