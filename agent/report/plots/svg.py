"""A small SVG canvas with scales and ticks: every text escaped, every colour a class that a style sheet decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

CHARACTER_PX = 6.6
"""Mean width of a character at the 12 px that labels have; only for keeping labels inside and apart."""


@dataclass(frozen=True)
class Scale:
    """From values to pixels, linear or logarithmic. ``start`` is where ``low`` lies."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; outside values are drawn at the edge."""
        inside = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values inside the scale, at most about ``most``."""
        return log_ticks(self.low, self.high, most) if self.log else linear_ticks(self.low, self.high, most)


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values for a logarithmic axis: the densest of several sets that is not too many."""
    sets = ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
    found: list[float] = []
    for mantissas in sets:
        found = [
            m * 10.0**e
            for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for m in mantissas
            if low * 0.999 <= m * 10.0**e <= high * 1.001
        ]
        if len(found) <= most:
            break
    if len(found) > most:
        found = found[:: math.ceil(len(found) / most)]
    return found if len(found) >= 2 else linear_ticks(low, high, min(most, 4))


def widened(values: Sequence[float], share: float = 0.06, log: bool = True) -> tuple[float, float]:
    """Limits of an axis with a little room around the values."""
    low, high = min(values), max(values)
    if log:
        room = max((high / low) ** share, 1.08)
        return low / room, high * room
    room = max((high - low) * share, 1e-9)
    return low - room, high + room


@dataclass
class Canvas:
    """Elements of one drawing, ``width`` x ``height`` pixels."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def add(self, tag: str, title: str = "", text: str = "", **attributes: object) -> None:
        """One element; ``cls`` is its class, underscores in names become dashes, numbers are rounded."""
        told = "".join(f" {_name(k)}={quoteattr(_value(v))}" for k, v in attributes.items() if v is not None)
        inside = (f"<title>{escape(title)}</title>" if title else "") + escape(text)
        self.parts.append(f"<{tag}{told}>{inside}</{tag}>" if inside else f"<{tag}{told}/>")

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str) -> None:
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, cls=cls)

    def path(self, points: Sequence[tuple[float, float]], cls: str) -> None:
        """A line through points."""
        if points:
            drawn = "L".join(f"{_value(x)} {_value(y)}" for x, y in points)
            self.add("path", d=f"M{drawn}", cls=cls)

    def text(self, x: float, y: float, text: str, cls: str = "label", anchor: str = "start") -> None:
        """A line of text; ``anchor`` is start, middle or end."""
        self.add("text", text=text, x=x, y=y, cls=cls, text_anchor=anchor)

    def link(self, target: str, inner: Canvas) -> None:
        """What ``inner`` holds, as a link to a place on the page."""
        self.parts.append(f"<a href={quoteattr(target)}>{''.join(inner.parts)}</a>")

    def fit(self, text: str, room_px: float) -> str:
        """The text cut to what fits into ``room_px``."""
        most = max(int(room_px / CHARACTER_PX), 4)
        return text if len(text) <= most else text[: most - 1] + "…"

    def svg(self, label: str, cls: str = "", style: str = "") -> str:
        """The whole drawing, with a text for those who cannot see it; ``style`` makes it stand alone."""
        size = f"0 0 {_value(self.width)} {_value(self.height)}"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(label)} '
            f'class={quoteattr(f"plot {cls}".strip())} viewBox="{size}"'
        )
        if style:
            head += f' width="{_value(self.width)}" height="{_value(self.height)}"'
        return f"{head}>{f'<style>{style}</style>' if style else ''}{''.join(self.parts)}</svg>"


def axes(
    canvas: Canvas, x: Scale, y: Scale, names: tuple[str, str], units: tuple[str, str] = ("", ""), most: int = 6
) -> None:
    """Grid, tick labels and names of both axes. The frame is where the scales begin and end; y grows upward."""
    for value in y.ticks(most):
        canvas.line(x.start, y(value), x.end, y(value), "grid")
        canvas.text(x.start - 8, y(value) + 4, tick_text(value, units[1]), "tick", "end")
    for value in x.ticks(most):
        canvas.line(x(value), y.start, x(value), y.start + 4, "axis")
        canvas.text(x(value), y.start + 18, tick_text(value, units[0]), "tick", "middle")
    canvas.line(x.start, y.start, x.end, y.start, "axis")
    canvas.text((x.start + x.end) / 2, y.start + 36, names[0], "name", "middle")
    canvas.text(x.start - 44, y.end - 12, names[1], "name")


def tick_text(value: float, unit: str = "") -> str:
    """A tick's label with few digits."""
    return f"{value:.3g}{unit}" if abs(value) < 1e4 else f"{value:,.0f}{unit}"


def _name(key: str) -> str:
    return {"cls": "class"}.get(key, key.replace("_", "-"))


def _value(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
