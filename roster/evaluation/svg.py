"""Plots as inline SVG: a frame with axes, and the marks inside it. Colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roster.evaluation.markup import Element, el

__all__ = ["Frame", "Scale", "legend", "legend_height", "marker", "number", "plot", "ticks"]

_FONT = 12
"""Pixels; a plot is drawn at its natural size and only ever shrunk."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from low to high onto pixels from start to end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values from low to high, a 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(place * step, 10) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """A tick label."""
    return f"{value:.3f}".rstrip("0").rstrip(".").replace("-", "−") if value else "0"


@dataclass(frozen=True, slots=True)
class Frame:
    """The area that marks are drawn in, in pixels, and the whole picture's size."""

    width: float
    height: float
    left: float = 52.0
    right: float = 12.0
    top: float = 30.0
    bottom: float = 44.0

    def x(self, low: float, high: float) -> Scale:
        """Values onto the frame's width."""
        return Scale(low, high, self.left, self.width - self.right)

    def y(self, low: float, high: float) -> Scale:
        """Values onto the frame's height, upwards."""
        return Scale(low, high, self.height - self.bottom, self.top)

    def title(self, text: str) -> Element:
        """The plot's heading."""
        return el("text", text, x=self.left, y=16, class_="title")

    def x_axis(self, at: Iterable[tuple[float, str]], label: str, *, grid: bool = False) -> Element:
        """Labels under the frame, at pixels."""
        base = self.height - self.bottom
        parts: list[Element] = []
        for x, shown in at:
            if grid:
                parts.append(el("line", x1=x, x2=x, y1=self.top, y2=base, class_="grid"))
            parts.append(el("text", shown, x=x, y=base + 16, class_="tick middle"))
        middle = (self.left + self.width - self.right) / 2
        parts.append(el("line", x1=self.left, x2=self.width - self.right, y1=base, y2=base, class_="axis"))
        parts.append(el("text", label, x=middle, y=base + 36, class_="label middle"))
        return el("g", *parts)

    def y_axis(self, at: Iterable[tuple[float, str]], label: str, *, grid: bool = True) -> Element:
        """Labels left of the frame, at pixels; a label on its side when there is one."""
        parts: list[Element] = []
        for y, shown in at:
            if grid:
                parts.append(el("line", x1=self.left, x2=self.width - self.right, y1=y, y2=y, class_="grid"))
            parts.append(el("text", shown, x=self.left - 7, y=y + 4, class_="tick end"))
        if label:
            middle = (self.top + self.height - self.bottom) / 2
            parts.append(
                el("text", label, x=0, y=0, transform=f"translate(13 {middle:.1f}) rotate(-90)", class_="label middle")
            )
        return el("g", *parts)


def plot(frame: Frame, title: str, told: str, *inside: Element) -> Element:
    """A picture with a title, and a text that tells what it shows to who cannot see it."""
    return el(
        "svg",
        el("title", title),
        el("desc", told),
        frame.title(title),
        *inside,
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        width=f"{frame.width:g}",
        height=f"{frame.height:g}",
        role="img",
        font_size=_FONT,
    )


def marker(shape: int, x: float, y: float, class_: str, told: str, size: float = 4.5) -> Element:
    """A filled mark, of a shape for each series, so that colour is never the only difference."""
    s, t = size, 1.4 * size
    outline = [
        None,
        f"M{x - s:.1f} {y - s:.1f}h{2 * s:g}v{2 * s:g}h{-2 * s:g}z",
        f"M{x:.1f} {y - 1.35 * s:.1f}l{1.3 * s:.2f} {2.3 * s:.2f}h{-2.6 * s:.2f}z",
        f"M{x:.1f} {y - t:.1f}l{t:.2f} {t:.2f}l{-t:.2f} {t:.2f}l{-t:.2f} {-t:.2f}z",
    ][shape % 4]
    if outline is None:
        return el("circle", el("title", told), cx=x, cy=y, r=size, class_=class_)
    return el("path", el("title", told), d=outline, class_=class_)


def legend(frame: Frame, names: Sequence[str], classes: Sequence[str], *, markers: bool, first: int = 0) -> Element:
    """Names beside their colour (and shape), between title and frame; `legend_height` says how much room it takes."""
    items: list[Element] = []
    for row, places in enumerate(_legend_lines(frame.width, names)):
        x, y = frame.left, 33.0 + row * _LEGEND_LINE
        for place in places:
            name, class_ = _cut(names[place]), classes[place]
            key = (
                marker(place + first, x + 5, y - 4, class_, name)
                if markers
                else el("rect", x=x, y=y - 10, width=11, height=11, class_=class_)
            )
            items += [key, el("text", name, x=x + 17, y=y, class_="tick")]
            x += _legend_width(name)
    return el("g", *items)


def legend_height(width: float, names: Sequence[str]) -> float:
    """Pixels that `legend` takes below the title."""
    return _LEGEND_LINE * len(_legend_lines(width, names))


_LEGEND_LINE = 18.0


def _cut(name: str) -> str:
    return name if len(name) <= 44 else f"…{name[-43:]}"


def _legend_width(name: str) -> float:
    return 36 + 6.3 * len(name)


def _legend_lines(width: float, names: Sequence[str]) -> list[list[int]]:
    """Places of the names, line by line."""
    lines: list[list[int]] = [[]]
    used = 60.0
    for place, name in enumerate(names):
        wide = _legend_width(_cut(name))
        if lines[-1] and used + wide > width:
            lines.append([])
            used = 60.0
        lines[-1].append(place)
        used += wide
    return lines
