"""The result of a run in a few lines, for the end of the command."""

from __future__ import annotations

from tilecast.agent.report import wording
from tilecast.sandbox.schema import OptimizeResult


def result_lines(result: OptimizeResult) -> list[str]:
    """Best, spend, counts, and what to look at next."""
    counts = result.candidates
    lines = [_best_line(result)]
    if result.best is not None:
        apart = wording.apart(result.best.speedup, result.best.latency_ms)
        lines += [f"  {apart}"] if apart else []
        lines.append(f"  written to {result.best.path}")
    lines += [f"  {note}" for note in result.notes if note != result.why_nothing]
    lines.append(f"  spent: {wording.ledger(result.ledger)}")
    tally = (
        f"  {counts.proposed} proposed, {counts.forecast} forecast, {counts.skipped_by_forecast} skipped by forecast, "
    )
    tally += f"{counts.measured} measured, {counts.rejected} rejected"
    lines.append(tally + (f", {counts.not_recorded} not recorded" if counts.not_recorded else ""))
    lines.append(f"  why each was kept or dropped: tilecast show {result.run}")
    if result.stopped_by == "interrupted":
        lines.append(f"  to go on: tilecast optimize --resume {result.run}")
    return lines


def _best_line(result: OptimizeResult) -> str:
    best = result.best
    if best is None:
        return "no candidate was verified and measured"
    times = (
        f"{wording.milliseconds(best.latency_ms.candidate)} against {wording.milliseconds(best.latency_ms.baseline)}"
    )
    text = f"best: {wording.interval(best.speedup)} ({best.verdict}), {times}{wording.mark(best.recorded)}"
    return text if result.improved else f"{text}; {wording.not_faster(best.verdict)}"
