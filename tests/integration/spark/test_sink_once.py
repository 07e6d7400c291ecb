"""The exactly-once sink in a real Spark stores each row once, wherever a query ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import tee
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mqclient import Message
from mqclient.bulk.deciding import BatchDecider
from mqlocal import local_cluster_in_thread
from mqlocal.threaded import ThreadedCluster
from mqspark.topics.data_source import RocketmqSource

from .test_sink import rows_of

ROWS = 40
KEYS = 5
STEPS = ("written", "before", "decided", "after")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with local_cluster_in_thread(replicas=1, groups=2) as cluster:
        with cluster.admin() as admin:
            for topic in ("In", "Out", "Table", "EachIn", "Each"):
                admin.topics.update(topic, read_queues=2, write_queues=2)
        yield cluster


def failing(step: str) -> type[RocketmqSource]:
    """The source whose sink runs each task twice, and fails at a step of the first batch that it
    has."""

    class Failing(RocketmqSource):
        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            writer = super().writer(schema, overwrite)
            write = writer.write

            def second_fails(rows: Iterator[object]) -> WriterCommitMessage:
                message = write(rows)  # type: ignore[arg-type]
                if getattr(message, "partition", 0) == 1:
                    raise RuntimeError("failed: written")
                return message

            writer.write = second_fails  # type: ignore[method-assign]
            return writer

        def streamWriter(  # noqa: N802 - Spark's name
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            writer = super().streamWriter(schema, overwrite)
            write, commit = writer.write, writer.commit

            def twice(rows: Iterable[object]) -> WriterCommitMessage:
                first, second = tee(rows)
                write(first)  # type: ignore[arg-type]
                message = write(second)  # type: ignore[arg-type]
                if step == "written":
                    raise RuntimeError("failed: written")
                return message

            def fails(messages: list[WriterCommitMessage | None], batch: int) -> None:
                if step == "before":
                    raise RuntimeError("failed: before")
                if step == "decided":

                    async def fail(*_: object) -> None:
                        raise RuntimeError("failed: decided")

                    BatchDecider._publish = fail  # type: ignore[method-assign]
                commit(messages, batch)
                if step == "after":
                    raise RuntimeError("failed: after")

            writer.write, writer.commit = twice, fails  # type: ignore[method-assign]
            return writer

    return Failing


def test_a_table_is_written_whole_or_not_at_all(
    session: SparkSession, cluster: ThreadedCluster
) -> None:
    """A write one of whose tasks fails is not seen at all."""
    table = session.range(0, ROWS, 1, 3).selectExpr(
        "cast(id as string) value", f"concat('k', id % {KEYS}) key"
    )
    to = {"nameServer": cluster.namesrv_addr, "delivery": "exactly-once", "topic": "Table"}

    def write(table: DataFrame) -> None:
        table.write.format("rocketmq").options(**to).mode("append").save()

    session.dataSource.register(failing("written"))
    with pytest.raises(PySparkException, match="failed: written"):
        write(table)
    session.dataSource.register(RocketmqSource)
    assert rows_of(session, cluster, "Table") == []
    write(table)
    assert sorted(rows_of(session, cluster, "Table")) == [(n, f"k{n % KEYS}") for n in range(ROWS)]
    to["home"] = "nobody"
    with pytest.raises(PySparkException, match="the broker group nobody, which is to decide"):
        write(table)


def test_a_write_within_foreach_batch_is_one_of_its_own(
    session: SparkSession, cluster: ThreadedCluster, tmp_path: Path
) -> None:
    """A write in foreachBatch is whole, and written again if Spark repeats the batch."""
    with cluster.producer("P") as producer:
        for number in range(ROWS):
            producer.send(Message("EachIn", b"%d" % number))
    reading = {"nameServer": cluster.namesrv_addr, "subscribe": "EachIn"}
    writing = {"nameServer": cluster.namesrv_addr, "delivery": "exactly-once", "topic": "Each"}
    lives = 0

    def write(table: DataFrame, batch: int) -> None:
        table.select("value", "key").write.format("rocketmq").options(**writing).mode(
            "append"
        ).save()
        if lives == 1:
            raise RuntimeError("failed: after the write")

    fails = pytest.raises(PySparkException, match="failed: after the write")
    for lives, ends in ((1, fails), (2, nullcontext())):
        stream = session.readStream.format("rocketmq").options(**reading)
        query = (
            stream.option("startingOffsets", "earliest").load().writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )  # fmt: skip
        with ends:
            assert query.awaitTermination(120)
        numbers = Counter(number for number, _ in rows_of(session, cluster, "Each"))
        assert numbers == dict.fromkeys(range(ROWS), lives)


def test_a_stream_goes_on_wherever_it_ended(
    session: SparkSession, cluster: ThreadedCluster, tmp_path: Path
) -> None:
    """A query that ends at any step goes on with each row once, in order by key.

    The steps: after tasks wrote, before the commit, after the decision, and after our commit before
    Spark's commit log; each task runs twice.
    """
    sent = 0

    def send() -> None:
        nonlocal sent
        with cluster.producer("P") as producer:
            for number in range(sent, sent + ROWS):
                key = f"k{number % KEYS}"
                producer.send(Message("In", b"%d" % number, keys=key), key=key)
        sent += ROWS

    def run(step: str) -> Exception | None:
        session.dataSource.register(failing(step) if step else RocketmqSource)
        stream = session.readStream.format("rocketmq").options(
            nameServer=cluster.namesrv_addr, subscribe="In", startingOffsets="earliest",
            maxOffsetsPerTrigger="25",
        )  # fmt: skip
        writing = stream.load().select("key", "value").writeStream.format("rocketmq")
        writing = writing.options(
            nameServer=cluster.namesrv_addr, topic="Out", delivery="exactly-once"
        )
        writing = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = writing.start()
        try:
            assert query.awaitTermination(120)
        except PySparkException as error:
            return error
        return None

    for step in STEPS:
        send()
        error = run(step)
        assert error is not None
        assert f"failed: {step}" in str(error)
    assert run("") is None
    found = rows_of(session, cluster, "Out")
    assert Counter(number for number, _ in found) == Counter(range(sent))
    for key in range(KEYS):
        assert [n for n, of in found if of == f"k{key}"] == [*range(key, sent, KEYS)]
