"""A history's files: what clients did and were answered, by one clock.

JSON Lines, one event a line, in a file or in all `*.jsonl` files of a directory. `t` is the
harness's monotonic clock in nanoseconds; `id` is a message's unique key. A line that can't be read,
such as one torn by a kill, becomes a row without a kind, which proves nothing. The run's
description (`meta`) is the first line of its file; one that says what can't be is refused, since it
names what is to be judged.

The same may be Parquet (:mod:`mqspark.history.packing`): a column for each field that is read here,
and the others as JSON in `rest`. The files' names say which of the two it is; a
history is all of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from dledger.errors import ConfigError
from mqspark.history.events import event_of
from mqspark.limits import LEVELS_MAX, LINE_BYTES_MEAN, META_BYTES_MAX, RETRIES_MAX

LINES, PARQUET = ".jsonl", ".parquet"
COMPRESSED = frozenset({".gz", ".zst", ".xz", ".bz2", ".lz4", ".zip"})
REST = "rest"
"""The column of a packed history with what has no column of its own."""

#: Without `retries` in a history: RocketMQ's default retryTimesWhenSendFailed.
RETRIES_DEFAULT: Final = 2
_Retries = Annotated[int, msgspec.Meta(ge=0, le=RETRIES_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=LEVELS_MAX)]


class _Described(msgspec.Struct):
    """The fields that are read of a `meta`; it may have more. Null is as if it were not there."""

    topic: str | None = None
    inputs: str | None = None
    group: str | None = None
    idempotent: bool | None = None
    retries: _Retries | None = None
    brokers: dict[str, dict[str, Any] | list[str]] | None = None
    levels: dict[str, _Count] | None = None
    tells: list[str] | None = None


@dataclass(frozen=True)
class Meta:
    """The harness's description of the run. `brokers`: broker name -> node ids that it started.

    `outputs`: topic -> the topic of its inputs, and the group that passes them. `levels`: topic of
    priorities -> how many queues it has. `tells`: what older histories lack, and this one has.
    `is_described`: there is such a description.
    """

    topics: tuple[str, ...]
    idempotent: bool
    retries: int
    brokers: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, str]] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    tells: frozenset[str] = frozenset()
    is_described: bool = True

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
    folder = next((file for file in files if file.is_dir()), None)
    if folder is not None:
        raise ConfigError(f"{folder} is a directory, where a history has a file: take it away")
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
    """The run's description; without one, topics are those that were sent to.

    Raises ConfigError.
    """
    metas = [_described(file, meta) for file in find_history(path) if (meta := _meta_of(file))]
    outputs = {
        meta.topic: (meta.inputs, meta.group)
        for meta in metas
        if meta.topic and meta.inputs and meta.group
    }
    topics = {meta.topic for meta in metas if meta.topic}
    topics |= {meta.inputs for meta in metas if meta.inputs and meta.group}
    if not topics:
        topics = sent_topics()
    if not topics:
        raise ConfigError(f"{path}: the history has no send and names no topic: nothing to judge")
    retries = [RETRIES_DEFAULT if meta.retries is None else meta.retries for meta in metas]
    return Meta(
        topics=tuple(sorted(topics)),
        idempotent=all(meta.idempotent in {True, None} for meta in metas),
        retries=max(retries, default=0),
        brokers={
            name: tuple(sorted(nodes))
            for meta in metas
            for name, nodes in (meta.brokers or {}).items()
        },
        outputs=outputs,
        levels={topic: count for meta in metas for topic, count in (meta.levels or {}).items()},
        tells=frozenset(each for meta in metas for each in meta.tells or ()),
        is_described=bool(metas),
    )


def _described(file: Path, meta: dict[str, Any]) -> _Described:
    try:
        return msgspec.convert(meta, _Described)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{file} says what can't be of its run, in its first line (meta): {error}"
        ) from error


def _meta_of(file: Path) -> dict[str, Any]:
    """The description that a file starts with; nothing if it starts with another event."""
    if file.suffix == PARQUET:
        event = _first_packed(file)
    else:
        with file.open("rb") as lines:
            event = event_of(lines.readline(META_BYTES_MAX)) or {}
    return event if event.get("kind") == "meta" else {}


def _first_packed(file: Path) -> dict[str, Any]:
    """The first event of a packed file."""
    for batch in pq.ParquetFile(file).iter_batches(1):
        (row,) = batch.to_pylist()
        rest = event_of((row.pop(REST, None) or "{}").encode()) or {}
        return {name: value for name, value in row.items() if value is not None} | rest
    return {}
