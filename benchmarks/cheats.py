"""Every kernel of a folder of cheats and honest oddities through `verify`: what is rejected, why, and in how many seconds.

    python benchmarks/cheats.py --cheats DIR [--needs cuda|cpu|all] [--device cuda]

DIR holds ``manifest.csv`` with the columns path, task, expected, class, needs, policy. Policy files are counted apart: their
verdict depends on ``--pure``.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _bootstrap import device_name, header, parser, write

from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import load_candidate


def judged(folder: Path, needs: str, kind: str, timeout_s: float) -> Iterator[dict[str, Any]]:
    """One row a file of the manifest, in its order; a worker each, one judge for all."""
    sandbox = LocalSandbox(kind)
    try:
        for row in csv.DictReader((folder / "manifest.csv").open(encoding="utf-8")):
            if needs not in ("all", row["needs"]):
                continue
            problem = load_problem(folder / row["task"])
            options = EvaluationOptions(timeout_s=timeout_s)
            answer = sandbox.verify(problem, load_candidate(folder / row["path"]), options, lambda text: None)
            accepted = answer.status is EvaluationStatus.PASSED
            yield {
                "path": row["path"],
                "class": row["class"],
                "expected": row["expected"],
                "policy": row["policy"],
                "status": str(answer.status),
                "reason": answer.reason,
                "seconds": round(answer.seconds, 2),
                "right": accepted == (row["expected"] == "accept"),
            }
    finally:
        sandbox.close()


def main() -> int:
    """Run, print the wrong ones, write the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--cheats", type=Path, required=True)
    arguments.add_argument("--needs", default="all", choices=["all", "cpu", "cuda"])
    arguments.add_argument("--timeout", type=float, default=60.0)
    given = arguments.parse_args()
    rows = []
    for row in judged(given.cheats, given.needs, device_name(given.device), given.timeout):
        rows.append(row)
        if not row["right"]:
            print(
                f"{row['path']}: expected {row['expected']}, got {row['status']}: {row['reason'][:300]} {row['policy']}",
                flush=True,
            )
    wrong = [row for row in rows if not row["right"] and not row["policy"]]
    print(f"{len(rows)} judged, {len(wrong)} wrong, {sum(r['seconds'] for r in rows) / max(1, len(rows)):.2f} s each")
    write(given.out, "cheats", {**header("cheats"), "rows": rows})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
