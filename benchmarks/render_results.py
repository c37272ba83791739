"""Writes docs/results.md and its pictures from the records of the examples and the runs made on them.

``python benchmarks/render_results.py`` replays and compiles what is missing (some minutes the first time, kept in
``benchmarks/results/h200/examples/derived.json``); with ``--check`` it writes nothing and fails if the page is out of date.
"""

from __future__ import annotations

import _bootstrap  # noqa: F401  # isort: skip

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import results_plots as plots
from results_data import Entry, cards, entries, without_record
from results_derived import SEEDS, Derived, evidence, reason, search

from tilecast.agent.report import wording
from tilecast.sandbox.evidence import EvidenceCollector
from tilecast.tools.study.evidence_file import evidence_table

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Told:
    """An entry with what was derived for it."""

    entry: Entry
    search: dict[str, Any] | None
    evidence: dict[str, Any] | None


def told_of(examples: Path, runs: Path, derived: Derived) -> list[Told]:
    """All entries with their replays and, for those that missed their aim, compile-time evidence."""
    made: list[EvidenceCollector] = []

    def collector() -> EvidenceCollector:
        if not made:
            made.append(EvidenceCollector(Path(tempfile.mkdtemp(prefix="tilecast-evidence-"))))
        return made[0]

    found = []
    try:
        for entry in entries(examples, runs):
            print(f"{entry.name}, {entry.language}: {len(entry.rows)} variants", file=sys.stderr)
            missed = not entry.target()[1]
            found.append(Told(entry, search(entry, derived), evidence(entry, derived, collector) if missed else None))
    finally:
        for one in made:
            one.close()
    return found


def page(found: list[Told], missing: list[str]) -> str:
    """The page, from its template."""
    import jinja2

    searched = [(t.entry, t.search) for t in found if t.search is not None]
    template = jinja2.Template(
        (ROOT / "benchmarks" / "results.md.j2").read_text(encoding="utf-8"),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    text = template.render(
        origin=_origin(found),
        found=_found_table(found),
        seeds=SEEDS,
        kin=", ".join(sorted({figures["left_out"] for _, figures in searched if figures["left_out"]})),
        searched=_search_table(searched),
        why_not_half="\n".join(line for entry, figures in searched if (line := _why_not_half(entry, figures))),
        aims=_aims(found),
        missed="\n".join(_missed(t) for t in found if not t.entry.target()[1]),
        missing=", ".join(f"`{name}`" for name in missing),
    )
    return text.strip() + "\n"


def _origin(found: list[Told]) -> str:
    return "\n".join(f"- {card}" for card in cards(t.entry for t in found))


def _found_table(found: list[Told]) -> str:
    head = (
        "| example | language | plain | best | proposed by | over the fastest baseline | speed of light | evaluations | GPU s |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(_found_row(t.entry) for t in found)


def _found_row(entry: Entry) -> str:
    assert entry.best.ms is not None and entry.best_measured.speedup is not None
    plain = wording.milliseconds(entry.plain.ms) if entry.plain is not None and entry.plain.ms else "not recorded"
    light, speedup, best_ms = entry.best_measured.speed_of_light, entry.best_measured.speedup, entry.best.ms
    fraction = f"{light.fraction:.0%}, {light.bound}" if light is not None else ""
    over = f"{wording.interval(speedup)} {entry.best_measured.baseline}"
    proposer, evaluations, seconds = entry.proposer, entry.measured_of, entry.seconds
    run = entry.run
    if run is not None and run.best is not None:
        result = run.best["result"]
        best_ms, told = result["latency_ms"]["candidate"], result["speedup"]
        over = f"{told['ratio']:.3g}x [{told['low']:.3g}, {told['high']:.3g}] {result['baseline']}"
        if result.get("speed_of_light"):
            fraction = f"{result['speed_of_light']['fraction']:.0%}, {result['speed_of_light']['bound']}"
        proposer = f"{run.best['origin']}: {run.best['name']} {run.best['note']}".strip()
        evaluations = f"{run.report['ledger']['evals']['spent']:.0f}"
        seconds = run.report["ledger"]["gpu_seconds"]["spent"]
    cells = [
        f"`{entry.name}`",
        entry.language,
        plain,
        wording.milliseconds(best_ms),
        proposer,
        over,
        fraction,
        evaluations,
    ]
    return f"| {' | '.join(cells)} | {seconds:.0f} |"


def _search_table(searched: list[tuple[Entry, dict[str, Any]]]) -> str:
    head = (
        "| example | language | variants | compiled | as good | without | with | share | GPU s without | with |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(_search_row(*one) for one in searched) if searched else ""


def _search_row(entry: Entry, figures: dict[str, Any]) -> str:
    evals, seconds = figures["evals"], figures["seconds"]
    cells = [f"`{entry.name}`", entry.language, str(figures["variants"]), str(figures["compiled"])]
    cells += [f"{figures['near_best']:.0%}"]
    cells += [f"{evals['without']:.1f}", f"{evals['with']:.1f}", f"{evals['with'] / evals['without']:.0%}"]
    return f"| {' | '.join(cells)} | {seconds['without']:.0f} | {seconds['with']:.0f} |"


def _why_not_half(entry: Entry, figures: dict[str, Any]) -> str:
    evals = figures["evals"]
    if evals["with"] <= evals["without"] / 2:
        return ""
    near, count = figures["near_best"], figures["variants"]
    some = f"{max(round(near * count), 1)} of {count} variants are as good as the best"
    first = figures["curve"]["with"][0]
    if evals["without"] <= 6:
        because = f"{some}, so that chance finds one soon"
    elif not first:
        told = figures["first"]
        where = f", {told['error']}" if told["error"] else ""
        because = f"its first choice was refused ({told['status']}{where}), and {some}"
    else:
        because = f"its first choice reaches {first:.1%} of the best; {some}, and those are nearer than what it can tell apart"
    return f"- `{entry.name}`, {entry.language}: {because}."


def _aims(found: list[Told]) -> str:
    rows = []
    for t in found:
        text, held = t.entry.target()
        rows.append(f"| `{t.entry.name}` | {t.entry.language} | {text} | {'met' if held else '**missed**'} |")
    return "| example | language | reached | aim |\n|---|---|---|---|\n" + "\n".join(rows)


def _missed(told: Told) -> str:
    return f"- `{told.entry.name}`, {told.entry.language}: {reason(told.evidence)}"


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    parser.add_argument("--examples", type=Path, default=ROOT / "examples")
    parser.add_argument("--runs", type=Path, default=ROOT / "benchmarks" / "results" / "h200" / "examples")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    asked = parser.parse_args()
    kept = asked.runs / "derived.json"
    compiled = asked.runs / "evidence.jsonl.gz"
    derived = Derived(kept, not asked.check, evidence_table(compiled if compiled.is_file() else None))
    found = told_of(asked.examples, asked.runs, derived)
    searched = [(t.entry, t.search) for t in found if t.search is not None]
    texts = {
        asked.docs / "results.md": page(found, without_record(asked.examples)),
        asked.docs / "images" / "results_roofline.svg": plots.roofline([t.entry for t in found]) + "\n",
        asked.docs / "images" / "results_search.svg": plots.search(searched) + "\n",
        kept: derived.text(),
    }
    stale = [file for file, text in texts.items() if not file.is_file() or file.read_text(encoding="utf-8") != text]
    if asked.check:
        for file in stale:
            print(f"out of date: {file}; run `python benchmarks/render_results.py` and commit", file=sys.stderr)
        return 1 if stale else 0
    for file in stale:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts[file], encoding="utf-8")
        print(f"written: {file}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
