"""The comment: what a reviewer reads in ten seconds, and folded what they look up. Made from the document alone."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field

from tilecast.agent.ci.inert import block, code, summary_code
from tilecast.agent.ci.schema import CiReport, KernelReport, Ratio
from tilecast.agent.report.wording import milliseconds
from tilecast.sandbox.schema import EvaluationStatus

MARKER = "<!-- tilecast-ci:1 -->"
_STATE, _STATE_END = "<!-- tilecast-ci-state:", " -->"
MOST_CHARACTERS = 60_000
"""GitHub takes 65,536."""
_MOST_REMEMBERED = 200
_WORDS = {
    "slower": "**slower**",
    "faster": "faster",
    "incorrect": "**incorrect**",
    "same": "unchanged",
    "undecided": "no change shown",
    "added": "new",
    "removed": "removed",
    "not_compared": "not compared",
}


@dataclass(frozen=True)
class Memory:
    """What the comment said before: kernels with the verdict that was reported, and those that were fixed since."""

    reported: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)


def remembered(body: str) -> Memory:
    """The memory in a comment of our own; empty where it has none."""
    _, found, rest = body.partition(_STATE)
    try:
        values = json.loads(base64.b64decode(rest.partition(_STATE_END)[0], validate=True)) if found else {}
        tables = [values.get(name, {}) for name in ("reported", "fixed")]
        clean_tables = [{str(k): str(v) for k, v in list(table.items())[:_MOST_REMEMBERED]} for table in tables]
    except (ValueError, AttributeError, binascii.Error):
        return Memory()
    return Memory(*clean_tables)


def comment(report: CiReport, before: Memory | None, untrusted: bool = False) -> str | None:
    """The comment's text; None to stay silent (nothing to report, and nothing was).

    Args:
        report: the comparison.
        before: what the existing comment said; None if there is none.
        untrusted: the document came from a run that the pull request's author controls.
    """
    if not report.reported and before is None:
        return None
    memory, unsure = _memory(report, before or Memory())
    parts = [MARKER, _hidden(memory), f"### tilecast: {_headline(report, memory, unsure)}"]
    if not report.reported and not unsure:
        parts.append(f"At {code(report.head[:12])} there is nothing to report any more.")
    if untrusted:
        parts.append(
            "> From an unprivileged run that the author of this pull request controls: its figures are claims."
        )
    parts += _body(report, report.reported, memory, unsure)
    return _within_limit(parts)


def summary(report: CiReport) -> str:
    """The whole for a job's summary, a terminal or another forge: every kernel that the change reaches, reported or not."""
    if report.skipped:
        return f"### tilecast: skipped\n\n{code(report.skipped, 300)}\n"
    headline = _headline(report, Memory(), {})
    if not report.kernels:
        told = f"{report.files} changed file(s) reach none of the {report.known} kernel(s) looked after."
        return "\n\n".join(["### tilecast: no kernel is affected", told, *_notes(report), _foot(report)]) + "\n"
    return _within_limit([f"### tilecast: {headline}", *_body(report, report.kernels, Memory(), {})]) + "\n"


def _memory(report: CiReport, before: Memory) -> tuple[Memory, dict[str, str]]:
    """What to remember now, and kernels whose earlier verdict can be neither kept nor taken back."""
    now = {kernel.name: kernel for kernel in report.kernels}
    reported = {kernel.name: kernel.verdict for kernel in report.reported}
    fixed, unsure = {}, {}
    for name, verdict in {**before.fixed, **before.reported}.items():
        if name in reported:
            continue
        if name in before.reported and name in now and not _settled(now[name]):
            unsure[name] = verdict
        else:
            fixed[name] = verdict
    return Memory({**unsure, **reported}, fixed), unsure


def _settled(kernel: KernelReport) -> bool:
    return kernel.verdict == "removed" or (kernel.verdict in ("same", "undecided") and kernel.basis != "none")


def _hidden(memory: Memory) -> str:
    text = json.dumps({"reported": memory.reported, "fixed": memory.fixed}, sort_keys=True)
    return f"{_STATE}{base64.b64encode(text.encode('utf-8', 'replace')).decode()}{_STATE_END}"


def _headline(report: CiReport, memory: Memory, unsure: dict[str, str]) -> str:
    counts = [
        (sum(kernel.verdict == verdict for kernel in report.reported), verdict)
        for verdict in ("incorrect", "slower", "faster")
    ]
    told = [f"{count} kernel{'s' if count > 1 else ''} {verdict}" for count, verdict in counts if count]
    if told:
        only = {kernel.basis for kernel in report.reported} == {"forecast"}
        return ", ".join(told) + (" (forecast, not measured)" if only else "")
    if unsure:
        return "an earlier finding was not checked again"
    return "fixed" if memory.fixed else "nothing to report"


def _body(report: CiReport, kernels: list[KernelReport], memory: Memory, unsure: dict[str, str]) -> list[str]:
    parts = []
    if any(kernel.basis == "forecast" for kernel in kernels):
        parts.append(
            f"> **Nothing was measured** for rows marked *forecast*: they are predictions for "
            f"{code(report.target or 'the target GPU')} from source and compiler, with their confidence."
        )
    if kernels:
        parts.append(_table(kernels))
    for name, verdict in sorted(memory.fixed.items()):
        parts.append(f"Fixed: {code(name)}, which an earlier push made {_said(verdict)}.")
    for name, verdict in sorted(unsure.items()):
        parts.append(f"Not checked again at this commit: {code(name)}, which an earlier push made {_said(verdict)}.")
    parts += [_details(kernel) for kernel in kernels if kernel.verdict not in ("removed",)]
    return [*parts, *_notes(report), _foot(report)]


def _said(verdict: str) -> str:
    return verdict if verdict in ("slower", "faster", "incorrect") else "different"


def _table(kernels: list[KernelReport]) -> str:
    rows = [
        f"| {code(kernel.name, 60)} | {_word(kernel)} | {_speed(kernel)} | {_correct(kernel)} | {_basis(kernel)} |"
        for kernel in kernels
    ]
    head = "| kernel | verdict | speedup over base [interval] | correct | basis |\n|---|---|---|---|---|\n"
    return head + "\n".join(rows)


def _word(kernel: KernelReport) -> str:
    refused = kernel.verdict == "incorrect" and kernel.basis == "forecast"
    return "**does not compile**" if refused else _WORDS[kernel.verdict]


def _speed(kernel: KernelReport) -> str:
    if kernel.speedup is not None:
        return _ratio(kernel.speedup)
    expected = kernel.forecast.speedup if kernel.forecast is not None else None
    if kernel.basis == "forecast" and expected is not None and kernel.verdict in ("slower", "faster"):
        return f"{_ratio(expected)} (80 %)"
    return ""


def _ratio(found: Ratio) -> str:
    return f"{found.ratio:.3g}× [{found.low:.3g}, {found.high:.3g}]"


def _correct(kernel: KernelReport) -> str:
    if kernel.status is None:
        return "not checked"
    return "yes" if kernel.status is EvaluationStatus.PASSED else f"no: {kernel.status}"


def _basis(kernel: KernelReport) -> str:
    if kernel.basis == "forecast" and kernel.forecast is not None and kernel.forecast.p_faster is not None:
        sure = max(kernel.forecast.p_faster, 1 - kernel.forecast.p_faster)
        return f"forecast, {sure:.0%} sure" if kernel.verdict in ("slower", "faster") else "forecast"
    return {"none": "", "recorded": "recorded"}.get(kernel.basis, kernel.basis) + (" (kept)" if kernel.cached else "")


def _details(kernel: KernelReport) -> str:
    lines = [f"- candidate: {code(kernel.candidate, 200)}, problem {code(kernel.problem, 200)}"]
    if kernel.causes:
        word = {"slower": "likely cause", "faster": "what likely helped"}.get(kernel.verdict, "what differs")
        lines.append(f"- {word}: {'; '.join(code(cause, 160) for cause in kernel.causes)}")
    if kernel.latency_ms is not None:
        lines.append(
            f"- time: {milliseconds(kernel.latency_ms.base)} → {milliseconds(kernel.latency_ms.head)} (medians)"
        )
    if kernel.limits:
        lines.append(f"- what limits it now: {code(kernel.limits, 300)}")
    if kernel.base_status is not None:
        lines.append(f"- base: {kernel.base_status}")
    if kernel.forecast is not None and (kernel.forecast.speedup is not None or kernel.forecast.why):
        expected = kernel.forecast.speedup
        told = _ratio(expected) + (" (abstains)" if kernel.forecast.abstains else "") if expected else "abstains"
        lines.append(
            f"- forecast for {code(kernel.forecast.target or 'no GPU')}: {told}; {code(kernel.forecast.why, 200)}"
        )
    if kernel.device:
        versions = ", ".join(f"{name} {value}" for name, value in kernel.versions.items()) or "versions unknown"
        how = f"{kernel.samples} samples, " if kernel.samples else ""
        where = code(kernel.sandbox or "sandbox unknown")
        lines.append(f"- device: {code(kernel.device)}; {how}{code(versions, 300)}; {where}")
    if kernel.files:
        lines.append(f"- reached through: {', '.join(code(path, 200) for path in kernel.files)}")
    text = f"<details><summary>{summary_code(kernel.name, 60)}</summary>\n\n" + "\n".join(lines) + "\n"
    if kernel.why:
        text += "\n" + block(kernel.why, "text", 2_000) + "\n"
    return text + _suggestion(kernel) + "\n</details>"


def _suggestion(kernel: KernelReport) -> str:
    found = kernel.suggestion
    if found is None:
        return ""
    how = "recorded" if found.recorded else "measured"
    told = (
        f"\n**Suggestion** by {code(found.model)}: {_ratio(found.speedup)} over this version, verified and {how}; "
        f"spent {code(found.spent, 200)}; patch {code(found.file)} among the run's artifacts (run {code(found.run)}).\n"
    )
    return told + (f"\n{block(found.patch, 'diff', 8_000)}\n" if found.patch else "")


def _notes(report: CiReport) -> list[str]:
    return ["\n".join(f"- {code(note, 400)}" for note in report.notes)] if report.notes else []


def _foot(report: CiReport) -> str:
    gate = "" if report.fail_on == "never" else f" · fails on {report.fail_on}"
    where = f" · measured on {code(report.device)}" if report.device else ""
    return (
        f"<sub>{code(report.base[:12])} → {code(report.head[:12])}{where}{gate} · tilecast {code(report.version)}</sub>"
    )


def _within_limit(parts: list[str]) -> str:
    """All parts that fit; the folded ones go first, and it is said."""
    kept = list(parts)
    while len("\n\n".join(kept)) > MOST_CHARACTERS:
        folded = [part for part in kept if part.startswith("<details>")]
        if not folded:
            return "\n\n".join(kept)[:MOST_CHARACTERS]
        kept.remove(max(folded, key=len))
        if "(details left out)" not in kept:
            kept.append("(details left out)")
    return "\n\n".join(kept)
