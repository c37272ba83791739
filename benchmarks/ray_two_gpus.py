"""The same problems with one and with two GPUs of a host through ``--device ray``: speed-up, agreement of times, A/A across GPUs.

    python benchmarks/ray_two_gpus.py --corpus ../shared/corpus --out "$OUT"       # on a host with two GPUs, under 200 s
    python benchmarks/ray_two_gpus.py --cpu --out /tmp/out                         # the same steps with CPU evaluators, to try it

Recorded candidates are proposed (``--model replay:``) and measured for real. A local Ray is started once; the runs are
``tilecast optimize`` in processes of their own that join it, all with the same candidates in the same order. First each problem on
one GPU, two problems at a time on a GPU each; then each problem on both GPUs; then one candidate again and again on both, as long
as there is time. A run is not begun if it would not fit in the limit. Whole runs and their evaluating parts are both given.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, header, parser, write

PROBLEMS = ("softmax", "row_sum")
LIMIT_S = 190.0
SEED = "727"
"""Its first eight candidates are, by the record, Triton kernels that pass and take under 0.6 ms: what is compared has times."""


def run(problem: str, record: str, workers: int, given: Any, folder: Path) -> dict[str, Any]:
    """One ``optimize`` with so many evaluators; its result, and what its record says of each evaluation."""
    folder.mkdir(parents=True)
    evaluators = "cpu" if given.cpu else "gpu"
    lines = ["[ray]", f'evaluators = "{evaluators}"', f"workers = {workers}", f"per_node = {workers}", "join_s = 60"]
    (folder / "tilecast.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "tilecast.agent.cli.app", "optimize", problem, "--device", f"ray:{given.address}"]
    command += ["--model", record, "--forecaster", "none", "--max-evals", str(given.evals), "--seed", SEED]
    command += ["--no-confirm", "--json", "--yes", "--run-dir", str(folder / "runs")]
    command += ["--language", "cpp"] if given.cpu else []
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=max(10.0, given.until - began))
    seconds = time.monotonic() - began
    found: dict[str, Any] = {"workers": workers, "seconds": round(seconds, 2), "exit": done.returncode}
    try:
        result = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {**found, "stderr": done.stderr[-2000:]}
    return {
        **found,
        **recorded(result["run"]),
        "best": (result.get("best") or {}).get("source_sha256"),
        "log": done.stderr[-500:],
    }


def recorded(run_id: str) -> dict[str, Any]:
    """From the run's record: times by candidate, where they were made, baselines of each evaluator, seconds of the loop."""
    from tilecast.agent.config import home
    from tilecast.agent.engine import open_record

    log = open_record(None, home()).open(run_id, lambda: 0.0)
    started = [s.elapsed_s for s in log.events(kind="evaluation_started")]
    done: list[Any] = log.events(kind="evaluated")
    baselines = log.state.baselines
    rows = {stored.event.result.source_sha256: row_of(stored.event.result) for stored in done}
    return {
        "evaluated": len(done),
        "evaluating_s": round(done[-1].elapsed_s - started[0], 2) if done else None,
        "until_first_s": round(started[0], 2) if started else None,
        "busy_s": round(sum(s.event.charged_gpu_s for s in done), 2),
        "baseline": baselines.baselines.fastest if baselines else None,
        "baseline_notes": baselines.baselines.notes if baselines else [],
        "rows": rows,
    }


def compared(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Speed-ups of the run, and how far the times of the same candidates agree: on the same GPU, and on the other one."""
    found: dict[str, Any] = {}
    for name in ("seconds", "evaluating_s"):
        if one.get(name) and two.get(name):
            found[f"speedup_{name}"] = round(one[name] / two[name], 3)
    groups: dict[str, list[tuple[float, float, bool]]] = {"same_gpu": [], "other_gpu": []}
    for sha256, a in (one.get("rows") or {}).items():
        b = (two.get("rows") or {}).get(sha256)
        if b is None or not a["speedup"] or not b["speedup"]:
            continue
        overlap = a["speedup"]["low"] <= b["speedup"]["high"] and b["speedup"]["low"] <= a["speedup"]["high"]
        row = (b["ms"]["candidate"] / a["ms"]["candidate"], b["speedup"]["ratio"] / a["speedup"]["ratio"], overlap)
        groups["same_gpu" if a["gpu"] == b["gpu"] else "other_gpu"].append(row)
    for name, rows in groups.items():
        found[name] = {
            "candidates": len(rows),
            "median_ratio_of_times": round(statistics.median(r[0] for r in rows), 5) if rows else None,
            "median_ratio_of_speedups": round(statistics.median(r[1] for r in rows), 5) if rows else None,
            "largest_difference_of_speedups": round(max(abs(r[1] - 1) for r in rows), 5) if rows else None,
            "intervals_overlap": sum(r[2] for r in rows),
        }
    same = [
        s for s, a in (one.get("rows") or {}).items() if (two.get("rows") or {}).get(s, {}).get("status") == a["status"]
    ]
    found["same_status"] = [len(same), len(one.get("rows") or {})]
    found["same_best"] = one.get("best") == two.get("best")
    return found


def across(address: str, given: Any) -> list[dict[str, Any]]:
    """A/A across GPUs: one candidate measured ``--repeats`` times on each evaluator, both at once, against its own baseline."""
    from tilecast.sandbox.base import EvaluationOptions
    from tilecast.sandbox.cluster.options import ClusterOptions
    from tilecast.sandbox.cluster.sandbox import RaySandbox
    from tilecast.sandbox.problem import load_problem

    problem, candidate = load_problem(given.problems[0][0]), aa_candidate(given)
    kind = "cpu" if given.cpu else "gpu"
    sandbox = RaySandbox(f"ray:{address}", ClusterOptions(evaluators=kind, workers=2, per_node=2, join_s=60))
    rows: list[dict[str, Any]] = []

    def measure(_: int) -> None:
        place, took_s = sandbox.slot(), 0.0
        with place.turn():
            for _ in range(given.repeats):
                began = time.monotonic()
                if began + 1.3 * took_s > given.until:
                    return
                rows.append(
                    row_of(place.benchmark(problem, candidate, EvaluationOptions(baseline="eager"), lambda text: None))
                )
                took_s = time.monotonic() - began

    try:
        _ = sandbox.device
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(measure, range(2)))
    finally:
        sandbox.close()
    return rows


def row_of(result: Any) -> dict[str, Any]:
    """What is compared of a measurement."""
    where = result.details.get("worker", {})
    return {
        "status": str(result.status),
        "ms": result.latency_ms.model_dump() if result.latency_ms else None,
        "speedup": result.speedup.model_dump() if result.speedup else None,
        "seconds": round(result.seconds, 3),
        "gpu": where.get("gpu_uuid") or where.get("name"),
        "driver": where.get("driver"),
        "sm_mhz": where.get("sm_mhz"),
    }


def aa_candidate(given: Any) -> Any:
    """The first recorded candidate that passed; the example's own kernel for the CPU."""
    from tilecast.sandbox.problem import load_problem
    from tilecast.sandbox.replay import recorded_candidates
    from tilecast.sandbox.source import load_candidate

    path = given.problems[0][0]
    if given.cpu:
        return load_candidate(Path(path) / "kernel.py")
    passed = [
        (row.ms, c) for c, row in recorded_candidates(path, load_problem(path)) if row.ms and c.name.startswith("tr")
    ]
    return min(passed, key=lambda pair: pair[0])[1]


def summary_of_aa(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians by GPU and how far they are apart."""
    by_gpu: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["ms"]:
            by_gpu.setdefault(str(row["gpu"]), []).append(row)
    medians = {
        gpu: {
            "candidate_ms": statistics.median(r["ms"]["candidate"] for r in found),
            "baseline_ms": statistics.median(r["ms"]["baseline"] for r in found),
            "speedup": statistics.median(r["speedup"]["ratio"] for r in found),
            "measurements": len(found),
        }
        for gpu, found in by_gpu.items()
    }
    apart = {}
    for name in ("candidate_ms", "baseline_ms", "speedup"):
        values = [m[name] for m in medians.values()]
        apart[name] = round(max(values) / min(values) - 1, 5) if len(values) > 1 else None
    return {"by_gpu": medians, "apart": apart}


def stages(given: Any, folder: Path, document: dict[str, Any]) -> None:
    """All runs that fit, then A/A; the document is filled as they end."""

    def one(problem: tuple[str, str]) -> dict[str, Any]:
        return run(*problem, 1, given, folder / f"{Path(problem[0]).name}-1")

    with ThreadPoolExecutor(2) as pool:
        alone = list(pool.map(one, given.problems))
    longest = 0.0
    for (path, record), first in zip(given.problems, alone, strict=True):
        name = Path(path).name
        document["problems"][name] = {"one": first}
        if first["exit"] != 0 or time.monotonic() + max(longest, 0.7 * first["seconds"]) > given.until:
            document["problems"][name]["skipped"] = (
                "the run with two would not have fitted in the limit, or that with one failed"
            )
            continue
        second = run(path, record, 2, given, folder / f"{name}-2")
        longest = max(longest, second["seconds"])
        document["problems"][name] |= {"two": second, "compared": compared(first, second)}
        print(name, json.dumps(document["problems"][name]["compared"]), flush=True)
    rows = across(given.address, given)
    document["across_gpus"] = {**summary_of_aa(rows), "rows": rows}


def main() -> None:
    """One GPU, two GPUs, A/A; whatever is done when the time is up is written."""
    arguments = parser(__doc__)
    arguments.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus")
    arguments.add_argument("--evals", type=int, default=6)
    arguments.add_argument("--repeats", type=int, default=4)
    arguments.add_argument("--limit-s", type=float, default=LIMIT_S)
    arguments.add_argument(
        "--cpu", action="store_true", help="CPU evaluators on an example: tries the script, shows nothing"
    )
    given = arguments.parse_args()
    given.until = time.monotonic() + given.limit_s
    if given.cpu:
        given.problems = [(str(ROOT / "examples" / "softmax_cpp"), "builtin")]
    else:
        given.problems = [(str(given.corpus.resolve() / n), f"replay:{given.corpus.resolve() / n}") for n in PROBLEMS]
    document: dict[str, Any] = {**header("ray_two_gpus"), "cpu_form": given.cpu, "evals": given.evals, "problems": {}}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        os.environ["TILECAST_HOME"] = home
        from tilecast.sandbox.cluster.connection import import_ray

        ray = import_ray("ray")
        cpus = 4 if given.cpu else None
        context = ray.init(
            address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
        )
        given.address, began = context.address_info["gcs_address"], time.monotonic()
        try:
            stages(given, Path(home), document)
        except Exception as error:  # noqa: BLE001 - what was measured before is written whatever came after
            document["cut_off"] = f"{type(error).__name__}: {error}"[:1000]
        finally:
            document["seconds"] = round(time.monotonic() - began, 1)
            write(given.out, "ray_two_gpus_cpu" if given.cpu else "ray_two_gpus", document)
            ray.shutdown()


if __name__ == "__main__":
    main()
