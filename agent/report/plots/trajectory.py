"""The search as a picture: every evaluated candidate a mark by its status, and the best so far against evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilecast.agent.report import wording
from tilecast.agent.report.build import CandidateReport, RunReport
from tilecast.agent.report.plots.svg import Canvas, Scale, axes, widened

LEFT, RIGHT, TOP = 56.0, 16.0, 30.0
STRIP = 24.0
MARK = 4.5


def trajectory(report: RunReport, width: float) -> str:
    """Speedup over the baseline against the number of the evaluation; the rejected and the skipped in strips below."""
    evaluated = sorted((c for c in report.candidates if c.evaluation is not None), key=lambda c: c.evaluation or 0)
    height = 380.0
    canvas = Canvas(width, height)
    last = max((c.evaluation or 0 for c in evaluated), default=1)
    x = Scale(0.0, float(max(last, 2)) + 0.5, LEFT, width - RIGHT)
    y = Scale(*_limits(report, evaluated), start=height - 96, end=TOP, log=True)
    axes(canvas, x, y, ("", "speedup over the baseline" + wording.mark(report.recorded)), ("", "x"))
    _baselines(canvas, report, x, y)
    _best_line(canvas, evaluated, x, y)
    # The best is drawn last, so that nothing lies over it.
    for candidate in sorted(evaluated, key=lambda c: c.best):
        _mark(canvas, candidate, x, y)
    _strips(canvas, report, x, y.start + 26)
    canvas.text((x.start + x.end) / 2, height - 4, "evaluations", "name", "middle")
    return canvas.svg(_words(report, evaluated), "wide" if width > 500 else "narrow")


def _limits(report: RunReport, evaluated: Sequence[CandidateReport]) -> tuple[float, float]:
    values = [c.result.speedup.ratio for c in evaluated if c.result is not None and c.result.speedup is not None]
    return widened([*values, 1.0])


def _baselines(canvas: Canvas, report: RunReport, x: Scale, y: Scale) -> None:
    found = report.baselines
    if found is None:
        return
    fastest = found.times_ms.get(found.fastest)
    taken: list[float] = []
    for name, ms in sorted(found.times_ms.items(), key=lambda item: item[1]):
        speed = 1.0 if fastest is None else fastest / ms
        if not y.low <= speed <= y.high:
            continue
        canvas.line(x.start, y(speed), x.end, y(speed), "baseline" if name == found.fastest else "baseline other")
        if all(abs(y(speed) - other) > 14 for other in taken):
            text = f"{name} {wording.milliseconds(ms)}{wording.mark(found.recorded)}"
            canvas.text(x.end, y(speed) - 5, canvas.fit(text, x.end - x.start), "baseline-name", "end")
            taken.append(y(speed))


def _best_line(canvas: Canvas, evaluated: Sequence[CandidateReport], x: Scale, y: Scale) -> None:
    points: list[tuple[float, float]] = []
    best: float | None = None
    for candidate in evaluated:
        speedup = candidate.result.speedup if candidate.result is not None else None
        if speedup is not None and candidate.led:
            if best is not None:
                points.append((x(candidate.evaluation or 0), y(best)))
            best = speedup.ratio
            points.append((x(candidate.evaluation or 0), y(best)))
    if best is not None:
        canvas.path([*points, (x.end, y(best))], "best-line")


def _mark(canvas: Canvas, candidate: CandidateReport, x: Scale, y: Scale) -> None:
    result, at = candidate.result, float(candidate.evaluation or 0)
    if result is None or result.speedup is None:
        return
    inner = Canvas(0, 0)
    title = f"{candidate.index} {candidate.name}: {wording.measured(result)}"
    px, py = x(at), y(result.speedup.ratio)
    cls = "dot best" if candidate.best else f"dot {result.verdict}"
    if candidate.action == "audit":
        inner.add("path", title=title, d=f"M{px:.1f} {py - 6:.1f}l6 6l-6 6l-6 -6z", cls=f"{cls} audit")
    else:
        inner.add("circle", title=title, cx=px, cy=py, r=7.0 if candidate.best else MARK, cls=cls)
    canvas.link(f"#c{candidate.index}", inner)


def _strips(canvas: Canvas, report: RunReport, x: Scale, top: float) -> None:
    """Rejected candidates at their evaluation; skipped ones where they were skipped, as bars by how many."""
    rejected = [c for c in report.candidates if c.evaluation and (c.result is None or c.result.speedup is None)]
    canvas.text(x.start - 8, top + 14, "rejected", "tick", "end")
    for candidate in rejected:
        px, py = x(float(candidate.evaluation or 0)), top + 10
        inner = Canvas(0, 0)
        status = candidate.result.status if candidate.result is not None else "no result"
        cross = f"M{px - 4:.1f} {py - 4:.1f}l8 8m0 -8l-8 8"
        inner.add("path", title=f"{candidate.index} {candidate.name}: {status}", d=cross, cls="cross")
        canvas.link(f"#c{candidate.index}", inner)
    canvas.text(x.start - 8, top + STRIP + 14, "skipped", "tick", "end")
    skipped, done = Counter[int](), 0
    for candidate in report.candidates:
        done = max(done, candidate.evaluation or 0)
        if candidate.action == "skip":
            skipped[done] += 1
    most = max(skipped.values(), default=1)
    for place, count in skipped.items():
        tall = 4 + (STRIP - 10) * count / most
        title = f"{count} skipped on a forecast after {place} evaluations"
        left = min(x(place + 0.25), x.end - 4)
        canvas.add("rect", title=title, x=left, y=top + STRIP + 18 - tall, width=4, height=tall, cls="skip")
    canvas.line(x.start, top + STRIP + 18, x.end, top + STRIP + 18, "axis")


def _words(report: RunReport, evaluated: Sequence[CandidateReport]) -> str:
    timed = [c for c in evaluated if c.result is not None and c.result.speedup is not None]
    told = f"{len(evaluated)} evaluations, {len(timed)} of them timed, {report.counts.skipped_by_forecast} candidates skipped"
    best = (
        f"; the best is {wording.interval(report.best.speedup)}"
        if report.best is not None
        else "; nothing was measured"
    )
    return f"Search trajectory: {told}{best}{wording.mark(report.recorded)}. The table of candidates has every figure."
