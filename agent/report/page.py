"""The report of a run as one HTML file: no script, no network, nothing that a candidate wrote can act."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tilecast.agent.report import wording
from tilecast.agent.report.build import CandidateReport, RunReport
from tilecast.agent.report.honesty import panel_rows, panel_summary
from tilecast.agent.report.plots import calibration, position
from tilecast.agent.report.plots.svg import widened
from tilecast.agent.report.plots.trajectory import trajectory
from tilecast.agent.report.texts import CandidateText
from tilecast.sandbox.schema import Meter

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

WIDE_PX, NARROW_PX = 1080.0, 400.0
STRIP_LIMITS = (0.2, 10.0)
LEAST_COMPARED = 3
"""Below this many measured forecasts a plot of them says nothing."""


def html(report: RunReport, texts: Mapping[int, CandidateText]) -> str:
    """The page. Whatever others wrote is escaped, and characters that would change how text reads are spelled out."""
    page = _environment().get_template("report.html.j2")
    place = position.position_of(report)
    pairs = calibration.compared(report)
    return page.render(
        report=report,
        best=next((c for c in report.candidates if c.best), None),
        against=report.baselines.fastest if report.baselines else "the baseline",
        trajectory=_both(lambda width: trajectory(report, width)),
        place=None if isinstance(place, str) else place,
        why_no_place=place if isinstance(place, str) else "",
        roofline="" if isinstance(place, str) else _both(lambda width: position.roofline(place, width)),
        compared=len(pairs),
        scatter=_both(lambda width: calibration.scatter(report, width)) if len(pairs) >= LEAST_COMPARED else "",
        reliability=_both(lambda width: calibration.reliability(report, width)) if len(pairs) >= LEAST_COMPARED else "",
        honesty=panel_rows(report.honesty) if report.honesty else [],
        honesty_summary=panel_summary(report.honesty) if report.honesty else "There were no forecasts in this run.",
        meters=[(name, getattr(report.ledger, name)) for name in wording.METER_NAMES],
        setup_gpu_s=_setup_seconds(report),
        strips=_strips(report),
        texts=texts,
        groups=_groups(report),
    )


def visible(text: object) -> str:
    """The text without characters that hide or turn what follows: they are spelled out by their number."""
    return "".join(
        f"\\u{ord(c):04x}" if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t" else c
        for c in str(text)
    )


def group_of(candidate: CandidateReport) -> str:
    """Which of the table's groups a candidate is in: measured, rejected, skipped or dropped."""
    if candidate.result is not None:
        return "measured" if candidate.result.speedup is not None else "rejected"
    return "skipped" if candidate.action == "skip" else "dropped"


def outcome_word(candidate: CandidateReport) -> str:
    """Verdict or status of a candidate, or what was done with it instead."""
    if candidate.result is not None:
        return str(candidate.result.verdict or candidate.result.status)
    return {"skip": "skipped", "drop": "no candidate"}.get(candidate.action or "", "no result")


def _groups(report: RunReport) -> list[tuple[str, int]]:
    found = [group_of(c) for c in report.candidates]
    return [(name, found.count(name)) for name in ("measured", "rejected", "skipped", "dropped") if name in found]


def _both(draw: Callable[[float], str]) -> str:
    """One drawing for wide windows and one for narrow ones; the page shows the one that fits."""
    return draw(WIDE_PX) + draw(NARROW_PX)


def _strips(report: RunReport) -> dict[int, str]:
    values = [1.0]
    for candidate in report.candidates:
        if candidate.result is not None and candidate.result.speedup is not None:
            values.append(candidate.result.speedup.ratio)
        if candidate.forecast is not None and candidate.forecast.speedup is not None:
            values += [candidate.forecast.speedup.low, candidate.forecast.speedup.high]
    # A forecast may reach very far down; the figures beside it say how far, the picture shows where things happen.
    scale = widened([min(max(value, STRIP_LIMITS[0]), STRIP_LIMITS[1]) for value in values])
    return {c.index: calibration.row_strip(c, scale) for c in report.candidates}


def _setup_seconds(report: RunReport) -> float:
    spent = report.ledger.gpu_seconds.spent or 0.0
    return max(spent - sum(c.gpu_seconds for c in report.candidates), 0.0)


def _share(value: Meter) -> float | None:
    """Percent of the limit that is spent, at most 100; None without a limit."""
    if value.limit is None or value.spent is None:
        return None
    return 100.0 if value.limit <= 0 else min(100.0, 100.0 * value.spent / value.limit)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    import jinja2

    def load(name: str) -> str:
        return files("tilecast.agent.report").joinpath(name).read_text(encoding="utf-8")

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    environment.globals.update(wording=wording, group_of=group_of, outcome_word=outcome_word, share=_share)
    environment.filters["drawing"] = _drawing
    return environment


def _finalized(value: Any) -> Any:
    """Plain text becomes visible text; what is markup already stays."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _drawing(svg: str) -> Markup:
    """An SVG of ours, whose texts were escaped when it was drawn."""
    from markupsafe import Markup

    return Markup(visible(svg))
