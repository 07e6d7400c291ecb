"""The sink that stores each row once: tasks stage their rows, and `commit` has the batch decided.

What is staged no reader sees; the decision is one entry that names the attempts that count
(docs/explanation/spark-sink.md). A stream's task knows its query, its run and its batch from what
Spark tells each task. A batch write is a query of one batch, whose name is drawn when it is
planned, and forgotten when it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from dledger.errors import ConfigError
from dledger.observe import get_logger
from dledger.remoting.bodies.staged import Places, Staged
from mqclient import Columns
from mqclient.blocking.bulk import BatchDecider, StagedWriter
from mqspark.limits import RUN_CHARACTERS_MAX
from mqspark.processes.worker import leave_old_objects
from mqspark.topics.sink_options import SinkOptions

log = get_logger(__name__)


class Query(NamedTuple):
    """The writer of a task's rows: a query's name, the run of it, and the number of the batch."""

    name: str
    run: str
    batch: int


@dataclass
class StagedRows(WriterCommitMessage):
    """The rows that one attempt of a task has staged."""

    partition: int
    staged: Staged
    places: Places
    rows: int


def running() -> Query:
    """The query that this task belongs to. Raises ConfigError outside one."""
    context = TaskContext.get()
    query, run, batch = [
        None if context is None else context.getLocalProperty(name)
        for name in ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
    ]
    if not query or not run or not batch:
        raise ConfigError(
            f"Spark did not tell this task its query, run and batch ({query!r}, {run!r}, "
            f"{batch!r}), without which no row is stored once: write with delivery=at-least-once"
        )
    return Query(f"spark-{query}", run[:RUN_CHARACTERS_MAX], int(batch))


def stage(
    parts: Iterable[tuple[str, Columns]], options: SinkOptions, query: Query
) -> WriterCommitMessage:
    """Stage a task's rows, by topic. Raises BadMessage that names a wrong row of its Arrow batch;
    ProducerFenced if another run of the query has begun."""
    leave_old_objects()
    with _decider(options) as decider:
        staged = decider.begin(*query, options.home or None)
    cluster = options.cluster
    with StagedWriter(cluster.name_server, staged, **cluster.access) as writer:
        for topic, columns in parts:
            writer.write(topic, columns)
        writer.flush()
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    return StagedRows(partition, staged, writer.places, writer.rows)


def decide(
    messages: Sequence[WriterCommitMessage | None],
    options: SinkOptions,
    batch: int,
    *,
    is_last: bool = False,
) -> None:
    """Decide the batch, and wait until all that counts are messages. Of its last batch a
    name is forgotten."""
    attempts = sorted(_staged_rows(messages), key=lambda each: each.partition)
    if not attempts:
        return
    staged = attempts[0].staged
    if {each.staged for each in attempts} != {staged._replace(batch=batch)}:
        raise ConfigError(
            f"tasks of batch {batch} of {staged.name!r} staged their rows for different runs of "
            "it: another driver runs the same query. Stop that, and start this one again"
        )
    places: dict[str, list[tuple[int, int]]] = {}
    for each in attempts:
        for broker_name, found in each.places.items():
            places.setdefault(broker_name, []).extend(found)
    with _decider(options) as decider:
        is_new = decider.commit(staged, places, options.first_batch)
        if is_last:
            decider.close_name(staged)
    rows = sum(each.rows for each in attempts)
    log.info("batch stored", query=staged.name, batch=batch, rows=rows, new=is_new)


def _staged_rows(messages: Sequence[WriterCommitMessage | None]) -> Iterator[StagedRows]:
    for each in messages:
        if isinstance(each, StagedRows):
            yield each


def _decider(options: SinkOptions) -> BatchDecider:
    return BatchDecider(options.cluster.name_server, **options.cluster.access)
