"""Where baselines and the best candidate lie under the device's roofline (doi 10.1145/1498765.1498785)."""

from __future__ import annotations

from dataclasses import dataclass

from tilecast.agent.report import wording
from tilecast.agent.report.build import RunReport
from tilecast.agent.report.plots.svg import Canvas, Scale, axes
from tilecast.sandbox.hardware import Hardware, find_hardware
from tilecast.sandbox.problem import WorkloadFacts
from tilecast.sandbox.roofline import Floor, floor_of

LEFT, RIGHT, TOP, BOTTOM = 56.0, 16.0, 30.0, 46.0
ROW = 40.0


@dataclass(frozen=True)
class Timed:
    """A time that is shown under the roofline; ``kind`` is its class."""

    name: str
    ms: float
    kind: str


@dataclass(frozen=True)
class Position:
    """What the picture needs: the timed workload, the device and its limit, and the times."""

    workload: WorkloadFacts
    hardware: Hardware
    floor: Floor
    times: list[Timed]
    recorded: bool

    @property
    def peak_tflops(self) -> float:
        """The peak by which the floor was reckoned."""
        floats = [t.dtype for t in self.workload.inputs if "float" in t.dtype] or ["float32"]
        return max(self.hardware.matrix_tflops(dtype) for dtype in floats)


def position_of(report: RunReport) -> Position | str:
    """The position of a run, or why there is none."""
    if report.facts is None:
        return "the problem's traffic and arithmetic are not known"
    hardware = find_hardware(report.device.name)
    if hardware is None:
        return f"there is no data sheet for {report.device.name}"
    try:
        workload = report.facts.workload(str(report.settings.get("options", {}).get("workload", "full")))
    except KeyError as missing:
        return str(missing.args[0])
    times = [Timed(name, ms, "base") for name, ms in report.baselines.times_ms.items()] if report.baselines else []
    first = next((c for c in report.candidates if c.name == "start" and c.result and c.result.latency_ms), None)
    if first is not None and first.result is not None and first.result.latency_ms is not None and not first.best:
        times.append(Timed("start", first.result.latency_ms.candidate, "start"))
    if report.best is not None:
        times.append(Timed(f"best ({report.best_index})", report.best.latency_ms.candidate, "best"))
    if not times:
        return "nothing was timed"
    return Position(workload, hardware, floor_of(workload, hardware), times, report.recorded)


def roofline(position: Position, width: float) -> str:
    """The roofline with its points where the reference does matrix arithmetic; else bandwidth as bars."""
    return _roof(position, width) if position.workload.flops > 0 else _bars(position, width)


def _roof(position: Position, width: float) -> str:
    work, hardware = position.workload, position.hardware
    height = 360.0
    canvas = Canvas(width, height)
    intensity = work.flops / work.min_bytes
    peak = position.peak_tflops
    ridge = peak * 1e3 / hardware.bandwidth_gbs
    speeds = [work.flops / t.ms / 1e9 for t in position.times]
    low_x, high_x = min(intensity, ridge) / 8, max(intensity, ridge) * 8
    x = Scale(low_x, high_x, LEFT, width - RIGHT, log=True)
    y = Scale(min([*speeds, hardware.bandwidth_gbs * low_x / 1e3]) / 1.5, peak * 1.6, height - BOTTOM, TOP, log=True)
    axes(canvas, x, y, ("arithmetic intensity, flop per byte", "TFLOP/s"), most=5)
    canvas.path([(x(low_x), y(hardware.bandwidth_gbs * low_x / 1e3)), (x(ridge), y(peak)), (x.end, y(peak))], "roof")
    canvas.text(x.end, y(peak) - 6, f"{peak:.0f} TFLOP/s (data sheet)", "tick", "end")
    canvas.text(x(low_x) + 6, TOP + 12, f"slope: {hardware.bandwidth_gbs:,.0f} GB/s (data sheet)", "tick")
    if hardware.measured_bandwidth_gbs:
        slope = hardware.measured_bandwidth_gbs / 1e3
        canvas.path([(x(low_x), y(slope * low_x)), (x(peak / slope), y(peak))], "roof measured")
    canvas.line(x(intensity), y.start, x(intensity), y.end, "diagonal")
    taken: list[float] = []
    for timed, speed in sorted(zip(position.times, speeds, strict=True), key=lambda item: -item[1]):
        title = f"{timed.name}: {wording.milliseconds(timed.ms)}{wording.mark(position.recorded)}, {speed:.4g} TFLOP/s"
        canvas.add("circle", title=title, cx=x(intensity), cy=y(speed), r=6, cls=f"dot {timed.kind}")
        label_y = y(speed) + 4
        while any(abs(label_y - other) < 14 for other in taken):
            label_y += 14
        taken.append(label_y)
        right = x(intensity) < width * 0.55
        at = x(intensity) + (12 if right else -12)
        text = f"{timed.name} {wording.milliseconds(timed.ms)}{wording.mark(position.recorded)}"
        canvas.text(at, label_y, text, "label", "start" if right else "end")
    return canvas.svg(_words(position), "wide" if width > 500 else "narrow")


def _bars(position: Position, width: float) -> str:
    """Compulsory bytes over time, as bars against the data sheet's bandwidth and the measured one."""
    times = sorted(position.times, key=lambda t: -t.ms)
    height = TOP + ROW * len(times) + BOTTOM + 16
    canvas = Canvas(width, height)
    peak, measured = position.hardware.bandwidth_gbs, position.hardware.measured_bandwidth_gbs
    speeds = [position.workload.min_bytes / t.ms / 1e6 for t in times]
    x = Scale(0.0, max([peak * 1.04, *speeds]), 8.0, width - RIGHT)
    bottom = TOP + 14 + ROW * len(times)
    for value in x.ticks(5):
        canvas.line(x(value), TOP + 10, x(value), bottom, "grid")
        canvas.text(x(value), bottom + 18, f"{value:,.0f}", "tick", "middle")
    limits: list[tuple[float | None, str, str, float]] = [
        (peak, "data sheet", "roof", 0.0),
        (measured, "measured copy", "roof measured", 14.0),
    ]
    for limit, name, cls, level in limits:
        if limit is not None:
            canvas.line(x(limit), TOP + 10, x(limit), bottom, cls)
            canvas.text(x(limit) + 3, TOP - 10 + level, f"{name} {limit:,.0f} GB/s", "tick", "end")
    for index, (timed, speed) in enumerate(zip(times, speeds, strict=True)):
        top = TOP + 14 + ROW * index
        text = f"{timed.name}: {wording.milliseconds(timed.ms)}{wording.mark(position.recorded)}, {speed:,.0f} GB/s"
        canvas.text(x(0), top + 12, canvas.fit(text, width - 16), "label on-bar")
        canvas.add("rect", title=text, x=x(0), y=top + 17, width=x(speed) - x(0), height=14, cls=f"bar {timed.kind}")
    canvas.text((x.start + x.end) / 2, bottom + 38, "compulsory bytes over time, GB/s", "name", "middle")
    return canvas.svg(_words(position), "wide" if width > 500 else "narrow")


def _words(position: Position) -> str:
    told = "; ".join(
        f"{t.name} {wording.milliseconds(t.ms)}, {position.floor.ms / t.ms:.0%} of the speed of light"
        for t in position.times
    )
    mark = wording.mark(position.recorded)
    return f"Position under the roofline of {position.hardware.key}: {told}{mark}. Bound by {position.floor.bound}."
