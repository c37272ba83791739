"""The contract's answer of a run, folded from its record, and the winner as a file."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from tilecast.agent.record.store import RunLog
from tilecast.agent.report import wording
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import Best, Interval, LedgerDocument, OptimizeResult

WINNER = "best.py"


def write_winner(log: RunLog) -> Path | None:
    """Write the best candidate of the run into its folder, whole or not at all; None if there is none."""
    best = log.state.best_state()
    if best is None or best.sha256 is None:
        return None
    return write_text(log.run_dir / WINNER, log.record.text(best.sha256))


def write_text(path: Path, text: str) -> Path:
    """Write a file so that a reader never sees half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    return path


def check_writable(path: Path, flag: str) -> None:
    """See before a run whether its result can be written there.

    Raises:
        UsageError: naming the path and what is wrong with it.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"{flag} {path}: is a folder; name a file in it, such as {path / WINNER}")
    if not folder.is_dir():
        raise UsageError(f"{flag} {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{flag} {path}: the folder {folder} cannot be written to")


def result_of(log: RunLog, ledger: LedgerDocument, winner: Path | None) -> OptimizeResult:
    """The document that ``tilecast optimize --json`` prints."""
    state = log.state
    assert state.stopped is not None
    best = best_of(log, winner)
    notes = [f"stopped: {state.stopped.why}"]
    if log.header.device.recorded:
        notes.append(f"every time is recorded on {log.header.device.name}, not measured on this machine")
    nothing = why_nothing(log) if best is None else ""
    if best is None:
        notes.append(nothing)
    elif progress := since_start(log, best):
        notes.insert(0, progress)
    return OptimizeResult(
        run=log.run_id,
        stopped_by=state.stopped.stopped_by,
        best=best,
        improved=best is not None and best.verdict == "faster",
        ledger=ledger,
        candidates=state.counts,
        run_dir=str(log.run_dir),
        notes=notes,
        why_nothing=nothing,
    )


def best_of(log: RunLog, winner: Path | None) -> Best | None:
    """The fastest candidate that this run verified and measured."""
    found = log.state.best_state()
    if found is None or found.result is None:
        return None
    result = found.result
    assert result.verdict is not None and result.speedup is not None and result.latency_ms is not None
    return Best(
        path=str(winner or log.run_dir / WINNER),
        source_sha256=result.source_sha256,
        verdict=result.verdict,
        speedup=result.speedup,
        latency_ms=result.latency_ms,
        recorded=result.recorded,
    )


def since_start(log: RunLog, best: Best) -> str:
    """How far the run came from the kernel it was given, through what both are to the baseline.

    Empty where that cannot be told: its times had not settled, or the combined interval contains 1.
    """
    start = log.header.start_sha256
    given = next((c.result for c in log.state.candidates.values() if c.sha256 == start and c.result is not None), None)
    if start is None or given is None or given.speedup is None:
        return ""
    if best.source_sha256 == given.source_sha256:
        return "the kernel it began with is still the best"
    if given.settled is False:
        return ""
    # The widest that the two intervals allow: both were taken against the baseline, not against each other.
    now, then = best.speedup, given.speedup
    found = Interval(ratio=now.ratio / then.ratio, low=now.low / then.high, high=now.high / then.low)
    if found.low <= 1 <= found.high:
        return ""
    how = "combined from the intervals of both against the baseline"
    return f"{wording.interval(found)} the speed of the kernel it began with ({how})"


def why_nothing(log: RunLog) -> str:
    """One line on why a run has no best candidate."""
    candidates = log.state.candidates.values()
    if not any(c.proposed is not None for c in candidates):
        stopped = log.state.stopped
        return "nothing could be measured: no candidate was proposed" + (f" ({stopped.why})" if stopped else "")
    ends: Counter[str] = Counter()
    for candidate in candidates:
        if candidate.result is not None:
            ends[str(candidate.result.status)] += 1
        elif candidate.chosen is not None:
            ends[
                {"skip": "skipped by the forecaster", "drop": "no new candidate"}.get(
                    candidate.chosen.action, "unfinished"
                )
            ] += 1
        elif candidate.proposed is not None:
            ends["unfinished"] += 1
    told = ", ".join(f"{count} {what}" for what, count in ends.most_common())
    example = next((c.result.reason for c in candidates if c.result is not None and c.result.reason), "")
    return f"nothing could be measured: {told}" + (
        f"; for instance: {example.splitlines()[0][:160]}" if example else ""
    )
