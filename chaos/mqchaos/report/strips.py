"""How long it took each time, as a distribution: a strip for each kind of fault. Pure SVG.

Each time is a mark of its own, on an axis of powers of ten that all strips share, so that one slow
failover among five hundred is seen, and where most of them are, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from dledger.verdict.page import Markup, table, text
from mqchaos.faults.kinds import KINDS
from mqchaos.report.drawing import Scale, duration, line, svg
from mqchaos.report.measure import Timeline, failovers

LEAST_S, MOST_S = 0.005, 50.0
_WIDTH: Final = 300.0
_HEIGHT: Final = 26.0
_TICKS: Final = (0.01, 0.1, 1.0, 10.0)


def distributions(found: Timeline, factor: float | None = 1.0) -> Markup:
    """A table: how long sends paused and until another led, by kind of fault.

    `factor`: of the bounds of the kinds, which the run is judged by; None if it is not.
    """
    rows: list[tuple[str, str, list[float], float | None]] = []
    for kind in KINDS.values():
        pauses = [gap.length_s for gap in found.gaps if gap.fault.what == kind.name]
        bound_s = None if factor is None else factor * kind.gap_worst_s_max
        rows.append((kind.name, "sends paused", pauses, bound_s))
        leads = [each.led_after_s for each in failovers(found) if each.fault == kind.name]
        rows.append((kind.name, "until another led", leads, None))
    shown = [_row(*row) for row in rows if row[2]]
    head = (
        "Fault",
        "",
        "Times",
        "Median",
        "90 of 100",
        "Worst",
        "Each (lines at 10 ms, 100 ms, 1 s, 10 s)",
    )
    return table(head, shown, style="strips", numbers=range(2, 6)) if shown else Markup("")


def _row(fault: str, what: str, times_s: list[float], bound_s: float | None) -> list[Markup]:
    ordered = sorted(times_s)
    most = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return [
        text(fault),
        text(what),
        text(f"{len(ordered):,}"),
        text(duration(median(ordered))),
        text(duration(most)),
        text(duration(ordered[-1])),
        _strip(ordered, bound_s),
    ]


def _strip(times_s: Sequence[float], bound_s: float | None) -> Markup:
    caption = f"{len(times_s)} times, {duration(times_s[0])} to {duration(times_s[-1])}"
    return svg(_WIDTH, _HEIGHT, caption, _marks(times_s, bound_s), "strip")


def _marks(times_s: Sequence[float], bound_s: float | None) -> Iterator[Markup]:
    x = Scale(LEAST_S, MOST_S, 4, _WIDTH - 4, logarithmic=True)
    yield line(4, _HEIGHT - 3, _WIDTH - 4, _HEIGHT - 3, "grid")
    for tick in _TICKS:
        yield line(x.at(tick), 2, x.at(tick), _HEIGHT - 3, "grid", duration(tick))
    if bound_s is not None:
        yield line(x.at(bound_s), 1, x.at(bound_s), _HEIGHT - 1, "bound", f"at most {bound_s} s")
    for each in times_s:
        yield line(x.at(each), 7, x.at(each), _HEIGHT - 5, "each", duration(each))
    middle = x.at(median(times_s))
    yield line(middle, 3, middle, _HEIGHT - 2, "median", f"median {duration(median(times_s))}")
