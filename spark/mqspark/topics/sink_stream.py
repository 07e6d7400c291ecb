"""The sink of a stream. Its base class came with PySpark 4.1."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from mqspark.topics.sink import by_topic, send_rows
from mqspark.topics.sink_once import decide, running, stage
from mqspark.topics.sink_options import SinkOptions


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """The writer behind `df.writeStream`: with at-least-once, a batch that is repeated is stored
    again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send or stage a task's rows."""
        if not self._options.once:
            return send_rows(iterator, self._options)
        return stage(by_topic(iterator, self._options.topic), self._options, running())

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Store all rows of the batch."""
        decide(messages, self._options, batchId)
