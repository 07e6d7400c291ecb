"""A bar chart as SVG, with a line from the worst to the best figure. Pure, without a library."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

WIDTH, LABEL, RIGHT, BAR, STEP, TOP = 760, 270, 110, 16, 26, 34
OURS, OTHERS, LINE = "#2a6fbb", "#a8b0b8", "#333333"


def chart(
    title: str, bars: Sequence[tuple[str, Sequence[float], bool]], number: Callable[[float], str]
) -> str:
    """Bars of (label, figures, whether it is ours), each as long as the median."""
    most = max(max(values) for _, values, _ in bars) or 1.0
    scale = (WIDTH - LABEL - RIGHT) / most
    height = TOP + STEP * len(bars) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-size="14">{escape(title)}</text>',
    ]
    for place, (label, values, own) in enumerate(bars):
        y, median = TOP + STEP * place, statistics.median(values)
        middle = y + BAR / 2
        worst, best = LABEL + scale * min(values), LABEL + scale * max(values)
        text = f'y="{middle + 4:.0f}">'
        lines += [
            f'<text x="{LABEL - 8}" text-anchor="end" {text}{escape(label)}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{scale * median:.1f}" height="{BAR}" '
            f'fill="{OURS if own else OTHERS}"/>',
            f'<path d="M{worst:.1f} {middle}H{best:.1f}" stroke="{LINE}"/>',
            f'<text x="{best + 6:.1f}" {text}{number(median)}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])
