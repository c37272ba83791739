"""The report of a run as Markdown."""

from __future__ import annotations

from tilecast.agent.report import wording
from tilecast.agent.report.build import CandidateReport, RunReport
from tilecast.agent.report.honesty import Honesty, panel_rows, panel_summary
from tilecast.sandbox.base import Incident


def markdown(report: RunReport) -> str:
    """The whole report. Text that others wrote (names, notes, reasons) is escaped."""
    parts = [
        f"# {escape(report.problem)}: run {report.run}",
        _headline(report),
        _about(report),
        "## Candidates\n\n" + _candidates(report),
    ]
    if report.languages:
        parts.append("## By language\n\n" + _languages(report))
    if report.honesty is not None:
        parts.append("## Forecasts against measurements\n\n" + _honesty(report.honesty))
    if report.incidents:
        parts.append("## What went wrong on the way\n\n" + _incidents(report.incidents))
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text as itself: no Markdown or HTML of its own, on one line."""
    flat = " ".join(text.split())
    for sign in "\\`*_[]<>|#":
        flat = flat.replace(sign, f"\\{sign}" if sign != "<" else "&lt;")
    return flat.replace("@", "@\u200b")


def _incidents(incidents: list[Incident]) -> str:
    """Evaluators lost, bundles and results refused; the first ones."""
    shown = [f"- {escape(incident.text)}" for incident in incidents[: wording.MOST_INCIDENTS]]
    more = len(incidents) - len(shown)
    return "\n".join([*shown, *([f"- and {more} more"] if more else [])])


def _headline(report: RunReport) -> str:
    if report.recorded:
        origin = f"\n\n> Every time in this report is **recorded** on {escape(report.device.name)}, not measured on this machine."
    else:
        origin = f"\n\nMeasured on {escape(report.device.name)}."
    best = report.best
    if best is None:
        return f"**No result**: {escape(report.notes[0] if report.notes else report.why)}.{origin}"
    times = (
        f"{wording.milliseconds(best.latency_ms.candidate)} against {wording.milliseconds(best.latency_ms.baseline)}"
    )
    against = report.baselines.fastest if report.baselines else "the baseline"
    tail = "" if report.improved else f" It is {wording.not_faster(best.verdict)}."
    apart = wording.apart(best.speedup, best.latency_ms)
    tail += f" ({apart[0].upper()}{apart[1:]}.)" if apart else ""
    return (
        f"**Best: candidate {report.best_index}, {wording.interval(best.speedup)} ({best.verdict})**, "
        f"{times} ({against}){wording.mark(best.recorded)}.{tail}{origin}"
    )


def _about(report: RunReport) -> str:
    settings = report.settings
    versions = ", ".join(f"{name} {value}" for name, value in report.device.versions.items())
    rows = [
        ("problem", f"`{report.problem_path}` ({report.problem_sha256[:12]})"),
        (
            "device",
            f"{escape(report.device.name)}{wording.mark(report.recorded)}"
            + (f"; {escape(versions)}" if versions else ""),
        ),
        ("proposals", escape(str(settings.get("model", "")))),
        ("forecaster", escape(str(settings.get("forecaster", "")))),
        ("seed", str(report.seed)),
        ("stopped by", f"{report.status}: {escape(report.why)}"),
        ("spent", wording.ledger(report.ledger)),
        ("paid calls", f"{report.calls} answered, {report.lost_calls} lost; {report.sessions} session(s)"),
    ]
    if report.baselines is not None:
        times = ", ".join(f"{n} {wording.milliseconds(ms)}" for n, ms in report.baselines.times_ms.items())
        rows.append(("baselines", times + wording.baselines_mark(report.baselines)))
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)


def _candidates(report: RunReport) -> str:
    counts = report.counts
    lines = [
        f"{counts.proposed} proposed, {counts.forecast} forecast, {counts.skipped_by_forecast} skipped by forecast, "
        f"{counts.measured} measured, {counts.rejected} rejected, {counts.not_recorded} not recorded.",
        "",
        "| # | candidate | parent | language | forecast | result | kept | why |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(candidate) for candidate in report.candidates),
    ]
    return "\n".join(lines)


def _row(candidate: CandidateReport) -> str:
    forecast = candidate.forecast
    told = "" if forecast is None or forecast.source == "none" else _forecast(candidate)
    result = wording.measured(candidate.result) if candidate.result else (candidate.action or "pending")
    name = escape(candidate.name or "(none)") + (f": {escape(candidate.note)}" if candidate.note else "")
    kept = "**best**" if candidate.best else ("yes" if candidate.keep else "no" if candidate.judged else "waiting")
    parent = "" if candidate.parent is None else str(candidate.parent)
    why = escape(candidate.why)[:200]
    return f"| {candidate.index} | {name} | {parent} | {candidate.language} | {told} | {result} | {kept} | {why} |"


def _forecast(candidate: CandidateReport) -> str:
    forecast = candidate.forecast
    assert forecast is not None
    text = wording.ratio(forecast.speedup.median) if forecast.speedup else ""
    return f"{text} (abstains)".strip() if forecast.abstain else text


def _languages(report: RunReport) -> str:
    lines = ["| language | proposed | measured | rejected | best speedup | best time |", "|---|---|---|---|---|---|"]
    for item in report.languages:
        best = "" if item.best_speedup is None else wording.ratio(item.best_speedup)
        time = "" if item.best_ms is None else wording.milliseconds(item.best_ms) + wording.mark(report.recorded)
        lines.append(f"| {item.language} | {item.proposed} | {item.measured} | {item.rejected} | {best} | {time} |")
    return "\n".join(lines)


def _honesty(found: Honesty) -> str:
    rows = panel_rows(found)
    table = "\n\n| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows) if rows else ""
    return panel_summary(found) + table
