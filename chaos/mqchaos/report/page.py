"""The report of a run as one HTML page: the verdict first, then how it came to it."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.verdict.form import headline
from dledger.verdict.page import (
    NOTHING,
    Markup,
    card,
    command,
    document,
    joined,
    table,
    tag,
    text,
    tiles,
)
from dledger.verdict.sections import judged, violations, worst
from mqchaos.report.chart import NARROW, draw
from mqchaos.report.drawing import duration
from mqchaos.report.measure import Timeline
from mqchaos.report.strips import distributions
from mqchaos.report.verdict import Report

_KEYS = (
    ("acked", "acknowledged"),
    ("consumed", "consumed"),
    ("gapkey", "nothing acknowledged"),
    ("p50", "half within"),
    ("p99", "99 of 100 within"),
    ("longest", "the longest"),
    ("leader", "leader"),
    ("follower", "follower"),
    ("down", "down or stopped"),
    ("isolated", "cut off"),
)


def render(
    report: Report,
    rows: Sequence[tuple[str, str, bool]],
    found: Timeline,
    nodes: Sequence[str],
    events: Sequence[tuple[float, str]],
) -> str:
    """The page of a report as HTML. `rows`: name, value, whether it is as it should be; `events`:
    what happened."""
    heading = _heading(report)
    strips = distributions(found, report.pauses_factor if report.pauses_judged else None)
    body = [
        _found(report),
        _tiles(report),
        _timeline(found, nodes),
        card("How long it took", *_times(report, strips)),
        card("What was judged", judged(report.properties), *_notes(report)),
        violations(report.properties, report.replay),
        tag(
            "div",
            card("Counts", _counts(rows)),
            card("What happened", _events(events)),
            class_="columns",
        ),
        card("Run it again", command(report.replay)),
    ]
    title = f"{report.scenario}: {heading.lower()}"
    return document(title, heading, _summary(report), joined(body), good=report.holds)


def _heading(report: Report) -> str:
    if report.holds or not all(each.holds for each in report.properties):
        return headline(report.properties)
    return "Nothing was lost, but not all was as it should be"


def _summary(report: Report) -> Markup:
    counts = report.counts
    lost = "none of them was lost" if not counts.lost else f"{counts.lost:,} of them were lost"
    faults = f"{len(report.gaps)} fault{'' if len(report.gaps) == 1 else 's'}"
    summary = (
        f"{counts.acknowledged:,} messages were acknowledged in {report.seconds:.0f} s and "
        f"{faults}; {lost}. "
    )
    ran = f"Scenario {report.scenario}, seed {report.seed}."
    return tag("p", text(summary), tag("span", text(ran), class_="soft"))


def _found(report: Report) -> Markup:
    """All that is wrong, in short."""
    if report.holds:
        return NOTHING
    items = [tag("li", text(finding)) for finding in report.findings]
    listed = worst(report.properties)
    others = tag("ul", *items, class_="worst") if items else NOTHING
    return tag("section", listed, others, class_="card violated")


def _tiles(report: Report) -> Markup:
    counts, pause_s = report.counts, report.gap_worst_s
    longest = "no fault" if pause_s is None else duration(pause_s)
    return tiles(
        [
            (f"{counts.acknowledged:,}", "sends acknowledged", True),
            (f"{counts.lost:,}", "of them lost", counts.lost == 0),
            (f"{counts.duplicated:,}", "stored twice", counts.duplicated == 0),
            (f"{report.exceptions:,}", "exceptions to handle", report.exceptions == 0),
            (longest, "longest pause in sending", True),
        ]
    )


def _timeline(found: Timeline, nodes: Sequence[str]) -> Markup:
    keys = [joined([tag("i", class_=style), text(words)]) for style, words in _KEYS]
    caption = tag("figcaption", *(tag("span", key) for key in keys))
    return tag("figure", draw(found, nodes), draw(found, nodes, NARROW), caption)


def _times(report: Report, strips: Markup) -> list[Markup]:
    """Latencies, then pauses and failovers."""
    parts = []
    if report.latency is not None:
        shares = ("half of all", "90 of 100", "99 of 100", "999 of 1,000", "all")
        quantiles = zip(shares, report.latency.quantiles_s, strict=True)
        times = "; ".join(f"{share} within {duration(value)}" for share, value in quantiles)
        parts.append(tag("p", text(f"Sends were acknowledged: {times}.")))
    if strips:
        about = "Pauses between acknowledged sends, and the time until another was seen to lead"
        bounds = "; the red line is the longest that may be." if report.pauses_judged else "."
        parts += [tag("p", text(about + bounds), class_="soft"), strips]
    return parts


def _notes(report: Report) -> list[Markup]:
    return [tag("p", text(note), class_="soft") for note in report.notes]


def _counts(rows: Sequence[tuple[str, str, bool]]) -> Markup:
    return table(
        ("", ""),
        [
            (text(name), text(value) if good else tag("b", text(value), class_="bad"))
            for name, value, good in rows
        ],
        numbers=(1,),
    )


def _events(events: Sequence[tuple[float, str]]) -> Markup:
    return table(("", ""), [(text(f"{at_s:.2f} s"), text(words)) for at_s, words in events])
