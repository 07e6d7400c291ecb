"""The parts that all drawings share: scales, lines, words. Pure SVG, as text.

Colours are CSS variables of the page (`dledger.verdict.page`), so that one drawing serves light and
dark. Nothing is fetched and no script runs; what a bar or a line means in numbers is its tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dledger.verdict.page import Markup, joined, text

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scale:
    """From values between `least` and `most` to the drawing's units between `start` and `end`."""

    least: float
    most: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Where a value is; values outside are at the nearer edge."""
        least, most = self.least, self.most
        value = min(max(value, least), most)
        if self.logarithmic:
            least, most, value = math.log(least), math.log(most), math.log(value)
        return self.start + (self.end - self.start) * (value - least) / ((most - least) or 1.0)


def nice_step(largest: float, count: int) -> float:
    """A step of 1, 2 or 5 times a power of ten, so that about `count` of them reach `largest`."""
    power = 1e-3
    while power * 1000 < largest / count:
        power *= 10
    for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if power * factor * count >= largest:
            return power * factor
    return largest


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.01:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def svg(width: float, height: float, caption: str, parts: Iterable[Markup], style: str) -> Markup:
    """A drawing of this size as an SVG element; `caption` is its label for screen readers."""
    inner = joined(parts, "\n")
    return Markup(
        f'<svg class="{style}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{text(caption)}">\n{inner}\n</svg>'
    )


def word(x: float, y: float, caption: str, style: str) -> Markup:
    """A text element whose anchor is at (x, y), with `caption` escaped."""
    return Markup(f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{text(caption)}</text>')


def line(x1: float, y1: float, x2: float, y2: float, style: str, caption: str = "") -> Markup:
    """A straight line, with a tooltip if there is something to tell."""
    title = f"<title>{text(caption)}</title>" if caption else ""
    return Markup(
        f'<line class="{style}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}">'
        f"{title}</line>"
    )


def box(x: float, y: float, width: float, height: float, style: str, caption: str) -> Markup:
    """A filled rectangle with a tooltip."""
    return Markup(
        f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}"><title>{text(caption)}</title></rect>'
    )


def curve(points: Sequence[Point], style: str, caption: str = "") -> Markup:
    """A line from point to point."""
    title = f"<title>{text(caption)}</title>" if caption else ""
    return Markup(f'<path class="{style}" d="{_path(points)}">{title}</path>' if points else "")


def area(upper: Sequence[Point], lower: Sequence[Point], style: str) -> Markup:
    """The area between two lines."""
    outline = [*upper, *reversed(lower)]
    return Markup(f'<path class="{style}" d="{_path(outline)}Z"/>' if upper else "")


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
