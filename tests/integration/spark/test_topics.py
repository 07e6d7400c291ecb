"""Topics in a real Spark: found by name, as a table and as a stream that is restarted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mqclient import Message
from mqlocal import local_cluster_in_thread
from mqlocal.threaded import ThreadedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.admin() as admin:
            admin.topics.update("T", read_queues=2, write_queues=2)
        yield cluster


def send(cluster: ThreadedCluster, numbers: range) -> None:
    with cluster.producer("P") as producer:
        for number in numbers:
            body, properties = b"%d" % number, {"n": str(number)}
            producer.send(Message("T", body, keys=f"k{number}", properties=properties))


def test_a_topic_is_a_table_and_a_stream(
    session: SparkSession, cluster: ThreadedCluster, tmp_path: Path
) -> None:
    """A topic needs no jar and no registration, as a table and as a stream.

    The stream is one query over two runs: each message comes once, and the group is where it ended;
    a wrong option is told by its name.
    """
    options = {"nameServer": cluster.namesrv_addr, "subscribe": "T"}
    send(cluster, range(20))

    table = session.read.format("rocketmq").options(**options, includeHeaders="true").load()
    row = table.selectExpr(
        "count(*) c", "count(distinct queue) q", "sum(cast(string(value) as int)) s",
        "min(storeTimestamp) > timestamp '2026-01-01' t", "max(properties['n']) n", "min(key) k",
    ).first()  # fmt: skip
    assert row is not None
    assert row.asDict() == {"c": 20, "q": 2, "s": 190, "t": True, "n": "9", "k": "k0"}

    got: list[list[int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        got.append([int(bytes(row.value)) for row in batch.select("value").collect()])

    def run() -> None:
        stream = session.readStream.format("rocketmq").options(**options, group="spark")
        stream = stream.options(startingOffsets="earliest", maxOffsetsPerTrigger="14")
        writing = stream.load().writeStream.foreachBatch(keep)
        writing = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = writing.start()
        assert query.awaitTermination(120)
        assert query.exception() is None

    run()
    assert [len(batch) for batch in got] == [14, 6]
    send(cluster, range(20, 30))
    run()
    assert sorted(number for batch in got for number in batch) == [*range(30)]
    with cluster.admin() as admin:
        assert admin.groups.progress("spark").lag == 0

    with pytest.raises(PySparkException, match="no option 'topic'; it has assign"):
        session.read.format("rocketmq").options(**options, topic="T").load().count()
