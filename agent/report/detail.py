"""One candidate of a run, whole: prompt, diff, forecast, measurement, verdict, cost, and why it was kept or dropped."""

from __future__ import annotations

import difflib
import json

from tilecast.agent.record.fold import CandidateState
from tilecast.agent.record.store import RunLog
from tilecast.agent.report import wording
from tilecast.agent.report.build import CandidateReport, build_report
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import TopLevel


class CandidateDetail(TopLevel):
    """What the record has on one candidate. ``diff`` is against ``diff_against``, unified."""

    run: str
    candidate: CandidateReport
    prompt: str | None
    reply: str | None
    source: str | None
    diff: str
    diff_against: str
    tokens: int
    usd: float | None


def find_candidate(log: RunLog, wanted: str) -> CandidateState:
    """A candidate by its number, ``best``, or the start of its source's hash.

    Raises:
        UsageError: if there is none, naming those there are.
    """
    candidates = log.state.candidates
    if wanted == "best" and log.state.best is not None:
        return candidates[log.state.best]
    if wanted.isdecimal() and int(wanted) in candidates:
        return candidates[int(wanted)]
    found = [
        c for c in candidates.values() if len(wanted) >= 6 and c.sha256 is not None and c.sha256.startswith(wanted)
    ]
    if found:
        return found[0]
    there = f"0 to {max(candidates)}" if candidates else "none"
    raise UsageError(f"run {log.run_id} has no candidate {wanted!r}; there are {there}, and `best`")


def detail(log: RunLog, candidate: CandidateState) -> CandidateDetail:
    """Collect it from the record."""
    report = next((c for c in build_report(log).candidates if c.index == candidate.index), None)
    if report is None or candidate.proposed is None:
        raise UsageError(f"candidate {candidate.index} was asked for, and no proposal has come")
    source = text_of(log, candidate.sha256)
    proposed = candidate.proposed
    parent = text_of(log, proposed.parent_sha256)
    against, own = _parent_name(log, report.parent), f"candidate {report.index}"
    return CandidateDetail(
        run=log.run_id,
        candidate=report,
        prompt=text_of(log, proposed.prompt),
        reply=text_of(log, proposed.reply),
        source=source,
        diff=diff_between(parent, source, against, own),
        diff_against=against if parent is not None else "nothing: a fresh start",
        tokens=proposed.cost.tokens,
        usd=proposed.cost.usd,
    )


def _parent_name(log: RunLog, index: int | None) -> str:
    """The text that a candidate was built on, so that a reader can look it up."""
    proposed = None if index is None else log.state.candidates[index].proposed
    return "a text that is no candidate of this run" if proposed is None else f"candidate {index} ({proposed.name})"


def detail_lines(found: CandidateDetail) -> list[str]:
    """For people."""
    candidate = found.candidate
    head = f"candidate {candidate.index} of run {found.run}: {candidate.name or '(none)'}"
    lines = [
        head,
        f"  from {candidate.origin or 'nowhere'}"
        + (f", built on candidate {candidate.parent}" if candidate.parent is not None else ""),
    ]
    if candidate.note:
        lines.append(f"  change: {candidate.note}")
    usd = "an unknown price" if found.usd is None else f"${found.usd:.4f}"
    lines.append(f"  cost: {found.tokens} tokens, {usd}, {candidate.gpu_seconds:.3g} device seconds")
    if candidate.forecast is not None and candidate.forecast.source != "none":
        why = f"; {candidate.forecast.why}" if candidate.forecast.speedup is not None else ""
        lines.append(f"  {wording.forecast_text(candidate.forecast)}{why}")
    if candidate.action is not None:
        lines.append(f"  decided: {candidate.action}: {candidate.action_why}")
    result = candidate.result
    if result is not None:
        lines.append(
            f"  result: {wording.measured(result)}" + (f" against {result.baseline}" if result.baseline else "")
        )
        if result.reason:
            lines += [f"    {line}" for line in result.reason.splitlines()]
        if result.speed_of_light is not None:
            light = result.speed_of_light
            lines.append(f"  speed of light: {light.fraction:.0%}, bound by {light.bound}")
        lines += [
            f"  workload {w.name}: {w.status}" + (f", error {w.error:.3g}" if w.error is not None else "")
            for w in result.workloads
        ]
        lines += [f"  check {c.name}: {'held' if c.passed else 'FAILED'} {c.detail}".rstrip() for c in result.checks]
        lines += [f"  note: {note}" for note in wording.notes(result)]
    done = "kept" if candidate.keep else "dropped" if candidate.judged else "waiting"
    verdict = "best of the run" if candidate.best else done
    lines.append(f"  {verdict}: {candidate.why}")
    return lines


def prompt_lines(found: CandidateDetail) -> list[str]:
    """Prompt and reply, where a model was asked."""
    lines: list[str] = []
    for title, text in (("prompt", found.prompt), ("reply", found.reply)):
        if text:
            lines += [f"--- {title} ---", *_unpacked(text).splitlines()]
    return lines


def _unpacked(text: str) -> str:
    """Messages as text, where the prompt was kept as a list of them."""
    try:
        messages = json.loads(text)
    except ValueError:
        return text
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return text
    return "\n".join(f"[{m.get('role', '')}]\n{m.get('content', '')}" for m in messages)


def text_of(log: RunLog, sha256: str | None) -> str | None:
    """A text of the record by its hash, or None if there is none."""
    if sha256 is None:
        return None
    try:
        return log.record.text(sha256)
    except KeyError:
        return None


def diff_between(before: str | None, after: str | None, name: str, own: str = "this candidate") -> str:
    """The unified difference from ``name`` to ``own``, empty if there are not two texts."""
    if before is None or after is None:
        return ""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, own, lineterm="")
    return "\n".join(lines)
