"""The report of a run as one document, folded from its record. Markdown, HTML and JSON are written from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilecast.agent.budget import METERS
from tilecast.agent.record.events import Noted
from tilecast.agent.record.fold import CandidateState
from tilecast.agent.record.store import RunLog
from tilecast.agent.report.honesty import Honesty, honesty
from tilecast.agent.result import best_of, why_nothing
from tilecast.sandbox.base import BaselineTimes, DeviceFacts, Incident
from tilecast.sandbox.languages import language_of
from tilecast.sandbox.problem import ProblemFacts
from tilecast.sandbox.schema import (
    Best,
    CandidateCounts,
    Cost,
    Document,
    Forecast,
    LedgerDocument,
    Measurement,
    Meter,
    TopLevel,
)


class CandidateReport(Document):
    """One candidate: where it came from, what was forecast, what was measured, and why it was kept or dropped."""

    index: int
    name: str
    language: str
    origin: str
    note: str
    parent: int | None
    source_sha256: str | None
    forecast: Forecast | None
    action: str | None
    action_why: str
    result: Measurement | None
    gpu_seconds: float
    cost: Cost
    keep: bool
    judged: bool
    """False while it is under way; ``keep`` says nothing then."""
    best: bool
    why: str
    evaluation: int | None = None
    """Which evaluation of the run it was, from 1 in the order judged; None if none was spent on it."""
    led: bool = False
    """Whether it was the fastest when it was judged."""


class LanguageReport(Document):
    """Candidates of one language: how many were measured and rejected, and the best speedup over the baseline."""

    language: str
    proposed: int
    measured: int
    rejected: int
    best_speedup: float | None
    best_ms: float | None


class RunReport(TopLevel):
    """Everything about one run. ``recorded`` says that every time in it was read from a record, not measured."""

    run: str
    created_with: str
    problem: str
    problem_path: str
    problem_sha256: str
    device: DeviceFacts
    recorded: bool
    seed: int
    settings: dict[str, Any]
    facts: ProblemFacts | None
    status: str
    why: str
    baselines: BaselineTimes | None
    best: Best | None
    best_index: int | None
    improved: bool
    ledger: LedgerDocument
    counts: CandidateCounts
    calls: int
    lost_calls: int
    sessions: int
    languages: list[LanguageReport]
    honesty: Honesty | None
    candidates: list[CandidateReport]
    notes: list[str]
    incidents: list[Incident] = []
    """Refused bundles and results, and evaluators lost, with what they printed last."""


def build_report(log: RunLog) -> RunReport:
    """Fold a run's record into its report."""
    state, header = log.state, log.header
    best = best_of(log, None)
    by_sha256 = {c.sha256: c.index for c in reversed(state.candidates.values()) if c.sha256 is not None}
    places = _evaluations(state.candidates.values())
    candidates = [_candidate(log, c, by_sha256, places) for c in state.candidates.values() if c.proposed is not None]
    stopped, failed = state.stopped, state.failed
    return RunReport(
        run=log.run_id,
        created_with=f"tilecast {header.version}",
        problem=header.problem,
        problem_path=header.problem_path,
        problem_sha256=header.problem_sha256,
        device=state.preflight.device if state.preflight else header.device,
        recorded=header.device.recorded,
        seed=header.seed,
        settings=header.settings,
        facts=state.preflight.preflight.facts if state.preflight else None,
        status="failed" if failed else stopped.stopped_by if stopped else "unfinished",
        why=failed.error if failed else stopped.why if stopped else "the process ended, or is still at work",
        baselines=state.baselines.baselines if state.baselines else None,
        best=best,
        best_index=state.best,
        improved=best is not None and best.verdict == "faster",
        ledger=ledger_of(log),
        counts=state.counts,
        calls=state.calls,
        lost_calls=state.lost_calls,
        sessions=state.sessions,
        languages=_languages(candidates),
        honesty=honesty(list(state.candidates.values())),
        candidates=candidates,
        notes=[] if best is not None else [why_nothing(log)],
        incidents=_incidents(log),
    )


def _incidents(log: RunLog) -> list[Incident]:
    """What the record notes of bundles, results and evaluators; other notes have no ``warning`` among their figures."""
    noted = [stored.event for stored in log.events("noted")]
    found = [
        Incident.model_validate({"text": event.text, **event.figures})
        for event in noted
        if isinstance(event, Noted) and "warning" in event.figures
    ]
    return [incident for incident in found if incident.warning or incident.log]


def ledger_of(log: RunLog) -> LedgerDocument:
    """Spent and limits as the record has them."""
    spent, limits = log.state.spent, log.state.limits
    values = {meter: Meter(spent=spent.of(meter), limit=limits.get(meter)) for meter in METERS}
    values["minutes"] = Meter(spent=log.state.elapsed_s / 60, limit=limits.get("minutes"))
    return LedgerDocument(**values)


def _evaluations(candidates: Iterable[CandidateState]) -> dict[int, int]:
    """The number of the evaluation by candidate: everything that spent one, in the order judged."""
    spent = [c for c in candidates if c.counted or c.lost is not None]
    spent.sort(key=lambda c: (c.judged is None, c.judged_seq, c.index))
    return {c.index: place for place, c in enumerate(spent, 1)}


def _candidate(
    log: RunLog, state: CandidateState, by_sha256: dict[str, int], places: dict[int, int]
) -> CandidateReport:
    proposed, chosen, judged = state.proposed, state.chosen, state.judged
    assert proposed is not None
    source = log.record.text(proposed.source_sha256) if proposed.source_sha256 else None
    return CandidateReport(
        index=state.index,
        name=proposed.name,
        language=language_of(source) if source is not None else "none",
        origin=proposed.origin,
        note=proposed.note,
        parent=by_sha256.get(proposed.parent_sha256) if proposed.parent_sha256 else None,
        source_sha256=proposed.source_sha256,
        forecast=state.forecast,
        action=chosen.action if chosen else None,
        action_why=chosen.why if chosen else "",
        result=state.result,
        gpu_seconds=state.charged_gpu_s,
        cost=proposed.cost,
        keep=judged.keep if judged else False,
        judged=judged is not None,
        best=log.state.best == state.index,
        why=judged.why if judged else "not judged yet",
        evaluation=places.get(state.index),
        led=judged is not None and judged.best and state.timed,
    )


def _languages(candidates: list[CandidateReport]) -> list[LanguageReport]:
    found = []
    for language in sorted({c.language for c in candidates if c.source_sha256 is not None}):
        own = [c for c in candidates if c.language == language]
        timed = [c.result for c in own if c.result is not None and c.result.speedup is not None]
        best = max(timed, key=lambda r: r.speedup.ratio if r.speedup else 0.0, default=None)
        found.append(
            LanguageReport(
                language=language,
                proposed=len(own),
                measured=len(timed),
                rejected=sum(
                    1 for c in own if c.result is not None and c.result.status not in ("PASSED", "NOT_RECORDED")
                ),
                best_speedup=best.speedup.ratio if best and best.speedup else None,
                best_ms=best.latency_ms.candidate if best and best.latency_ms else None,
            )
        )
    return found
