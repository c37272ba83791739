"""A finalist's way on a device: verified, timed, confirmed in a fresh process, soaked, checked by the sanitizer, profiled.

python benchmarks/finalist.py --corpus ../shared/corpus --problems softmax,layernorm
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write
from _judge import JudgeSaid, candidate_of, corpus_rows, judge, options_for, problem_of, with_overrides


def finalist(folder: Path) -> tuple[dict[str, Any], str]:
    """The fastest recorded Triton row of a problem, and its text."""
    rows = [row for row in corpus_rows(folder) if row["status"] == "PASSED" and row.get("kernels")]
    best = min(rows, key=lambda row: row["ms"])
    text = (folder / "candidates" / f"{best['candidate']}.py").read_text(encoding="utf-8")
    return best, with_overrides(text, best["config"])


def main() -> None:
    """Run and write."""
    arguments = parser(__doc__)
    arguments.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus")
    arguments.add_argument("--problems", default="softmax,layernorm")
    options = arguments.parse_args()
    results: dict[str, Any] = {}
    with judge(device_name(options.device)) as client:
        asked = options_for(client, baseline="eager", max_seconds=3.0) | {"confirm": True, "profile": True}
        for name in options.problems.split(","):
            row, source = finalist(options.corpus / name)
            begun = time.perf_counter()
            request = {"problem": problem_of(options.corpus / name), "options": asked}
            try:
                answer = client.ask("bench", {**request, "candidate": candidate_of(row["candidate"], source)})
            except JudgeSaid as error:
                answer = {"error": str(error)[:500]}
            results[name] = {
                "candidate": row["candidate"],
                "recorded_ms": row["ms"],
                "seconds": round(time.perf_counter() - begun, 2),
                **{key: answer.get(key) for key in ("status", "reason", "verdict", "speedup", "latency_ms", "error")},
                **{key: (answer.get("details") or {}).get(key) for key in ("confirmed", "profile", "notes", "warm")},
            }
            write(options.out, "finalist", header("finalist") | {"results": results})


if __name__ == "__main__":
    main()
