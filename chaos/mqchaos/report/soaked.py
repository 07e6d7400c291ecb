"""A soak on one page: what was done how often, under which load, and what came of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from dledger.verdict.page import Markup, card, document, joined, table, tag, text, tiles
from mqchaos.limits import RUNS_SHOWN_MAX, SOAK_COUNT_MAX
from mqchaos.report.drawing import duration

PAGE: Final = "soak.html"
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=SOAK_COUNT_MAX)]


class RunLine(msgspec.Struct, frozen=True):
    """A run of a soak; a line of soak.jsonl. `checked`: by property, how much it judged."""

    seed: int
    workload: str
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    sent: Count
    acknowledged: Count
    faults: dict[str, Count]
    gap_worst_s: float | None
    checked: dict[str, Count]
    signs: list[str]
    summary: str = msgspec.field(name="told")


def render(lines: Sequence[RunLine], titles: Mapping[str, str]) -> str:
    """The page: the verdict, then faults by workload, properties, and the last runs.

    `titles`: of the properties, by their numbers.
    """
    bad = [line for line in lines if line.signs]
    heading = f"Seed {bad[0].seed}: {bad[0].summary}" if bad else "Every property held in every run"
    body = [
        _tiles(lines),
        card("Faults", _faults(lines)),
        card("What was judged", _properties(lines, titles)),
        card("Runs", _runs(lines[-RUNS_SHOWN_MAX:])),
    ]
    return document("Soak", heading, _summary(lines), joined(body), good=not bad)


def _summary(lines: Sequence[RunLine]) -> Markup:
    hours = sum(line.seconds for line in lines) / 3600
    runs = f"{len(lines):,} run{'' if len(lines) == 1 else 's'}"
    seeds = f", seeds {lines[0].seed} to {lines[-1].seed}" if lines else ""
    return tag("p", text(f"{runs} in {hours:.2f} hours{seeds}."))


def _tiles(lines: Sequence[RunLine]) -> Markup:
    acknowledged = sum(line.acknowledged for line in lines)
    injected = sum(sum(line.faults.values()) for line in lines)
    kinds = len({fault for line in lines for fault in line.faults})
    worst_s = max((line.gap_worst_s or 0.0 for line in lines), default=0.0)
    violated = sum(bool(line.signs) for line in lines)
    return tiles(
        [
            (f"{acknowledged:,}", "sends acknowledged", True),
            (f"{injected:,}", f"faults of {kinds} kinds", True),
            (f"{violated:,}", "runs in which something was wrong", violated == 0),
            (f"{worst_s:.1f} s", "longest pause in sending, with faults that overlap", True),
        ]
    )


def _faults(lines: Sequence[RunLine]) -> Markup:
    workloads = sorted({line.workload for line in lines})
    counts = Counter[tuple[str, str]]()
    for line in lines:
        for fault, times in line.faults.items():
            counts[fault, line.workload] += times
    names = sorted({fault for fault, _ in counts})
    rows = [(name, [counts[name, workload] for workload in workloads]) for name in names]
    return table(
        ["", "all", *workloads],
        [[text(name), *map(_count, (sum(each), *each))] for name, each in rows],
        style="counts",
        numbers=range(1, len(workloads) + 2),
    )


def _properties(lines: Sequence[RunLine], titles: Mapping[str, str]) -> Markup:
    numbers = sorted({number for line in lines for number in line.checked}, key=int)
    return table(
        ["", "Property", "Runs", "Checked", "Violated in"],
        [
            [
                text(number),
                text(titles.get(number, "")),
                _count(sum(line.checked.get(number, 0) > 0 for line in lines)),
                _count(sum(line.checked.get(number, 0) for line in lines)),
                _count(sum(f"property {number}" in line.signs for line in lines)),
            ]
            for number in numbers
        ],
        style="properties",
        numbers=(0, 2, 3, 4),
    )


def _runs(lines: Sequence[RunLine]) -> Markup:
    return table(
        ["Seed", "Workload", "Seconds", "Acknowledged", "Faults", "Longest pause", "Outcome"],
        [
            [
                text(line.seed),
                text(line.workload),
                text(f"{line.seconds:.0f}"),
                _count(line.acknowledged),
                _count(sum(line.faults.values())),
                text("" if line.gap_worst_s is None else duration(line.gap_worst_s)),
                tag("b", text(line.summary), class_="bad") if line.signs else text(line.summary),
            ]
            for line in lines
        ],
        style="runs",
        numbers=range(2, 6),
    )


def _count(number: int) -> Markup:
    """A number's markup, in which zero is pale."""
    return text(f"{number:,}") if number else tag("span", text("·"), class_="soft")
