"""Turn the results of the timing scripts into the tables of docs/timing.md.

python benchmarks/render_timing.py --results benchmarks/results
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Document = dict[str, Any]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def origin(document: Document) -> str:
    """Where and when a result was measured."""
    versions = ", ".join(f"{name} {value}" for name, value in document["versions"].items())
    cards = Counter(document["card"].splitlines())
    where = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in cards.items())
    where = document["machine"] if where == "none" else where
    beside = f" Meanwhile {document['beside']}." if "beside" in document else ""
    return f"{document['date'][:10]}, {where}; {versions}; commit {document['commit'][:10]}.{beside}"


def _verdicts(found: dict[str, int]) -> list[str]:
    return [str(found.get(name, 0)) for name in ("faster", "slower", "same", "undecided")]


def simulation(document: Document) -> str:
    """Verdicts, misses and cost on the simulated device."""
    rows = []
    for name, case in document["cases"].items():
        seconds, samples = case["seconds"], case["samples"]
        missed = f"{case['interval_missed_the_truth']} of {case['runs']}"
        rows.append(
            [
                name,
                *_verdicts(case["verdicts"]),
                missed,
                f"{samples['median']:.0f}",
                f"{seconds['median']:.2f} ({seconds['p90']:.2f})",
            ]
        )
    head = ["case", "faster", "slower", "same", "undecided", "interval missed", "samples", "seconds (p90)"]
    runs, budget = next(iter(document["cases"].values()))["runs"], document["plan"]["max_seconds"]
    text = (
        f"Simulated device, {runs} comparisons a case, budget {budget:g} s (`benchmarks/timing_simulation.py`): 1 % noise a "
        "call unless named; all but the quiet cases with 3 % drift a second and a fifth of the calls 1.5 to 3 times as long. "
    )
    return f"{text}{origin(document)}\n\n{table(head, rows)}"


def pairs(document: Document) -> str:
    """A/A and the 3 % pair with real workers."""
    rows = []
    for name, case in document["cases"].items():
        if not case.get("comparisons"):
            rows.append([name, "0", *[""] * 8])
            continue
        low, high = case["ratio"]["low"], case["ratio"]["high"]
        ratio = f"{case['ratio']['median']:.4f} ({low:.4f} to {high:.4f})"
        cost = f"{case['sampling_seconds_median']:.2f} ({case['seconds_median']:.2f})"
        count = f"{case['comparisons']}" + (f" + {case['failed']} refused" if case["failed"] else "")
        rows.append(
            [
                name,
                f"{case['median_ms']:.4g}",
                count,
                *_verdicts(case["verdicts"]),
                ratio,
                f"{case['samples_median']:.0f}",
                cost,
            ]
        )
    head = [
        "case",
        "ms",
        "comparisons",
        "faster",
        "slower",
        "same",
        "undecided",
        "ratio (range)",
        "samples",
        "s sampling (all)",
    ]
    return f"Real workers (`benchmarks/aa_gpu.py`). {origin(document)}\n\n{table(head, rows)}"


def throughput(document: Document) -> str:
    """Candidates a minute of both harnesses, by number of judges on the device."""
    rows = [["a fresh process a candidate, 5 + 100 runs", f"{document['plain_a_minute']}", "the same", "1"]]
    for rate in document["rates"]:
        judges = "one judge" if rate["lanes"] == 1 else f"{rate['lanes']} judges"
        rows.append(
            [f"this harness, {judges}", f"{rate['a_minute']}", f"{rate['a_minute_with_setup']}", f"{rate['times']}"]
        )
    head = ["harness", "candidates a minute", "with the problem's set-up", "times as many"]
    counts = " and ".join(sorted({f"{rate['candidates']}" for rate in document["rates"]}))
    refused = sum(rate["candidates"] - rate["passed"] for rate in document["rates"])
    text = f"{counts} recorded Triton kernels under 1 ms, {refused or 'none'} of them refused. "
    return f"{text}{origin(document)}\n\n{table(head, rows)}"


def corpus(document: Document) -> str:
    """Agreement with the record."""
    found = document["summary"]
    if not found.get("measured"):
        return f"Nothing of the corpus was measured again. {origin(document)}"
    lines = [
        f"{found['measured']} recorded kernels measured again: median difference {found['median_difference']:.1%}, "
        f"90 % within {found['p90_difference']:.1%}, {found['within_5_percent']:.0%} within 5 %. {origin(document)}"
    ]
    for name, problem in document.get("problems", {}).items():
        if "measured" in problem:
            lines.append(f"\n`{name}` was measured by itself, at commit {problem['measured']['commit'][:10]}.")
    if found["differing"]:
        lines.append("\nMore than 5 % apart:\n\n" + "\n".join(f"- {item}" for item in found["differing"]))
    if found["other_status"]:
        lines.append("\nNot accepted now:\n\n" + "\n".join(f"- {item}" for item in found["other_status"]))
    return "\n".join(lines)


def cheats(document: Document) -> str:
    """What became of the cheating kernels."""
    rows = []
    for path, result in document["results"].items():
        latency = (result.get("latency_ms") or {}).get("candidate")
        rows.append(
            [
                path,
                result["status"],
                "" if latency is None else f"{latency:.4g}",
                result["reason"][:110].replace("|", "/"),
            ]
        )
    return f"Cheating and honest kernels. {origin(document)}\n\n{table(['file', 'status', 'ms', 'reason'], rows)}"


PARTS = {
    "aa_cuda": ("A against A, and 3 %", pairs),
    "throughput": ("Throughput", throughput),
    "throughput_four_and_six_judges": ("Throughput with more judges, on another host", throughput),
    "corpus_remeasure": ("The corpus, measured again", corpus),
    "timing_cheats_cuda": ("Cheats", cheats),
    "aa_cpu": ("A against A on a CPU", pairs),
}


def between(text: str, mark: str, content: str) -> str:
    """The text with what stands between two marks replaced.

    Raises:
        ValueError: if the marks are not there.
    """
    begin, end = f"<!-- begin {mark} -->", f"<!-- end {mark} -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"docs/timing.md has no marks for {mark!r}")
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"


def render(text: str, results: Path) -> str:
    """docs/timing.md with the tables of all results that are there."""
    file = results / "timing_simulation.json"
    if file.is_file():
        text = between(text, "simulation", simulation(json.loads(file.read_text(encoding="utf-8"))))
    sections = []
    for name, (title, make) in PARTS.items():
        file = next((f for f in (results / f"{name}.json", results / "h200" / f"{name}.json") if f.is_file()), None)
        if file is not None:
            sections.append(f"### {title}\n\n{make(json.loads(file.read_text(encoding='utf-8')))}")
    return between(text, "gpu", "\n\n".join(sections)) if sections else text


def main() -> None:
    """Rewrite the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    arguments.add_argument("--document", type=Path, default=ROOT / "docs" / "timing.md")
    options = arguments.parse_args()
    text = options.document.read_text(encoding="utf-8")
    options.document.write_text(render(text, options.results), encoding="utf-8")


if __name__ == "__main__":
    main()
