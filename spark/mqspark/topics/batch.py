"""A batch read of topics: from one position to another, which are found when Spark plans it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from dledger.errors import ConfigError
from mqspark.topics.options import Options
from mqspark.topics.planning import tasks
from mqspark.topics.reading import partitions_of, read_ranges
from mqspark.topics.topics import beginning, ending, look, reader_for


class TopicReader(DataSourceReader):
    """The read that Spark plans and runs."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The tasks, from where reading begins to where it ends. Raises ConfigError if a topic is
        not there."""
        options = self._options
        with reader_for(options) as reader:
            known = look(reader, options, all_of=True)
            topics = {queue.topic for queue in known.bounds}
            for topic in options.topics:
                if topic not in topics:
                    raise ConfigError(
                        f"option subscribe: no broker has the topic {topic!r} (mqadmin topicList)"
                    )
            for queue in options.queues:
                if queue not in known.bounds:
                    raise ConfigError(f"option assign: {queue} is not there (mqadmin topicRoute)")
            start = beginning(reader, options, known)
            end = ending(reader, options, known)
        return partitions_of(tasks(start, end, options.min_partitions, options.task_records_max))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a task's ranges."""
        return read_ranges(partition, self._options, self._schema)
