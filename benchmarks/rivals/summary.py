"""The README's table: what systems have, and a kept result's figures, one a cell. Pure.

The best figure of each row is bold.

A system's figure is that of its fastest client in the row: no peer is shown by a client that its
users would not take for the work.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

Figures = Mapping[str, Mapping[str, Sequence[float]]]

SYSTEMS = {
    "dledger": ("ours", "ours-many", "ours-read-many"),
    "NATS JetStream": (
        "nats-c",
        "nats-c-fetch",
        "nats-go",
        "nats-go-fast",
        "nats-py",
    ),
    "Kafka": ("kafka-java", "kafka-py"),
    "RabbitMQ": ("rabbitmq-java",),
    "RocketMQ 4.9": ("rocketmq-java",),
    "RocketMQ 5": ("rocketmq-java-5",),
}
"""Columns, and the contenders of each, but for those of several processes."""

FEATURES = (
    # dledger, NATS, Kafka, RabbitMQ, RocketMQ 4.9, RocketMQ 5
    ("acknowledged: on a majority's disks by default", "yes", "no", "no", "yes", "no", "no"),
    ("consumer offsets replicated with messages", "yes", "yes", "yes", "yes", "no", "no"),
    ("a retried send is stored once", "yes", "with an id", "yes", "no", "no", "no"),
    ("messages delayed by any time", "yes", "yes", "no", "no", "no", "yes"),
    ("transactions with a database", "yes", "no", "no", "no", "yes", "yes"),
    ("single messages acknowledged (POP, queues)", "yes", "yes", "yes", "yes", "no", "yes"),
    ("whole clusters in tests, on virtual time", "yes", "no", "no", "no", "no", "no"),
    ("an audit of the replicas' own files", "yes", "no", "no", "no", "no", "no"),
    ("users, rights, encryption (TLS)", "if turned on", "yes", "yes", "yes", "yes", "yes"),
    ("metrics to scrape", "if turned on", "yes", "yes", "yes", "no", "yes"),
)
"""The features of each system, in the order of SYSTEMS."""

LINES = (
    ("sent, in the memory of two servers", ("pipelined", "batches"), "messages/s", True),
    ("sent, on the disks of two servers", ("pipelined-fsync",), "messages/s", True),
    ("the same with 100 bytes, in memory", ("pipelined-100",), "messages/s", True),
    ("read from the first message on", ("read",), "messages/s", True),
    ("one send at a time, in memory", ("single",), "ms", False),
    ("one send at a time, on disks", ("single-fsync",), "ms", False),
    ("the leader is killed: no send for", ("gap",), "ms", False),
)
"""Lines of the table: their text, their rows, the unit, and whether more is better."""


def table(
    rows: Figures, versions: Mapping[str, str], number: Callable[[float], str]
) -> Iterator[str]:
    """The lines of the table."""
    shown = [name for name in SYSTEMS if any(_figures(rows, list(rows), name))]
    heads = [f"{name} {versions[name]}" if name in versions else name for name in shown]
    yield f"| | {' | '.join(heads)} |"
    yield f"|---|{'---|' * len(shown)}"
    for title, *has in FEATURES:
        cells_of = dict(zip(SYSTEMS, has, strict=True))
        yield f"| {title} | {' | '.join(cells_of[name] for name in shown)} |"
    for title, names, unit, more_is_better in LINES:
        best_of = max if more_is_better else min
        cells = {name: best_of(_figures(rows, names, name), default=None) for name in shown}
        known = [cell for cell in cells.values() if cell is not None]
        if not known:
            continue
        best = best_of(known)
        texts = ("-" if cell is None else number(cell) for cell in cells.values())
        marked = [
            f"**{text}**" if cell == best else text
            for cell, text in zip(cells.values(), texts, strict=True)
        ]
        yield f"| {title}, {unit} | {' | '.join(marked)} |"


def _figures(rows: Figures, names: Sequence[str], system: str) -> list[float]:
    """The medians of a system's clients in some rows."""
    return [
        statistics.median(figures)
        for name in names
        for client, figures in rows.get(name, {}).items()
        if client in SYSTEMS[system]
    ]
