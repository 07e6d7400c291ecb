"""The table of `benchmarks/spark` in docs/explanation/performance.md, from a kept result.

A figure is the median of the rounds. A ratio is the median of the rounds' ratios: the systems take
turns within a round, so a busy minute hits both.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

from .page import PAGE, number, wrapped, write

BEGIN, END = "<!-- spark: begin -->\n", "<!-- spark: end -->\n"
KAFKA = "kafka"


class Result(TypedDict):
    """The result that `benchmarks/spark` keeps."""

    at: str
    python: str
    cores: int
    rounds: int
    messages: int
    seconds: float
    spark_cores: int
    minutes: float
    load_before: float
    versions: dict[str, str]
    figures: dict[str, dict[str, dict[str, list[float]]]]
    commit_ms: dict[str, list[float]]


class Row(NamedTuple):
    """A row of the table."""

    title: str
    work: str
    figure: str
    who: str = "ours"


ROWS = (
    Row("read a topic, messages/s", "read", "per_s"),
    Row("the same for each second of a core that Spark used", "read", "per_core_s"),
    Row("stream with `availableNow`, messages/s", "stream", "per_s"),
    Row("the same for each second of a core that Spark used", "stream", "per_core_s"),
    Row("write, exactly once; Kafka at least once, messages/s", "write", "per_s"),
    Row("write, at least once, messages/s", "write", "per_s", "ours-at-least-once"),
    Row("CPU of the brokers, read, us a message", "read", "brokers_us"),
    Row("CPU of the brokers, write exactly once, us a message", "write", "brokers_us"),
    Row("10,000 messages/s, micro-batch that reads, median, ms", "latency", "batch_ms"),
    Row("the same, 99th percentile", "latency", "batch_p99_ms"),
    Row("from the send to the batch's end, median, ms", "latency", "latency_ms"),
    Row("the same, 99th percentile", "latency", "latency_p99_ms"),
    Row("topic to topic, exactly once, micro-batch, median, ms", "copy", "batch_ms"),
    Row("the same, 99th percentile", "copy", "batch_p99_ms"),
    Row("topic to topic, at least once, micro-batch, ms", "copy", "batch_ms", "ours-at-least-once"),
)


def renew(result: Result, source: Path) -> None:
    """Write the measured part of the page."""
    write(PAGE, section(result, source), BEGIN, END)


def section(result: Result, source: Path) -> Iterator[str]:
    """Lines of the section about Spark, in performance.md."""
    versions, rounds = result["versions"], result["rounds"]
    about = (
        f"Measured {result['at'][:10]} on {result['cores']} cores, Python {result['python']}, "
        f"PySpark {versions['PySpark']} with {result['spark_cores']} cores, Kafka "
        f"{versions['Kafka']}: {rounds} rounds of {result['messages']:,} messages and of "
        f"{result['seconds']:g} s a query, {result['minutes']:g} minutes in all. The machine's "
        f"load at the end was {result['load_before']:.1f}. "
        f"All figures: `benchmarks/results/{source.name}`."
    )
    yield from ["", wrapped(about), ""]
    yield "| | ours | Kafka | ours / Kafka, worst to best |"
    yield "|---|---|---|---|"
    for row in ROWS:
        figures = result["figures"][row.work][row.figure]
        yield line(row.title, figures[row.who], figures[KAFKA])
    yield ""
    costs = ", ".join(
        f"{number(statistics.median(took))} ms for {int(rows):,}"
        for rows, took in result["commit_ms"].items()
    )
    yield wrapped(f"A commit of rows of 1 KiB took, without Spark: {costs}.")
    yield ""


def line(title: str, ours: Sequence[float], other: Sequence[float]) -> str:
    """A row with both medians, and the rounds' ratios."""
    ratios = sorted(one / two for one, two in zip(ours, other, strict=True))
    shown = f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    medians: Mapping[str, float] = {
        "ours": statistics.median(ours),
        "other": statistics.median(other),
    }
    return f"| {title} | {number(medians['ours'])} | {number(medians['other'])} | {shown} |"
