"""Forecasts against what was measured: intervals on a diagonal, and how often the likeliest bin was right."""

from __future__ import annotations

from collections.abc import Sequence

from tilecast.agent.report import wording
from tilecast.agent.report.build import CandidateReport, RunReport
from tilecast.agent.report.plots.svg import Canvas, Scale, axes, widened
from tilecast.sandbox.bins import bin_of
from tilecast.sandbox.schema import Forecast

LEFT, RIGHT, TOP, BOTTOM = 56.0, 16.0, 30.0, 46.0
GROUPS = 10


def compared(report: RunReport) -> list[tuple[CandidateReport, Forecast, float]]:
    """Candidates with a forecast of the speedup and a measured one, which is last."""
    return [
        (c, c.forecast, c.result.speedup.ratio)
        for c in report.candidates
        if c.forecast is not None
        and c.forecast.speedup is not None
        and c.result is not None
        and c.result.speedup is not None
    ]


def scatter(report: RunReport, width: float) -> str:
    """Forecast speedup with its 80 % interval against the measured one; on the diagonal the forecast was right."""
    pairs = compared(report)
    height = 340.0
    canvas = Canvas(width, height)
    values = [v for _, f, m in pairs for v in (m, f.speedup.median if f.speedup else m)]
    low, high = widened([*values, 1.0], 0.08)
    x = Scale(low, high, LEFT, width - RIGHT, log=True)
    y = Scale(low, high, height - BOTTOM, TOP, log=True)
    axes(canvas, x, y, ("measured speedup" + wording.mark(report.recorded), "forecast speedup"), ("x", "x"), 5)
    canvas.line(x(low), y(low), x(high), y(high), "diagonal")
    for candidate, forecast, measured in pairs:
        told = forecast.speedup
        if told is None:
            continue
        px = x(measured)
        canvas.line(px, y(told.low), px, y(told.high), "forecast-bar")
        inner = Canvas(0, 0)
        title = (
            f"{candidate.index} {candidate.name}: {wording.forecast_text(forecast)}; measured {wording.ratio(measured)}"
        )
        title += wording.mark(report.recorded)
        cls = "forecast-dot abstain" if forecast.abstain else "forecast-dot"
        inner.add("circle", title=title, cx=px, cy=y(told.median), r=4.0, cls=cls)
        canvas.link(f"#c{candidate.index}", inner)
    return canvas.svg(
        f"Forecast against measured speedup of {len(pairs)} candidates; the table of candidates has every figure.",
        "wide" if width > 500 else "narrow",
    )


def reliability_groups(pairs: Sequence[tuple[CandidateReport, Forecast, float]]) -> list[tuple[float, float, int]]:
    """Mean confidence, share that was right, and count, for each tenth of the largest probability that occurs."""
    groups: dict[int, list[tuple[float, bool]]] = {}
    for _, forecast, measured in pairs:
        if not forecast.bins:
            continue
        p = [b.p for b in forecast.bins]
        top = max(p)
        groups.setdefault(min(int(top * GROUPS), GROUPS - 1), []).append((top, p.index(top) == bin_of(measured)))
    return [
        (sum(t for t, _ in g) / len(g), sum(hit for _, hit in g) / len(g), len(g)) for _, g in sorted(groups.items())
    ]


def reliability(report: RunReport, width: float) -> str:
    """How sure the forecaster was of its likeliest bin, against how often that bin came."""
    groups = reliability_groups(compared(report))
    height = 340.0
    canvas = Canvas(width, height)
    x = Scale(0.0, 1.0, LEFT, width - RIGHT)
    y = Scale(0.0, 1.0, height - BOTTOM, TOP)
    axes(canvas, x, y, ("stated chance of the likeliest speedup bin", "how often it came"), most=5)
    canvas.line(x(0), y(0), x(1), y(1), "diagonal")
    most = max((n for _, _, n in groups), default=1)
    canvas.path([(x(p), y(hit)) for p, hit, _ in groups], "forecast-line")
    for p, hit, count in groups:
        title = f"{count} forecasts said {p:.0%} on average; it came in {hit:.0%}"
        canvas.add("circle", title=title, cx=x(p), cy=y(hit), r=4 + 6 * (count / most) ** 0.5, cls="forecast-dot")
        canvas.text(x(p), y(hit) - 14, str(count), "tick", "middle")
    words = "; ".join(f"stated {p:.0%}, came {hit:.0%} of {n}" for p, hit, n in groups)
    return canvas.svg(f"Reliability of the likeliest bin: {words}.", "wide" if width > 500 else "narrow")


def row_strip(candidate: CandidateReport, scale: tuple[float, float]) -> str:
    """The forecast's interval and the measured interval of one candidate on one small axis, for a row of the table."""
    told = candidate.forecast.speedup if candidate.forecast is not None else None
    came = candidate.result.speedup if candidate.result is not None else None
    if told is None and came is None:
        return ""
    canvas = Canvas(130.0, 22.0)
    x = Scale(*scale, start=4.0, end=126.0, log=True)
    canvas.line(x(1.0), 2, x(1.0), 20, "axis")
    words = []
    if told is not None and candidate.forecast is not None:
        canvas.line(x(told.low), 6, x(told.high), 6, "forecast-bar")
        canvas.add("circle", cx=x(told.median), cy=6, r=3, cls="forecast-dot")
        words.append(wording.forecast_text(candidate.forecast))
    if came is not None and candidate.result is not None:
        canvas.line(x(came.low), 16, x(came.high), 16, f"measured-bar {candidate.result.verdict}")
        canvas.add("circle", cx=x(came.ratio), cy=16, r=3.5, cls=f"dot {candidate.result.verdict}")
        words.append(f"measured {wording.measured(candidate.result)}")
    return canvas.svg("; ".join(words), "strip")
