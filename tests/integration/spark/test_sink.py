"""The sink in a real Spark stores each row of a committed batch at least once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mqclient import Message
from mqlocal import local_cluster_in_thread
from mqlocal.threaded import ThreadedCluster
from mqspark.topics.data_source import RocketmqSource

ROWS = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with local_cluster_in_thread(replicas=1, groups=2) as cluster:
        with cluster.admin() as admin:
            for topic in ("In", "Out", "Table", "Other"):
                admin.topics.update(topic, read_queues=2, write_queues=2)
        yield cluster


def rows_of(session: SparkSession, cluster: ThreadedCluster, topic: str) -> list[tuple[int, str]]:
    """Rows that readers see of a topic: the number in each body, and the key."""
    options = {"nameServer": cluster.namesrv_addr, "subscribe": topic}
    table = session.read.format("rocketmq").options(**options).load()
    return [(int(bytes(row.value)), row.key) for row in table.select("value", "key").collect()]


def test_a_table_is_written(session: SparkSession, cluster: ThreadedCluster) -> None:
    """Several tasks write a table to one topic or several; a wrong row is told, and none stored.

    Rows have keys, tags, properties and times.
    """
    table = session.range(0, ROWS, 1, 3).selectExpr(
        "cast(id as string) value", "concat('k', id % 7) key", "'t' tags",
        "map('n', cast(id as string)) properties", "timestamp'2026-11-27 00:00:00' bornTimestamp",
    )  # fmt: skip
    to = {"nameServer": cluster.namesrv_addr, "delivery": "at-least-once", "topic": "Table"}
    table.write.format("rocketmq").options(**to).mode("append").save()
    assert sorted(rows_of(session, cluster, "Table")) == [(n, f"k{n % 7}") for n in range(ROWS)]
    read = session.read.format("rocketmq").options(
        nameServer=cluster.namesrv_addr, subscribe="Table", includeHeaders="true"
    )
    row = read.load().where("value = '7'").first()
    assert row is not None
    assert (row.tags, row.properties["n"], row.bornTimestamp.year) == ("t", "7", 2026)

    for wrong, to_be in (
        (table.selectExpr("if(value = 3, '', key) key", "value"), "row 3 of the columns for topic"),
        (table.drop("value"), "no column value"),
        (table.withColumnRenamed("tags", "tag"), "writes no column 'tag'"),
        (table.selectExpr("'Table' topic", "value"), "is given twice"),
    ):
        with pytest.raises(PySparkException, match=to_be):
            wrong.coalesce(1).write.format("rocketmq").options(**to).mode("append").save()
    for options, mode, to_be in (
        (to | {"topik": "T"}, "append", "no option 'topik'"),
        (to | {"delivery": ""}, "append", "give exactly-once; or at-least-once"),
        (to, "overwrite", "only appended to"),
    ):
        with pytest.raises(PySparkException, match=to_be):
            table.write.format("rocketmq").options(**options).mode(mode).save()
    assert len(rows_of(session, cluster, "Table")) == ROWS

    by_row = table.selectExpr("if(value % 2 = 0, 'Other', 'Table') topic", "key", "value")
    del to["topic"]
    by_row.write.format("rocketmq").options(**to).mode("append").save()
    assert sorted(number for number, _ in rows_of(session, cluster, "Other")) == [*range(0, 40, 2)]
    assert len(rows_of(session, cluster, "Table")) == ROWS + ROWS // 2


class Dying(RocketmqSource):
    """The source whose sink fails before Spark has noted its first batch."""

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        writer = super().streamWriter(schema, overwrite)

        def commit(messages: list[WriterCommitMessage | None], batch: int) -> None:
            raise RuntimeError("died before the batch was noted")

        writer.commit = commit  # type: ignore[method-assign]
        return writer


def test_a_stream_that_died_within_a_batch_loses_no_row(
    session: SparkSession, cluster: ThreadedCluster, tmp_path: Path
) -> None:
    """A batch within which the stream died is stored again, and the others once."""
    with cluster.producer("P") as producer:
        for number in range(ROWS):
            producer.send(
                Message("In", b"%d" % number, keys=f"k{number % 5}"), key=f"k{number % 5}"
            )

    def run(source: type[RocketmqSource]) -> None:
        session.dataSource.register(source)
        stream = session.readStream.format("rocketmq").options(
            nameServer=cluster.namesrv_addr, subscribe="In", startingOffsets="earliest",
            maxOffsetsPerTrigger="25",
        )  # fmt: skip
        writing = stream.load().select("key", "value").writeStream.format("rocketmq")
        writing = writing.options(
            nameServer=cluster.namesrv_addr, topic="Out", delivery="at-least-once"
        )
        writing = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writing.start().awaitTermination(120)

    with pytest.raises(PySparkException, match="died before the batch was noted"):
        run(Dying)
    first = {number for number, _ in rows_of(session, cluster, "Out")}
    assert 0 < len(first) < ROWS
    run(RocketmqSource)
    found = Counter(number for number, _ in rows_of(session, cluster, "Out"))
    assert found == {number: 2 if number in first else 1 for number in range(ROWS)}
