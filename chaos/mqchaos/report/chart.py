"""The timeline chart: throughput above, leaders and the dead below, faults across both. Pure SVG.

Colours are CSS variables of the page (`mqchaos.report.report`), so that one drawing serves light
and dark. Nothing is fetched and no script runs; what a bar or a line means in numbers is its
tooltip.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mqchaos.faults.kinds import KINDS
from mqchaos.limits import FAULTS_TOLD_MAX, GAP_WIDTH_MIN
from mqchaos.report.measure import Gap, Mark, Series, Span, Timeline, bucket_width, series, spans

WIDTH = 1080
LEFT, RIGHT = 64, 20
LABELS_TOP, PLOT_TOP, PLOT_HEIGHT = 14, 46, 250
LANES_TOP = PLOT_TOP + PLOT_HEIGHT + 34
LANE_HEIGHT, LANE_STEP = 20, 28
TICKS_X, TICKS_Y = 10, 4
LABEL_WIDTH, NAME_WIDTH = 125, 28


class _Scale:
    """From seconds and messages per second to the drawing's units."""

    def __init__(self, end_s: float, rate_max: float) -> None:
        self.end_s = max(end_s, 0.1)
        self.rate_max = max(rate_max, 1.0)

    def x(self, at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at_s / self.end_s, 0.0), 1.0)

    def y(self, rate: float) -> float:
        return PLOT_TOP + PLOT_HEIGHT * (1 - min(rate / self.rate_max, 1.0))


def draw(found: Timeline, nodes: Sequence[str]) -> str:
    """The whole chart as one <svg> element."""
    width_s = bucket_width(found.end_s)
    acked = series(found.acked, found.end_s, width_s)
    delivered = series(found.delivered, found.end_s, width_s)
    peak = max([*acked.rates, *delivered.rates], default=0.0)
    step = nice_step(peak, TICKS_Y)
    scale = _Scale(found.end_s, step * (int(peak / step) + 1))
    height = LANES_TOP + LANE_STEP * len(nodes) + 30
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Throughput, leaders and faults over time">',
        *_axes(scale, step, len(nodes)),
        *_gaps(found.gaps(), scale),
        _area(acked, scale),
        _line(acked, scale, "acked", "acknowledged"),
        _line(delivered, scale, "consumed", "consumed"),
        *_lanes(spans(nodes, found), nodes, scale),
        *_faults(found.faults, scale, LANES_TOP + LANE_STEP * len(nodes)),
        "</svg>",
    ]
    return "\n".join(parts)


def nice_step(largest: float, count: int) -> float:
    """A step of 1, 2 or 5 times a power of ten, so that about `count` of them reach `largest`."""
    power = 1e-3
    while power * 1000 < largest / count:
        power *= 10
    for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if power * factor * count >= largest:
            return power * factor
    return largest


def _axes(scale: _Scale, step: float, lanes: int) -> list[str]:
    bottom = LANES_TOP + LANE_STEP * lanes
    parts = []
    for k in range(int(scale.rate_max / step) + 1):
        y = scale.y(k * step)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(LEFT - 8, y + 4, f"{k * step:,.0f}", "tick end"))
    parts.append(_text(0, PLOT_TOP - 14, "messages/s", "tick"))
    seconds = nice_step(scale.end_s, TICKS_X)
    for k in range(int(scale.end_s / seconds) + 1):
        x = scale.x(k * seconds)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
        )
        parts.append(_text(x, bottom + 20, f"{k * seconds:g} s", "tick middle"))
    return parts


def _points(data: Series, scale: _Scale) -> list[tuple[float, float]]:
    """The middle of each bucket."""
    return [(scale.x((k + 0.5) * data.width_s), scale.y(rate)) for k, rate in enumerate(data.rates)]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _line(data: Series, scale: _Scale, style: str, title: str) -> str:
    path = _path(_points(data, scale))
    return f'<path class="line {style}" d="{path}"><title>{title} per second</title></path>'


def _area(data: Series, scale: _Scale) -> str:
    points = _points(data, scale)
    floor = scale.y(0)
    outline = [(points[0][0], floor), *points, (points[-1][0], floor)]
    return f'<path class="area" d="{_path(outline)}Z"/>'


def _gaps(gaps: Sequence[Gap], scale: _Scale) -> list[str]:
    """The pauses that the senders felt: each one's length beside its fault, a band if it shows."""
    parts = []
    for gap in gaps:
        told = f"longest pause {gap.length_s * 1000:.0f} ms"
        if len(gaps) <= FAULTS_TOLD_MAX:
            parts.append(_text(scale.x(gap.fault.at_s) + 6, PLOT_TOP + 14, told, "tick"))
        x = scale.x(gap.began_s)
        width = scale.x(gap.began_s + gap.length_s) - x
        if width >= GAP_WIDTH_MIN:
            parts.append(
                f'<rect class="gap" x="{x:.1f}" y="{PLOT_TOP}" width="{width:.1f}" '
                f'height="{PLOT_HEIGHT}"><title>{told}</title></rect>'
            )
    return parts


def _lanes(found: Sequence[Span], nodes: Sequence[str], scale: _Scale) -> list[str]:
    parts = []
    for lane, node in enumerate(nodes):
        y = LANES_TOP + LANE_STEP * lane
        parts.append(_text(LEFT - 8, y + 14, node, "name end"))
        for span in (span for span in found if span.node == node):
            x, end = scale.x(span.began_s), scale.x(span.ended_s)
            term = f" of term {span.term}" if span.term else ""
            told = f"{node}: {span.state}{term}, {span.began_s:.1f} s to {span.ended_s:.1f} s"
            parts.append(
                f'<rect class="span {span.state}" x="{x:.1f}" y="{y}" rx="3" '
                f'width="{max(1.0, end - x):.1f}" height="{LANE_HEIGHT}">'
                f"<title>{told}</title></rect>"
            )
            if end - x > len(span.state + term) * 6.5:
                parts.append(_text(x + 7, y + 14, f"{span.state}{term}", f"in {span.state}"))
    return parts


def _faults(faults: Sequence[Mark], scale: _Scale, bottom: float) -> list[str]:
    """A line down through everything for each fault, and a label where there is room for one.

    A few faults are told in full, in two rows if need be; of many, those injected are named by
    node.
    """
    parts = []
    few = len(faults) <= FAULTS_TOLD_MAX
    rows = [float("-inf")] * (2 if few else 1)
    for fault in faults:
        x = scale.x(fault.at_s)
        told = f"{fault.what} {fault.node} · {fault.at_s:.1f} s"
        phase = "injected" if fault.what in KINDS else "healed"
        row = next((k for k, end in enumerate(rows) if x >= end), len(rows))
        top = LABELS_TOP - 9 + 14 * row
        parts.append(
            f'<line class="fault {phase}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" '
            f'y2="{bottom}"><title>{told}</title></line>'
        )
        if row < len(rows) and (few or fault.what in KINDS):
            rows[row] = x + (LABEL_WIDTH if few else NAME_WIDTH)
            at_edge = few and x > WIDTH - RIGHT - LABEL_WIDTH
            anchor, shift = ("end", -5) if at_edge else ("", 5)
            text = told if few else fault.node
            parts.append(_text(x + shift, top + 9, text, f"label {phase} {anchor}"))
    return parts


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
