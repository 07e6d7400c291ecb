"""The measured parts of docs/explanation/performance.md and README.md, from a kept result.

A figure is the median of the rounds, with the worst and the best; the winner of a row is bold.
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from . import summary
from .plot import chart
from .rows import CONTENDERS, FLOORS, ROWS, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "performance.md"
README = ROOT / "README.md"
PAGE_WIDTH = 120
PLOTS = ROOT / "docs" / "explanation" / "performance"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


class Result(TypedDict):
    """Content of the file that `benchmarks/peers` keeps."""

    at: str
    python: str
    cores: int
    load_before: float
    rounds: int
    seconds: float
    kills: int
    minutes: float
    loopback_control_mb_per_s: list[float]
    versions: dict[str, str]
    clients: NotRequired[dict[str, str]]
    left_out: dict[str, str]
    rows: dict[str, dict[str, list[float]]]
    failed: dict[str, dict[str, list[float]]]


def renew(result: Result, source: Path) -> None:
    """Write the plots, and the measured parts of the page and the README."""
    PLOTS.mkdir(exist_ok=True)
    for row in ROWS:
        if result["rows"].get(row.name):
            (PLOTS / f"{row.name}.svg").write_text(plot(row, result["rows"][row.name]))
    write(PAGE, section(result, source))
    write(README, short(result))


def write(page: Path, lines: Iterator[str], begin: str = BEGIN, end: str = END) -> None:
    """Replace the measured part of a page, which stands between two comments."""
    before, _, rest = page.read_text().partition(begin)
    after = rest.partition(end)[2]
    measured = "\n".join(lines)
    page.write_text(f"{before}{begin}{measured}\n{end}{after}")


def short(result: Result) -> Iterator[str]:
    """Lines of the README's table."""
    versions = {
        "NATS JetStream": result["versions"].get("nats", "").removeprefix("v"),
        "Kafka": result["versions"].get("kafka", ""),
        "RabbitMQ": result["versions"].get("rabbitmq", ""),
        "RocketMQ 4.9": "",
        "RocketMQ 5": "",
    }
    named = {name: version for name, version in versions.items() if version}
    yield from ["", *summary.table(result["rows"], named, number)]
    python = result["python"].partition(" (")[0]
    yield f"\nMeasured {result['at'][:10]}, Python {python}, {result['rounds']} rounds."


def section(result: Result, source: Path) -> Iterator[str]:
    """Lines of the section about other systems, in performance.md."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    clients = ", ".join(f"{name} {version}" for name, version in result.get("clients", {}).items())
    bare = result["loopback_control_mb_per_s"]
    yield (
        f"Measured {result['at'][:10]} on {result['cores']} cores, Python {result['python']}:\n"
        f"{result['rounds']} rounds of {result['seconds']:g} s a figure, {result['minutes']:g} "
        f"minutes in all.\n\n{wrapped(f'Servers: {versions}.')}\n"
        f"{wrapped(f'Clients: {clients}.')}\n\n"
        f"A bare loopback connection carried {min(bare):,} to {max(bare):,} MB/s between the "
        f"rounds;\nthe machine's load at the end was {result['load_before']:.1f}.\n"
        f"All figures: `benchmarks/results/{source.name}`.\n"
    )
    for row in ROWS:
        figures = result["rows"].get(row.name, {})
        if figures:
            yield f"### {row.title[0].upper()}{row.title[1:]}\n"
            yield from table(row, figures)
            if row.aim is not None:
                yield f"\nThe aim of ours: {number(row.aim)} {row.unit}."
            yield f"\n![{row.title}](performance/{row.name}.svg)\n"
    for name, found in result["failed"].items():
        for who, counts in found.items():
            yield f"Sends that failed, {name.partition(':')[0]}, {CONTENDERS[who]}: {counts}.\n"
    for what, why in result["left_out"].items():
        reason = re.sub(r"Command '\[.*\]'", "its program", why.splitlines()[0])
        yield wrapped(f"Left out: {what}: {reason}.") + "\n"


def wrapped(text: str) -> str:
    """A paragraph in lines of the page."""
    return textwrap.fill(text, PAGE_WIDTH, break_long_words=False, break_on_hyphens=False)


def table(row: Row, figures: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """A row's contenders, the best first."""
    yield f"| | median, {row.unit} | worst to best | of |"
    yield "|---|---|---|---|"
    medians = {who: statistics.median(values) for who, values in figures.items()}
    ordered = sorted(medians, key=medians.__getitem__, reverse=row.more_is_better)
    best = next(who for who in ordered if who not in FLOORS)
    for who in ordered:
        values = sorted(figures[who], reverse=not row.more_is_better)
        median = number(medians[who])
        shown = f"**{median}**" if who == best else median
        spread = f"{number(values[0])} to {number(values[-1])}"
        yield f"| {CONTENDERS[who]} | {shown} | {spread} | {len(values)} |"


def plot(row: Row, figures: Mapping[str, Sequence[float]]) -> str:
    """Bars of a row, in the order of the contenders; ours stand out."""
    bars = [
        (CONTENDERS[who].replace("`", ""), figures[who], who.startswith("ours"))
        for who in CONTENDERS
        if who in figures
    ]
    return chart(f"{row.title} ({row.unit})", bars, number)


def number(value: float) -> str:
    """A number with its significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
