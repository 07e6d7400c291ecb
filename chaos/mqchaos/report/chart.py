"""The timeline: throughput, latencies, leaders and the dead, and faults across all. Pure SVG.

It is drawn twice, wide and narrow, since text in a drawing shrinks with it: the page shows the one
that fits its reader's screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dledger.verdict.page import Markup
from mqchaos.faults.kinds import KINDS
from mqchaos.limits import FAULTS_NAMED_MAX, GAP_WIDTH_MIN, SILENT_S
from mqchaos.report.drawing import (
    Scale,
    area,
    box,
    curve,
    duration,
    line,
    nice_step,
    svg,
    word,
)
from mqchaos.report.measure import Span, Timeline, spans
from mqchaos.report.pauses import Mark

QUANTILES: Final = (0.5, 0.99, 1.0)
LATENCY_LEAST_S, LATENCY_MOST_S = 1e-4, 100.0


@dataclass(frozen=True, slots=True)
class Format:
    """How large a drawing is, and what it has room for. In the drawing's units."""

    style: str
    width: float
    left: float
    plot_height: float
    latency_height: float
    ticks_x: int
    named_max: int
    label_width: float = 125
    name_width: float = 28
    right: float = 16
    top: float = 46
    lane_height: float = 20
    lane_step: float = 28

    @property
    def plot_end(self) -> float:
        """Height, in units of the drawing, at which the throughput ends."""
        return self.top + self.plot_height

    @property
    def latency_top(self) -> float:
        """Height, in units of the drawing, at which the latencies begin."""
        return self.plot_end + 42

    @property
    def lanes_top(self) -> float:
        """Height, in units of the drawing, at which the nodes' lanes begin."""
        return self.latency_top + self.latency_height + 26


WIDE: Final = Format("wide", 1080, 64, 210, 110, 10, FAULTS_NAMED_MAX)
NARROW: Final = Format("narrow", 400, 56, 150, 90, 4, 0, right=10)


def draw(found: Timeline, nodes: Sequence[str], form: Format = WIDE) -> Markup:
    """The whole chart as one <svg> element."""
    return _Chart(found, nodes, form).whole()


class _Chart:
    def __init__(self, found: Timeline, nodes: Sequence[str], form: Format) -> None:
        self._found, self._nodes, self._form = found, nodes, form
        self._slots, self._width_s = found.slots.all, found.slots.width_s
        self._bottom = form.lanes_top + form.lane_step * len(nodes)
        self._x = Scale(0.0, max(found.end_s, 0.1), form.left, form.width - form.right)
        most = max((max(slot.acked, slot.delivered) for slot in self._slots), default=0)
        peak = most / self._width_s
        self._step = nice_step(peak, 4)
        full = max(self._step * (int(peak / self._step) + 1), 1.0)
        self._rate = Scale(0.0, full, form.plot_end, form.top)
        lowest = form.latency_top + form.latency_height
        self._latency = Scale(*self._latency_range(), lowest, form.latency_top, True)

    def whole(self) -> Markup:
        caption = "Throughput, latencies, leaders and faults over time"
        parts = [
            *self._axes(),
            *self._gaps(),
            *self._throughput(),
            *self._latencies(),
            *self._lanes(),
            *self._faults(),
            *self._captions(),
        ]
        return svg(self._form.width, self._bottom + 30, caption, parts, self._form.style)

    def _latency_range(self) -> tuple[float, float]:
        """Whole powers of ten around what there is."""
        some = [slot.latencies.quantiles(QUANTILES) for slot in self._slots]
        lows, highs = [each[0] for each in some if each], [each[-1] for each in some if each]
        least, most = LATENCY_LEAST_S, LATENCY_LEAST_S * 10
        while lows and least * 10 <= min(lows) and least * 10 < LATENCY_MOST_S:
            least *= 10
        while (highs and most < max(highs) and most < LATENCY_MOST_S) or most <= least:
            most *= 10
        return least, most

    def _axes(self) -> Iterator[Markup]:
        form = self._form
        right = form.width - form.right
        for k in range(round(self._rate.most / self._step) + 1):
            y = self._rate.at(k * self._step)
            yield line(form.left, y, right, y, "grid")
            yield word(form.left - 8, y + 4, f"{k * self._step:,.0f}", "tick end")
        latency = self._latency.least
        while latency <= self._latency.most * 1.01:
            y = self._latency.at(latency)
            yield line(form.left, y, right, y, "grid")
            yield word(form.left - 8, y + 4, duration(latency).replace(".00", ""), "tick end")
            latency *= 10
        seconds = nice_step(self._x.most, form.ticks_x)
        for k in range(int(self._x.most / seconds) + 1):
            x = self._x.at(k * seconds)
            yield line(x, self._bottom, x, self._bottom + 5, "grid")
            yield word(x, self._bottom + 20, f"{k * seconds:g} s", "tick middle")

    def _captions(self) -> Iterator[Markup]:
        """The captions of the plots, above the lines of faults."""
        yield word(0, self._form.top - 14, "messages/s", "tick halo")
        yield word(0, self._form.latency_top - 15, "time until acknowledged", "tick halo")

    def _middle(self, number: int) -> float:
        return self._x.at((number + 0.5) * self._width_s)

    def _throughput(self) -> Iterator[Markup]:
        def points(counts: Sequence[int]) -> list[tuple[float, float]]:
            rates = [self._rate.at(count / self._width_s) for count in counts]
            return [(self._middle(k), y) for k, y in enumerate(rates)]

        acked = points([slot.acked for slot in self._slots])
        yield area(acked, [(x, self._rate.at(0)) for x, _ in acked], "area")
        yield curve(acked, "line acked", "acknowledged per second")
        delivered = points([slot.delivered for slot in self._slots])
        yield curve(delivered, "line consumed", "consumed per second")

    def _latencies(self) -> Iterator[Markup]:
        """Lines that break where nothing was acknowledged."""
        some: list[tuple[float, list[float]]] = []
        last = 0
        for number, slot in enumerate(self._slots):
            if slot.latencies.bins:
                if (number - last) * self._width_s > SILENT_S:
                    yield from self._latency_lines(some)
                    some = []
                some.append((self._middle(number), slot.latencies.quantiles(QUANTILES)))
                last = number
        yield from self._latency_lines(some)

    def _latency_lines(self, some: Sequence[tuple[float, list[float]]]) -> Iterator[Markup]:
        median, most, longest = (
            [(x, self._latency.at(values[k])) for x, values in some] for k in range(3)
        )
        yield area(most, median, "band")
        yield curve(median, "line p50", "half were acknowledged within")
        yield curve(most, "line p99", "99 of 100 were acknowledged within")
        yield curve(longest, "line longest", "the longest")

    def _gaps(self) -> Iterator[Markup]:
        """The pauses that the senders felt: each one's length beside its fault, and a band."""
        form, gaps = self._form, self._found.gaps
        for gap in gaps:
            caption = f"longest pause {duration(gap.length_s)}"
            if len(gaps) <= form.named_max:
                yield word(self._x.at(gap.fault.at_s) + 6, form.top + 14, caption, "tick halo")
            x = self._x.at(gap.began_s)
            width = self._x.at(gap.began_s + gap.length_s) - x
            if width >= GAP_WIDTH_MIN:
                yield box(x, form.top, width, form.plot_height, "gap", caption)

    def _lanes(self) -> Iterator[Markup]:
        form, found = self._form, spans(self._nodes, self._found)
        for lane, node in enumerate(self._nodes):
            y = form.lanes_top + form.lane_step * lane
            yield word(form.left - 8, y + 14, node, "name end")
            for span in found:
                if span.node == node:
                    yield from self._span(span, y)

    def _span(self, span: Span, y: float) -> Iterator[Markup]:
        x, end = self._x.at(span.began_s), self._x.at(span.ended_s)
        term = f" of term {span.term}" if span.term else ""
        caption = f"{span.node}: {span.state}{term}, {span.began_s:.1f} s to {span.ended_s:.1f} s"
        style = f"span {span.state}"
        yield box(x, y, max(1.0, end - x), self._form.lane_height, style, caption)
        for words in (f"{span.state}{term}", span.state, f"{span.term}" if span.term else ""):
            if words and end - x > len(words) * 6.8 + 10:
                yield word(x + 7, y + 14, words, f"in {span.state}")
                break

    def _faults(self) -> Iterator[Markup]:
        """A line down through everything for each fault, and a label where there is room for one.

        A few faults are named in full, in two rows if need be; of many, those injected are named by
        node.
        """
        faults, form = self._found.faults, self._form
        few = len(faults) <= form.named_max
        rows = [float("-inf")] * (2 if few else 1)
        for fault in faults:
            x = self._x.at(fault.at_s)
            caption = f"{fault.what} {fault.node} · {fault.at_s:.1f} s"
            phase = "injected" if fault.what in KINDS else "healed"
            row = next((k for k, end in enumerate(rows) if x >= end), len(rows))
            top = 5 + 14 * row
            yield line(x, top, x, self._bottom, f"fault {phase}", caption)
            if row < len(rows) and (few or fault.what in KINDS):
                rows[row] = x + (form.label_width if few else form.name_width)
                yield self._label(fault, x, top, phase, caption if few else fault.node)

    def _label(self, fault: Mark, x: float, top: float, phase: str, caption: str) -> Markup:
        room = self._form.width - self._form.right - x
        at_edge = room < len(caption) * 6.8
        anchor, shift = ("end", -5) if at_edge else ("", 5)
        return word(x + shift, top + 9, caption, f"label {phase} {anchor}")
