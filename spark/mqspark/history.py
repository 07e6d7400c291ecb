"""A history's files: what clients did and were answered, by one clock.

JSON Lines, one event a line, in a file or in all `*.jsonl` files of a directory. `t` is the
harness's monotonic clock in nanoseconds; `id` is a message's unique key. A line that can't be read,
such as one torn by a kill, becomes a row without a kind, which proves nothing. The run's
description (`meta`) is the first line of its file.

The same may be Parquet (:mod:`mqspark.packing`): a column for each field that is read here, and the
others as JSON in `rest`. Which of the two it is, the files' names say; a history is all of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from dledger.errors import ConfigError
from mqspark.limits import LEVELS_MAX, LINE_BYTES_MEAN, META_BYTES_MAX

LINES, PARQUET = ".jsonl", ".parquet"
COMPRESSED = frozenset({".gz", ".zst", ".xz", ".bz2", ".lz4", ".zip"})
REST = "rest"
"""The column of a packed history with what has no column of its own."""

#: Without `retries` in a history: RocketMQ's default retryTimesWhenSendFailed.
RETRIES_DEFAULT = 2


@dataclass(frozen=True)
class Meta:
    """The harness's description of the run. `brokers`: broker name -> node ids that it started.

    `outputs`: topic -> the topic of its inputs, and the group that passes them. `levels`: topic of
    priorities -> how many queues it has. `tells`: what older histories lack, and this one has.
    """

    topics: tuple[str, ...]
    idempotent: bool
    retries: int
    brokers: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, str]] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    tells: frozenset[str] = frozenset()
    is_told: bool = True

    @property
    def copies_max(self) -> int:
        """How often one message may be in a log (property 9)."""
        return 1 if self.idempotent else 1 + self.retries


def read_lines(session: SparkSession, path: Path) -> DataFrame:
    """All lines, in the column `value`: as they are, or made again of what was packed.

    Raises ConfigError as `find_history`.
    """
    if is_parquet(path):
        return _read_parquet(session, path).select(F.to_json(F.struct("*")).alias("value"))
    reader = session.read
    if path.is_dir():
        reader = reader.option("pathGlobFilter", f"*{LINES}")
    return reader.text(str(path))


def _read_parquet(session: SparkSession, path: Path) -> DataFrame:
    return session.read.parquet(*map(str, find_history(path)))


def is_parquet(path: Path) -> bool:
    """Whether a history is packed. Raises ConfigError as `find_history`."""
    return find_history(path)[0].suffix == PARQUET


def find_history(path: Path) -> list[Path]:
    """The files of the history at `path`. Raises ConfigError if there is none."""
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in {LINES, PARQUET})
        packed = sorted(file.name for file in path.iterdir() if file.suffix in COMPRESSED)
        if packed:
            raise ConfigError(
                f"{path} has {', '.join(packed[:3])}: unpack what belongs to the history, and take "
                "away the rest. What is missing would look like the broker's faults"
            )
    elif path.suffix in COMPRESSED:
        raise ConfigError(f"{path} is compressed: unpack it")
    if not path.exists() or not files:
        raise ConfigError(
            f"{path}: no history there: a file of JSON Lines or Parquet, or a directory of "
            f"*{LINES} or *{PARQUET}"
        )
    if len({file.suffix for file in files}) > 1:
        raise ConfigError(f"{path} has files of both kinds, *{LINES} and *{PARQUET}: keep one")
    return files


def size_bytes(path: Path) -> int:
    """How large the history is as JSON Lines, or would be."""
    if is_parquet(path):
        rows = sum(pq.read_metadata(file).num_rows for file in find_history(path))
        return int(rows) * LINE_BYTES_MEAN
    return sum(file.stat().st_size for file in find_history(path))


def read_meta(path: Path, sent_topics: Callable[[], set[str]]) -> Meta:
    """The run's description; without one, topics are those that were sent to."""
    metas = [meta for file in find_history(path) if (meta := _meta_of(file))]
    topics = {str(meta["topic"]) for meta in metas if meta.get("topic")}
    made = [meta for meta in metas if meta.get("inputs") and meta.get("group")]
    topics |= {str(meta["inputs"]) for meta in made}
    if not topics:
        topics = sent_topics()
    if not topics:
        raise ConfigError(f"{path}: the history has no send and names no topic: nothing to judge")
    return Meta(
        topics=tuple(sorted(topics)),
        idempotent=all(bool(meta.get("idempotent", True)) for meta in metas),
        retries=max((int(str(meta.get("retries", RETRIES_DEFAULT))) for meta in metas), default=0),
        brokers=_brokers(metas),
        outputs={
            str(meta["topic"]): (str(meta["inputs"]), str(meta["group"]))
            for meta in made
            if meta.get("topic")
        },
        levels=_levels(metas),
        tells=_tells(metas),
        is_told=bool(metas),
    )


def _meta_of(file: Path) -> dict[str, object]:
    """The description that a file starts with; nothing if it starts with another event."""
    with file.open("rb") as lines:
        try:
            line = _first_packed(file) if file.suffix == PARQUET else lines.readline(META_BYTES_MAX)
            event = json.loads(line)
        except (ValueError, RecursionError):
            return {}
    return event if isinstance(event, dict) and event.get("kind") == "meta" else {}


def _first_packed(file: Path) -> str:
    """The first event of a packed file, as JSON."""
    for batch in pq.ParquetFile(file).iter_batches(1):
        (row,) = batch.to_pylist()
        rest = json.loads(row.pop(REST) or "{}")
        if isinstance(rest, dict):
            return json.dumps(
                {name: value for name, value in row.items() if value is not None} | rest
            )
    return ""


def _levels(metas: Sequence[dict[str, object]]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for meta in metas:
        named = meta.get("levels")
        for topic, count in named.items() if isinstance(named, dict) else ():
            if type(count) is int and 0 < count <= LEVELS_MAX:
                levels[str(topic)] = count
    return levels


def _tells(metas: Sequence[dict[str, object]]) -> frozenset[str]:
    named = [meta.get("tells") for meta in metas]
    return frozenset(str(each) for some in named if isinstance(some, list) for each in some)


def _brokers(metas: Sequence[dict[str, object]]) -> dict[str, tuple[str, ...]]:
    brokers: dict[str, tuple[str, ...]] = {}
    for meta in metas:
        named = meta.get("brokers")
        if isinstance(named, dict):
            brokers |= {str(name): tuple(sorted(nodes)) for name, nodes in named.items()}
    return brokers
