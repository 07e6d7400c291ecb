"""A soak on one page: what was done how often, under which load, and what came of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Annotated, Final, TypeAlias

import msgspec

from mqchaos.limits import RUNS_SHOWN_MAX, SOAK_COUNT_MAX

PAGE: Final = "soak.html"
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=SOAK_COUNT_MAX)]


class RunLine(msgspec.Struct, frozen=True):
    """One run of a soak; a line of soak.jsonl. `checked`: by property, how much it judged."""

    seed: int
    workload: str
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    sent: Count
    acknowledged: Count
    faults: dict[str, Count]
    gap_worst_s: float | None
    checked: dict[str, Count]
    signs: list[str]
    told: str


def render(lines: Sequence[RunLine]) -> str:
    """The page: the verdict, then faults by workload, properties, and the last runs."""
    bad = [line for line in lines if line.signs]
    hours = sum(line.seconds for line in lines) / 3600
    acknowledged = sum(line.acknowledged for line in lines)
    injected = sum(sum(line.faults.values()) for line in lines)
    verdict = f"Seed {bad[0].seed}: {bad[0].told}" if bad else "Every property held in every run"
    worst_s = max((line.gap_worst_s or 0.0 for line in lines), default=0.0)
    facts = (
        f"{len(lines)} runs in {hours:.2f} hours, {injected} faults, {acknowledged:,} messages "
        f"acknowledged; the longest pause in sending, with faults that overlap: {worst_s:.1f} s"
    )
    return _PAGE.format(
        state="bad" if bad else "good",
        verdict=escape(verdict),
        facts=escape(facts),
        faults=_faults(lines),
        properties=_properties(lines),
        runs=_runs(lines[-RUNS_SHOWN_MAX:]),
    )


def _faults(lines: Sequence[RunLine]) -> str:
    workloads = sorted({line.workload for line in lines})
    counts = Counter({(fault, line.workload): 0 for line in lines for fault in line.faults})
    for line in lines:
        for fault, times in line.faults.items():
            counts[fault, line.workload] += times
    names = sorted({fault for fault, _ in counts})
    return _table(
        ["fault", *workloads, "all"],
        (
            [
                name,
                *(counts[name, each] for each in workloads),
                sum(counts[name, each] for each in workloads),
            ]
            for name in names
        ),
    )


def _properties(lines: Sequence[RunLine]) -> str:
    numbers = sorted({number for line in lines for number in line.checked}, key=int)
    return _table(
        ["property", "judged in runs", "checked", "violated in runs"],
        (
            [
                number,
                sum(number in line.checked for line in lines),
                f"{sum(line.checked.get(number, 0) for line in lines):,}",
                sum(f"property {number}" in line.signs for line in lines),
            ]
            for number in numbers
        ),
    )


def _runs(lines: Sequence[RunLine]) -> str:
    return _table(
        ["seed", "workload", "seconds", "acknowledged", "faults", "longest pause", "outcome"],
        (
            [
                line.seed,
                line.workload,
                f"{line.seconds:.0f}",
                f"{line.acknowledged:,}",
                sum(line.faults.values()),
                "" if line.gap_worst_s is None else f"{line.gap_worst_s:.2f} s",
                line.told,
            ]
            for line in lines
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def row(cells: Sequence[object], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Soak</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }}
h1.good {{ color: #18794e; }} h1.bad {{ color: #c62a2f; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8884; }}
</style></head><body>
<h1 class="{state}">{verdict}</h1>
<p>{facts}</p>
<h2>Faults</h2><div>{faults}</div>
<h2>Properties</h2><div>{properties}</div>
<h2>Runs</h2><div>{runs}</div>
</body></html>
"""
