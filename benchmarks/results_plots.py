"""Pictures of docs/results.md: every time against the roofline, and the search without and with the forecaster."""

from __future__ import annotations

from typing import Any

from results_data import Entry

from tilecast.agent.report.plots.svg import Canvas, Scale

COLOURS = (
    ("--bg", "#ffffff", "#0d1117"),
    ("--fg", "#1b1e23", "#e7e9ec"),
    ("--muted", "#5a616b", "#a2aab5"),
    ("--grid", "#e6e8eb", "#2b3138"),
    ("--best", "#0b57d0", "#7db2ff"),
    ("--plain", "#0b7a6f", "#45c9b8"),
    ("--base", "#8a6d3b", "#d8b36a"),
)
LIGHT = "".join(f"{name}:{light};" for name, light, _ in COLOURS)
DARK = "".join(f"{name}:{dark};" for name, _, dark in COLOURS)
STYLE = (
    f"svg{{{LIGHT}}}@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}"
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans','DejaVu Sans',sans-serif;fill:var(--fg)}"
    ".bg{fill:var(--bg)}.tick,.small{fill:var(--muted)}.name,.title{font-weight:600}.grid{stroke:var(--grid)}"
    ".axis{stroke:var(--muted)}.aim{stroke:var(--fg);stroke-dasharray:5 4}.range{stroke:var(--grid);stroke-width:6}"
    ".best{fill:var(--best)}.plain{fill:var(--bg);stroke:var(--plain);stroke-width:2.5}.base{fill:var(--base)}"
    ".with{fill:none;stroke:var(--best);stroke-width:2.5}"
    ".without{fill:none;stroke:var(--muted);stroke-width:2;stroke-dasharray:5 3}"
)
ROW, LEFT = 30.0, 190.0


def roofline(found: list[Entry]) -> str:
    """Each time as a share of the least possible: the plain kernel, the best, and the fastest baseline."""
    width, top = 860.0, 64.0
    canvas = Canvas(width, top + ROW * len(found) + 44)
    canvas.add("rect", x=0, y=0, width=width, height=canvas.height, cls="bg")
    x = Scale(0.0, 1.0, LEFT, width - 24)
    bottom = top + ROW * len(found)
    for tenth in range(0, 11, 2):
        canvas.line(x(tenth / 10), top - 8, x(tenth / 10), bottom, "grid")
        canvas.text(x(tenth / 10), bottom + 18, f"{tenth * 10} %", "tick", "middle")
    canvas.text(
        (x.start + x.end) / 2, bottom + 38, "least possible time by the data sheet over measured time", "name", "middle"
    )
    _copy_line(canvas, found, x, top - 8, bottom)
    _legend(canvas)
    for number, entry in enumerate(found):
        middle = top + ROW * number + ROW / 2
        canvas.text(LEFT - 10, middle + 4, f"{entry.name}, {entry.language}", "name", "end")
        places = _places(entry)
        canvas.line(x(min(p for _, p, _ in places)), middle, x(max(p for _, p, _ in places)), middle, "range")
        for cls, share, title in places:
            if cls == "base":
                canvas.add("rect", title=title, x=x(share) - 4, y=middle - 8, width=8, height=16, cls=cls)
            else:
                canvas.add("circle", title=title, cx=x(share), cy=middle, r=6, cls=cls)
    label = "; ".join(f"{e.name} in {e.language}: " + ", ".join(t for _, _, t in _places(e)) for e in found)
    return canvas.svg(f"Recorded times against the roofline. {label}", style=STYLE)


def _copy_line(canvas: Canvas, found: list[Entry], x: Scale, top: float, bottom: float) -> None:
    hardware = next((e.hardware for e in found if e.hardware is not None), None)
    if hardware is not None and hardware.measured_bandwidth_gbs:
        at = x(hardware.measured_bandwidth_gbs / hardware.bandwidth_gbs)
        canvas.line(at, top, at, bottom, "aim")
        canvas.text(
            at, top - 6, f"measured copy bandwidth, {hardware.measured_bandwidth_gbs:,.0f} GB/s", "small", "end"
        )


def _places(entry: Entry) -> list[tuple[str, float, str]]:
    """Class, share of the speed of light and words of each time of an entry."""
    light = entry.best_measured.speed_of_light
    assert light is not None and entry.best.ms is not None
    least = light.fraction * entry.best.ms
    times = [
        ("base", f"{name}", ms) for name, ms in entry.baselines_ms.items() if ms == min(entry.baselines_ms.values())
    ]
    if entry.plain is not None and entry.plain.ms is not None:
        times.append(("plain", "plain", entry.plain.ms))
    times.append(("best", "best", entry.best.ms))
    return [(cls, least / ms, f"{name} {ms:.4g} ms (recorded), {least / ms:.0%}") for cls, name, ms in times]


def _legend(canvas: Canvas) -> None:
    at = LEFT
    for cls, words in (("best", "best found"), ("plain", "plain kernel"), ("base", "fastest baseline")):
        if cls == "base":
            canvas.add("rect", x=at, y=12, width=8, height=16, cls=cls)
        else:
            canvas.add("circle", cx=at + 4, cy=20, r=6, cls=cls)
        canvas.text(at + 16, 24, words)
        at += 130


def search(found: list[tuple[Entry, dict[str, Any]]]) -> str:
    """Best so far against evaluations, a small panel an entry: mean over the seeds, without and with the forecaster."""
    columns, wide, tall, top = 3, 280.0, 190.0, 46.0
    rows = -(-len(found) // columns)
    canvas = Canvas(columns * wide + 20, top + rows * tall + 8)
    canvas.add("rect", x=0, y=0, width=canvas.width, height=canvas.height, cls="bg")
    for at, cls, words in ((20.0, "with", "with the forecaster"), (190.0, "without", "without")):
        canvas.line(at, 20, at + 28, 20, cls)
        canvas.text(at + 36, 24, words)
    canvas.text(canvas.width - 12, 24, "best speed so far over the best there is, by evaluation", "small", "end")
    for number, (entry, figures) in enumerate(found):
        _panel(canvas, entry, figures, (10 + wide * (number % columns), top + tall * (number // columns)), (wide, tall))
    return canvas.svg("Search replayed over the records: " + "; ".join(_told(e, f) for e, f in found), style=STYLE)


def _panel(
    canvas: Canvas, entry: Entry, figures: dict[str, Any], corner: tuple[float, float], size: tuple[float, float]
) -> None:
    left, top = corner
    curves = figures["curve"]
    lowest = min(min(curve) for curve in curves.values())
    floor = max(0.0, min(0.9, int(lowest * 10) / 10))
    x = Scale(1.0, float(max(len(curves["with"]), 2)), left + 44, left + size[0] - 14)
    y = Scale(floor, 1.0, top + size[1] - 34, top + 26)
    canvas.text(left + 44, top + 14, f"{entry.name}, {entry.language}", "title")
    for value in y.ticks(4):
        canvas.line(x.start, y(value), x.end, y(value), "grid")
        canvas.text(x.start - 6, y(value) + 4, f"{value:.0%}", "tick", "end")
    for value in x.ticks(5):
        canvas.text(x(value), y.start + 16, f"{value:.0f}", "tick", "middle")
    for name in ("without", "with"):
        canvas.path([(x(float(i)), y(share)) for i, share in enumerate(curves[name], 1)], name)


def _told(entry: Entry, figures: dict[str, Any]) -> str:
    evals = figures["evals"]
    return f"{entry.name} in {entry.language}: {evals['without']:.3g} evaluations without, {evals['with']:.3g} with"
