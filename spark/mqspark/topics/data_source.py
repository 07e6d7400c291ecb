"""The data source `rocketmq`: topics of live clusters, ours and Apache RocketMQ's.

::

    orders = spark.readStream.format("rocketmq").option("nameServer", "10.0.0.1:9876").option(
        "subscribe", "Orders"
    )

docs/how-to/spark.md has all options. The connection is made where messages are read: in each task.
Spark starts a process for each step of a query's planning, most of which only look at the options.
So the client, which takes most of a second to import, is imported where it is used.
"""

from __future__ import annotations

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from dledger.errors import ConfigError
from mqspark.limits import PYSPARK_MIN, PYSPARK_STREAMS_MIN, PYSPARK_TOO_NEW
from mqspark.topics.columns import arrow_schema
from mqspark.topics.options import parse
from mqspark.topics.sink_options import parse_sink

FORMAT = "rocketmq"


class RocketmqSource(DataSource):
    """Serves `format("rocketmq")` of `read`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """Name for `spark.read.format` and `readStream.format`: "rocketmq"."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns that the options ask for. Raises ConfigError for a bad option."""
        check_version(pyspark.__version__)
        columns = self.options.get("columns", "")
        names = [name for name in map(str.strip, columns.split(",")) if name]
        headers = self.options.get("includeHeaders", "false").strip().lower() == "true"
        return spark_schema(arrow_schema(names, headers=headers))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch. Raises ConfigError for a bad option."""
        from mqspark.topics.batch import TopicReader  # noqa: PLC0415 - see the page's head

        options = parse(self.options, streaming=False)
        return TopicReader(options, arrow_schema(options.columns, headers=options.headers))

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """The reader of a stream. Raises ConfigError for a bad option."""
        _check_streams()
        from mqspark.topics.stream import TopicStream  # noqa: PLC0415 - what it needs came with 4.2

        options = parse(self.options, streaming=True)
        return TopicStream(options, arrow_schema(options.columns, headers=options.headers))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch. Raises ConfigError for a bad option or column."""
        check_version(pyspark.__version__)
        if overwrite:
            raise ConfigError("mode overwrite: a topic is only appended to; use mode('append')")
        from mqspark.topics.sink import TopicWriter  # noqa: PLC0415 - see the page's head

        return TopicWriter(parse_sink(self.options, _types_of(schema)))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """The writer of a stream. Raises ConfigError for a bad option or column."""
        _check_streams()
        if overwrite:
            raise ConfigError("outputMode complete: a topic is only appended to; use append")
        from mqspark.topics.sink_stream import (  # noqa: PLC0415 - what it needs came with 4.1
            TopicStreamWriter,
        )

        return TopicStreamWriter(parse_sink(self.options, _types_of(schema)))


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns as Spark types."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - imports pandas

    return from_arrow_schema(schema)


def _types_of(schema: StructType) -> dict[str, str]:
    return {each.name: each.dataType.simpleString() for each in schema.fields}


def _check_streams() -> None:
    """Raises ConfigError for a PySpark that has no streams which this source could serve."""
    check_version(pyspark.__version__)
    if version_of(pyspark.__version__) < PYSPARK_STREAMS_MIN:
        raise ConfigError(
            "streams of rocketmq need PySpark 4.2 or newer: before it Spark does not tell a "
            f"Python source where a batch begins; this one is {pyspark.__version__}"
        )


def version_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def check_version(version: str) -> None:
    """Raises ConfigError for a PySpark that this source was not written for."""
    if not PYSPARK_MIN <= version_of(version) < PYSPARK_TOO_NEW:
        raise ConfigError(
            f"the data source {FORMAT} runs on PySpark 4.0 to 4.3; this one is {version}. "
            "Install dledger[spark], or a version of dledger for it"
        )
