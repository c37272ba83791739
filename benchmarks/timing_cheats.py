"""Kernels that play with clocks, streams, graphs and caches, measured: each must be rejected, or its time be the true one.

python benchmarks/timing_cheats.py --cheats ../shared/cheats
"""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write
from _judge import JudgeSaid, candidate_of, judge, options_for, problem_of


def main() -> None:
    """Bench every file of the manifest that runs on this device."""
    arguments = parser(__doc__)
    arguments.add_argument("--cheats", type=Path, default=ROOT.parent / "shared" / "cheats")
    arguments.add_argument("--only", default="", help="problems, with commas")
    options = arguments.parse_args()
    device = device_name(options.device)
    kind = device.partition(":")[0]
    with (options.cheats / "manifest.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if kind in row.values()]
    problems = sorted({row_path(row).split("/")[0] for row in rows})
    results: dict[str, Any] = {}
    waiting = [
        (name, row_path(row))
        for name in (options.only.split(",") if options.only else problems)
        for row in rows
        if row_path(row).startswith(f"{name}/")
    ]
    while waiting:
        with judge(device) as client:
            chosen = options_for(client, baseline="eager", max_seconds=2.0)
            while waiting and not client.broken:
                name, path = waiting.pop(0)
                results[path] = bench(client, options.cheats, name, path, chosen)
    labels = {row_path(row): row for row in rows}
    document = header("timing_cheats") | {
        "accepted_exploits": [
            p for p, r in results.items() if r["status"] == "PASSED" and "exploit" in labels[p].values()
        ],
        "rejected_honest": [
            p for p, r in results.items() if r["status"] != "PASSED" and "honest" in labels[p].values()
        ],
        "results": results,
    }
    write(options.out, f"timing_cheats_{kind}", document)


def row_path(row: dict[str, str]) -> str:
    """The file of a manifest row: its first column."""
    return next(iter(row.values()))


def bench(client: Any, cheats: Path, name: str, path: str, options: dict[str, Any]) -> dict[str, Any]:
    """One file's fate."""
    begun = time.perf_counter()
    candidate = candidate_of(Path(path).stem, (cheats / path).read_text(encoding="utf-8"))
    try:
        answer = client.ask("bench", {"problem": problem_of(cheats / name), "candidate": candidate, "options": options})
    except JudgeSaid as error:
        return {"status": "ERROR", "reason": str(error)[:300]}
    return {
        "status": answer["status"],
        "reason": answer["reason"][:300],
        "latency_ms": answer.get("latency_ms"),
        "clocks": (answer.get("details") or {}).get("clocks"),
        "seconds": round(time.perf_counter() - begun, 2),
    }


if __name__ == "__main__":
    main()
