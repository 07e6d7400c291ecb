"""The sink of a stream. Its base class came with PySpark 4.1."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from mqspark.topics.sink import send_rows
from mqspark.topics.sink_options import SinkOptions


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """`writeStream`. A batch that is repeated is stored again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows."""
        return send_rows(iterator, self._options)
