"""The candidates' texts for a report: each one's difference from its parent, or the text itself where it began afresh."""

from __future__ import annotations

from dataclasses import dataclass

from tilecast.agent.record.store import RunLog
from tilecast.agent.report.build import RunReport
from tilecast.agent.report.detail import diff_between, text_of

TOTAL_CHARACTERS = 2_400_000
"""All texts of a report together; more would make a page that opens slowly."""
LEAST_CHARACTERS, MOST_CHARACTERS = 2_000, 24_000


@dataclass(frozen=True)
class CandidateText:
    """Lines with their kind (``add``, ``del``, ``at``, ``same``); ``left_out`` counts the lines that had no room."""

    title: str
    lines: list[tuple[str, str]]
    left_out: int = 0


def texts_of(log: RunLog, report: RunReport) -> dict[int, CandidateText]:
    """By candidate, each within its share of the room."""
    share = min(max(TOTAL_CHARACTERS // max(len(report.candidates), 1), LEAST_CHARACTERS), MOST_CHARACTERS)
    found: dict[int, CandidateText] = {}
    for candidate in report.candidates:
        proposed = log.state.candidates[candidate.index].proposed
        source = text_of(log, candidate.source_sha256)
        if proposed is None or source is None:
            continue
        parent = text_of(log, proposed.parent_sha256)
        if parent is None:
            title = "source (no parent: a start of its own)"
            lines = [("same", line) for line in source.splitlines()]
        else:
            name = f"candidate {candidate.parent}" if candidate.parent is not None else "its parent"
            title = f"difference from {name}"
            lines = [(_kind(line), line) for line in diff_between(parent, source, name).splitlines()]
        found[candidate.index] = _cut(title, lines, share)
    return found


def _kind(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "at"
    return {"+": "add", "-": "del"}.get(line[:1], "same")


def _cut(title: str, lines: list[tuple[str, str]], most: int) -> CandidateText:
    kept: list[tuple[str, str]] = []
    size = 0
    for kind, line in lines:
        size += len(line) + 30
        if size > most:
            break
        kept.append((kind, line))
    return CandidateText(title, kept, len(lines) - len(kept))
