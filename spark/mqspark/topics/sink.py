"""The sink: a task's rows become messages.

`delivery` says how often. At least once: a task sends its rows, and is done when all of them are
stored; Spark runs a task again that failed, or was slow, and a batch whose commit it did not note,
and the rows that had been stored by then are stored a second time. Exactly once: see
`mqspark.topics.sink_once`. It must be given, so that nobody comes to either by oversight.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from dledger.errors import BadInput
from mqclient import Columns
from mqclient.blocking import BulkWriter
from mqspark.processes.worker import leave_old_objects
from mqspark.topics.sink_once import Query, decide, stage
from mqspark.topics.sink_options import SinkOptions, columns_of


def send_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> WriterCommitMessage:
    """Send a task's rows, and wait until all are stored.

    Raises BadMessage that names a wrong row of its Arrow batch; SendFailed, SendUnknown or NoRoute:
    then Spark runs the task again.
    """
    leave_old_objects()
    with BulkWriter(options.cluster.name_server, **options.cluster.access) as writer:
        for topic, columns in by_topic(batches, options.topic):
            writer.write(topic, columns)
        writer.flush()
    return WriterCommitMessage()


class TopicWriter(DataSourceArrowWriter):
    """The writer behind `df.write`: with at-least-once, a write that fails leaves the rows that
    were stored by then; with exactly-once it is whole or absent."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        drawn = uuid.uuid4().hex
        self._query = Query(f"spark-write-{drawn}", drawn, 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send or stage a task's rows."""
        if not self._options.once:
            return send_rows(iterator, self._options)
        return stage(by_topic(iterator, self._options.topic), self._options, self._query)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Store all of the rows."""
        decide(messages, self._options, self._query.batch, is_last=True)


def by_topic(batches: Iterable[pa.RecordBatch], topic: str) -> Iterator[tuple[str, Columns]]:
    """The rows of Arrow batches, by topic, in their order. Raises BadInput for a row without
    one."""
    for batch in batches:
        yield from _by_topic(batch, topic)


def _by_topic(batch: pa.RecordBatch, topic: str) -> Iterator[tuple[str, Columns]]:
    if not batch.num_rows:
        return
    if topic:
        yield topic, columns_of(batch)
        return
    topics = batch.column(batch.schema.get_field_index("topic"))
    if topics.null_count:
        row = topics.is_null().to_pylist().index(True)
        raise BadInput(f"row {row} of an Arrow batch has no topic: the column topic is null there")
    for name in topics.unique().to_pylist():
        yield name, columns_of(batch.filter(pc.equal(topics, name)))
