"""The sink: a task sends its rows as messages, and is done when all of them are stored.

That is at least once: Spark runs a task again that failed, or was slow, and a batch whose commit it
did not note, and the rows that had been stored by then are stored a second time. A query says that
it can bear that by `delivery=at-least-once`, so that none comes to it by oversight. How each row
would be stored once is argued in docs/explanation/spark-sink.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from dledger.errors import BadInput
from mqclient import Columns
from mqclient.blocking import BulkWriter
from mqspark.topics.sink_options import SinkOptions, columns_of


def send_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> WriterCommitMessage:
    """Send a task's rows, and wait until all are stored.

    Raises BadMessage that names a wrong row of its Arrow batch; SendFailed, SendUnknown or NoRoute:
    then Spark runs the task again.
    """
    cluster = options.cluster
    writer = BulkWriter(
        cluster.name_server, user=cluster.user, secret=cluster.secret, tls=cluster.tls
    )
    with writer:
        for batch in batches:
            for topic, columns in _by_topic(batch, options.topic):
                writer.write(topic, columns)
        writer.flush()
    return WriterCommitMessage()


class TopicWriter(DataSourceArrowWriter):
    """`df.write`. A write that fails leaves the rows that were stored by then."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows."""
        return send_rows(iterator, self._options)


def _by_topic(batch: pa.RecordBatch, topic: str) -> Iterator[tuple[str, Columns]]:
    """The rows of an Arrow batch, by topic, in their order. Raises BadInput for a row without
    one."""
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
