"""Topics as streams and tables, against a real cluster, with a small engine for Spark's.

The engine calls a stream as Spark's does: offsets go through JSON, a batch is planned from the
stored ones, and every reader has been pickled.
"""

from __future__ import annotations

import json
import pickle
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dledger.errors import ConfigError
from mqclient import Message, limits
from mqlocal import local_cluster_in_thread
from mqlocal.threaded import ThreadedCluster
from mqspark.topics import planning
from mqspark.topics import stream as streams
from mqspark.topics.data_source import RocketmqSource
from mqspark.topics.losses import DataLoss

Rows = list[dict[str, Any]]
Checkpoint = list[str]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that ends too early is asked again for a moment only."""
    monkeypatch.setattr(limits, "RANGE_TRUNCATED_S", 0.05)
    monkeypatch.setattr(streams, "TRUNCATION_CHECKED_S", 0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with local_cluster_in_thread(replicas=1, groups=2) as cluster:
        yield cluster


def source(cluster: ThreadedCluster, **options: object) -> RocketmqSource:
    return RocketmqSource(
        {"nameserver": cluster.namesrv_addr, **{k: str(v) for k, v in options.items()}}
    )


def rows_of(given: RocketmqSource, partitions: list[Any], *, streaming: bool = False) -> Rows:
    """Rows that workers read; each has a copy of a reader that was never opened."""
    make_reader = given.streamReader if streaming else given.reader
    copy = pickle.loads(pickle.dumps(make_reader(given.schema())))  # noqa: S301 - our own
    found: Rows = []
    for partition in pickle.loads(pickle.dumps(partitions)):  # noqa: S301 - as above
        for batch in copy.read(partition):
            found += batch.to_pylist()
    return found


def table(cluster: ThreadedCluster, **options: object) -> Rows:
    given = source(cluster, **options)
    reader = given.reader(given.schema())
    return rows_of(given, list(reader.partitions()))


def run(
    cluster: ThreadedCluster, checkpoint: Checkpoint, *, batches_max: int = 100, **options: object
) -> list[Rows]:
    """A query with `Trigger.AvailableNow`, from its checkpoint on."""
    given = source(cluster, **{"startingOffsets": "earliest", **options})
    stream = given.streamReader(given.schema())
    done: list[Rows] = []
    try:
        stream.prepareForTriggerAvailableNow()
        if not checkpoint:
            checkpoint.append(json.dumps(stream.initialOffset()))
        limit = stream.getDefaultReadLimit()
        while len(done) < batches_max:
            start = checkpoint[-1]
            end = json.dumps(stream.latestOffset(json.loads(start), limit))
            if end == start:
                break
            checkpoint.append(end)
            partitions = stream.partitions(json.loads(start), json.loads(end))
            done.append(rows_of(given, list(partitions), streaming=True))
            stream.commit(json.loads(end))
    finally:
        stream.stop()
    return done


def send(cluster: ThreadedCluster, topic: str, bodies: list[bytes], **more: Any) -> None:
    with cluster.producer("P") as producer:
        for body in bodies:
            producer.send(Message(topic, body, **more))


def values(batches: list[Rows]) -> list[bytes]:
    return sorted(row["value"] for rows in batches for row in rows)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%04d" % number for number in range(first, first + count)]


def make(cluster: ThreadedCluster, topic: str, queues: int = 2) -> None:
    with cluster.admin() as admin:
        admin.topics.update(topic, read_queues=queues, write_queues=queues)


def test_a_table_is_what_the_topic_has(cluster: ThreadedCluster) -> None:
    """A table is the whole topic, or a part by offsets or times, filtered by the broker."""
    make(cluster, "Table")
    with cluster.producer("P") as producer:
        for number, body in enumerate(numbered(40)):
            producer.send(Message("Table", body, keys="k", tags="AB"[number % 2]))
    rows = table(cluster, subscribe="Table")
    assert values([rows]) == numbered(40)
    assert {row["broker"] for row in rows} == {*cluster.groups}
    assert values([table(cluster, subscribe="Table", minPartitions=11)]) == numbered(40)
    assert values([table(cluster, subscribe="Table", subExpression="A")]) == numbered(40)[::2]
    sql = {"subExpression": "TAGS = 'B'", "expressionType": "SQL92"}
    assert values([table(cluster, subscribe="Table", **sql)]) == numbered(40)[1::2]
    assert table(cluster, subscribe="Table", startingTimestamp=1, endingTimestamp=1) == []
    late = {"startingTimestamp": 2**50, "startingOffsetsByTimestampStrategy": "latest"}
    assert table(cluster, subscribe="Table", **late) == []
    with pytest.raises(ConfigError, match="no message stored at 9999999999999 "):
        table(cluster, subscribe="Table", startingTimestamp=9999999999999)
    broker = cluster.groups[0]
    queue = sorted(
        (r["offset"], r["value"]) for r in rows if (r["broker"], r["queue"]) == (broker, 1)
    )
    assigned = {"assign": json.dumps({"Table": {broker: [1]}})}
    start = json.dumps({"Table": {broker: {"1": 2}}})
    end = json.dumps({"Table": {broker: {"1": 5}}})
    found = table(cluster, **assigned, startingOffsets=start, endingOffsets=end)
    assert [(row["offset"], row["value"]) for row in found] == queue[2:5]
    with pytest.raises(ConfigError, match="startingOffsets does not name .*Table"):
        table(cluster, subscribe="Table", startingOffsets=start)
    with pytest.raises(ConfigError, match="names .*Table.* which is not read"):
        table(
            cluster, **assigned, startingOffsets=json.dumps({"Table": {broker: {"1": 2, "7": 0}}})
        )
    with pytest.raises(ConfigError, match="no broker has the topic 'Nowhere'"):
        table(cluster, subscribe="Nowhere")


def test_batches_are_exact_over_restarts(cluster: ThreadedCluster) -> None:
    """Batches of any limit have each message once, in its queue's order, also planned again."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number, limit in enumerate(
        [
            {"maxOffsetsPerTrigger": 4},
            {"maxBytesPerTrigger": 1},
            {"maxOffsetsPerTrigger": 4, "maxBytesPerTrigger": 900, "minPartitions": 7},
            {},
        ]
    ):
        topic = f"Exact{number}"
        make(cluster, topic, 1)
        checkpoint: Checkpoint = []
        got: list[Rows] = []
        sent = 0
        while sent < 18:
            send(cluster, topic, numbered(6, sent))
            sent += 6
            got += run(
                cluster, checkpoint, subscribe=topic, batches_max=chance.randrange(1, 9), **limit
            )
        got += run(cluster, checkpoint, subscribe=topic, **limit)
        assert values(got) == numbered(18)
        assert len(got) > 2 or not limit
        seen: dict[tuple[str, int], list[int]] = {}
        for row in (row for rows in got for row in rows):
            seen.setdefault((row["broker"], row["queue"]), []).append(row["offset"])
        assert all(offsets == [*range(len(offsets))] for offsets in seen.values())
        given = source(cluster, subscribe=topic, **limit)
        again = given.streamReader(given.schema())
        for start, end, rows in zip(checkpoint[:5], checkpoint[1:], got, strict=False):
            planned = again.partitions(json.loads(start), json.loads(end))
            assert rows_of(given, list(planned), streaming=True) == rows


def test_topics_come_grow_and_are_made_again(cluster: ThreadedCluster) -> None:
    """A topic that appears, and a queue that is added, are read from their first messages; one that
    is deleted, or made again, is a loss that is told, and then read from its first message."""
    checkpoint: Checkpoint = []
    query = {"subscribePattern": "Life.*", "startingOffsets": "latest"}
    make(cluster, "Life1", 1)
    send(cluster, "Life1", numbered(5))
    assert run(cluster, checkpoint, **query) == []
    send(cluster, "Life1", numbered(5, 5))
    send(cluster, "Life2", numbered(5, 10))
    assert values(run(cluster, checkpoint, **query)) == numbered(10, 5)
    make(cluster, "Life1", 3)
    send(cluster, "Life1", numbered(30, 20))
    assert values(run(cluster, checkpoint, **query)) == numbered(30, 20)
    with cluster.admin() as admin:
        admin.topics.delete("Life1")
    with pytest.raises(DataLoss, match=r"Life1.*the topic was deleted.*failOnDataLoss=false"):
        run(cluster, checkpoint, **query)
    send(cluster, "Life1", numbered(30, 60))
    with pytest.raises(DataLoss, match=r"Life1.*deleted and made again"):
        run(cluster, checkpoint, **query)
    assert values(run(cluster, checkpoint, **query, failOnDataLoss=False)) == numbered(30, 60)
    assert run(cluster, checkpoint, **query) == []


def test_a_loss_is_a_row_of_the_table_and_once(cluster: ThreadedCluster, tmp_path: Path) -> None:
    """A loss is one row with queue, offsets and reason, also if the batch is repeated."""
    make(cluster, "Lost", 1)
    send(cluster, "Lost", numbered(10))
    broker = cluster.groups[0]
    start = json.dumps({"Lost": {name: {"0": 0} for name in cluster.groups}})
    end = json.dumps({"Lost": {name: {"0": 9} for name in cluster.groups}})
    options = {"subscribe": "Lost", "startingOffsets": start, "endingOffsets": end}
    with pytest.raises(
        DataLoss, match="messages from 5 to 8 of .*broker-a.* the queue ends before"
    ):
        table(cluster, **options)
    losses = tmp_path / "losses"
    for _ in range(2):
        found = table(cluster, **options, failOnDataLoss="false", lossTable=losses)
        assert values([found]) == numbered(10)
    rows = pyarrow.parquet.read_table(losses).to_pylist()
    assert len(rows) == 2
    (row,) = (row for row in rows if row["broker"] == broker)
    assert (row["topic"], row["queue"], row["begin"], row["end"]) == ("Lost", 0, 5, 9)
    assert "queue ends before" in row["why"]


def test_the_group_is_where_the_checkpoint_is(cluster: ThreadedCluster) -> None:
    """Brokers show its lag; who resets or rewinds it there moves no query."""
    make(cluster, "Group", 1)
    send(cluster, "Group", numbered(20))
    checkpoint: Checkpoint = []
    query = {"subscribe": "Group", "group": "spark-group"}
    run(cluster, checkpoint, **query)
    with cluster.admin() as admin:
        progress = admin.groups.progress("spark-group")
        assert (progress.lag, len(progress.queues)) == (0, 2)
        send(cluster, "Group", numbered(10, 20))
        assert admin.groups.progress("spark-group").lag == 10
        admin.groups.reset_offset("spark-group", "Group", timestamp_ms=0)
        assert values(run(cluster, checkpoint, **query)) == numbered(10, 20)
        assert admin.groups.progress("spark-group").lag == 0
        del checkpoint[1:]
        assert values(run(cluster, checkpoint, **query, batches_max=1)) == numbered(30)


def test_those_that_read_are_members_of_the_group(cluster: ThreadedCluster) -> None:
    """Brokers show a task as a member of the group while it reads any of its topics."""
    for topic in ("Members1", "Members2"):
        make(cluster, topic, 1)
        send(cluster, topic, numbered(4))
    given = source(
        cluster, subscribe="Members1,Members2", group="members", startingOffsets="earliest"
    )
    stream = given.streamReader(given.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    (task,) = stream.partitions(start, end)
    came = []
    with cluster.admin() as admin:
        for batch in stream.read(task):
            found = admin.clients.consumers("members")
            assert [member.client_id for member in found.clients] == ["spark:?/?#0"]
            (topic,) = {row["topic"] for row in batch.to_pylist()}
            assert topic in {each.topic for each in found.subscriptions}
            came.append(topic)
    assert came == ["Members1"] * 2 + ["Members2"] * 2
    stream.stop()


def test_a_batch_of_any_plan_is_the_same_batch(
    cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has the same messages, however its queues are shared out and cut into pieces."""
    make(cluster, "Shared", 3)
    send(cluster, "Shared", numbered(60))
    counts, batches = [], []
    plans: list[tuple[int, dict[str, int]]] = [(1000, {}), (25, {}), (1, {})]
    plans += [(1000, {"minPartitions": 12}), (1000, {"maxRecordsPerPartition": 5})]
    for messages, more in plans:
        monkeypatch.setattr(planning, "TASK_MESSAGES", messages)
        given = source(cluster, subscribe="Shared", **more)
        reader = given.reader(given.schema())
        tasks = [rows_of(given, [each]) for each in reader.partitions()]
        rows = [row for task in tasks for row in task]
        counts.append(len(tasks))
        batches.append([(row["broker"], row["queue"], row["offset"], row["value"]) for row in rows])
    assert counts == [1, 3, 6, 12, 12]
    assert all(rows == sorted(batches[0]) for rows in batches)
    assert sorted(value for *_, value in batches[0]) == numbered(60)


def test_large_and_compressed_bodies_are_whole(
    cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies in parts, and compressed ones, come whole."""
    monkeypatch.setattr("mqclient.producing.producer.MESSAGE_BODY_BYTES_MAX", 1000)
    monkeypatch.setattr(limits, "LARGE_PART_BYTES", 400)
    bodies = [random.Random(number).randbytes(3000) for number in range(3)]
    make(cluster, "Bodies", 1)
    with cluster.producer("P") as producer:
        for body in bodies:
            producer.send_large(Message("Bodies", body))
    for name in ("zlib", "lz4", "zstd"):
        with cluster.producer("P", compression=name, compress_from_bytes=0) as producer:
            producer.send(Message("Bodies", name.encode() * 100))
            bodies.append(name.encode() * 100)
    assert values([table(cluster, subscribe="Bodies")]) == sorted(bodies)
    assert len(table(cluster, subscribe="Bodies", columns="offset")) == 6


def test_an_empty_topic_and_none_at_all(cluster: ThreadedCluster) -> None:
    """A stream waits for what comes; Spark reads one partition of a table without any."""
    make(cluster, "Empty")
    checkpoint: Checkpoint = []
    assert run(cluster, checkpoint, subscribe="Empty, Later") == []
    assert table(cluster, subscribe="Empty") == []
    given = source(cluster, subscribe="Empty")
    assert rows_of(given, [None]) == []
    send(cluster, "Later", numbered(3))
    assert values(run(cluster, checkpoint, subscribe="Empty, Later")) == numbered(3)


def test_a_dead_leader_delays_a_batch_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while tasks read: the batch goes on with the next leader, each message once. A broker
    group that is away keeps its place while others are read."""
    monkeypatch.setattr(limits, "PULL_RECORDS_MAX", 20)
    with local_cluster_in_thread(replicas=3) as cluster:
        make(cluster, "Fails", 1)
        send(cluster, "Fails", numbered(200))
        killer = threading.Timer(0.05, cluster.kill)
        killer.start()
        got = run(cluster, [], subscribe="Fails", maxOffsetsPerTrigger=90)
        killer.join()
        assert values(got) == numbered(200)
    with local_cluster_in_thread(replicas=1, groups=2) as cluster:
        make(cluster, "Away", 1)
        send(cluster, "Away", numbered(20))
        checkpoint: Checkpoint = []
        assert values(run(cluster, checkpoint, subscribe="Away")) == numbered(20)
        gone = cluster.kill(cluster.leader(cluster.groups[1]))
        given = source(cluster, subscribe="Away")
        stream = given.streamReader(given.schema())
        send(cluster, "Away", numbered(5, 20))
        end = stream.latestOffset(json.loads(checkpoint[-1]), ReadAllAvailable())
        start = json.loads(checkpoint[-1])
        assert end["Away"][cluster.groups[1]] == start["Away"][cluster.groups[1]]
        partitions = stream.partitions(start, end)
        assert values([rows_of(given, list(partitions), streaming=True)]) == numbered(5, 20)
        stream.stop()
        cluster.restart(gone)
