"""Columns sent to a real cluster in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pyarrow as pa
import pytest

from mqclient import (
    BadMessage,
    BulkWriter,
    Columns,
    MessageQueue,
    RangeReader,
    ReceivedMessage,
    SendFailed,
)
from mqclient.blocking import BulkWriter as BlockingWriter
from mqclient.bulk.models import RecordsBatch
from mqclient.models import messages_in
from mqlocal import LocalCluster, local_cluster, local_cluster_in_thread


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with local_cluster(groups=2, replicas=1) as cluster:
        yield cluster


async def stored(cluster: LocalCluster, topic: str) -> dict[MessageQueue, list[ReceivedMessage]]:
    """Messages of a topic, by queue."""
    found: dict[MessageQueue, list[ReceivedMessage]] = {}
    async with RangeReader(cluster.namesrv_addr) as reader:
        for queue, bounds in (await reader.bounds(topic)).queues.items():
            at = bounds.begin
            while at < bounds.end:
                piece = await reader.read(queue, at, bounds.end)
                at = piece.next_offset
                if piece.table is not None:
                    messages = messages_in(bytes(piece.table.buffer), queue.broker_name)
                    found.setdefault(queue, []).extend(messages)
    return found


async def test_rows_are_stored_once_in_the_order_of_their_keys(cluster: LocalCluster) -> None:
    """A key's rows are in one queue of two broker groups, in order, whichever call they came by."""
    async with BulkWriter(cluster.namesrv_addr) as writer:
        for begin in range(0, 3000, 1000):
            numbers = range(begin, begin + 1000)
            bodies = pa.array([b"%d" % number for number in numbers])
            keys = pa.array([f"k{number % 7}" for number in numbers])
            await writer.write("T", Columns(bodies, keys, tags=["t"] * 1000))
        await writer.flush()
        assert (writer.rows, writer.bytes > 3000 * 91) == (3000, True)
    found = await stored(cluster, "T")
    assert len({queue.broker_name for queue in found}) == 2
    by_key: dict[str, list[int]] = {}
    for messages in found.values():
        for message in messages:
            by_key.setdefault(message.keys, []).append(int(message.body))
            assert message.tags == "t"
    assert by_key == {f"k{key}": [*range(key, 3000, 7)] for key in range(7)}


async def test_who_reads_faster_than_brokers_store_is_held_back(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer holds back its caller at a number of bytes under way, however much is written."""
    highest = 0
    hand_over = BulkWriter._hand_over

    async def watched(writer: BulkWriter, batch: RecordsBatch) -> None:
        nonlocal highest
        await hand_over(writer, batch)
        highest = max(highest, writer._pending_bytes)

    monkeypatch.setattr(BulkWriter, "_hand_over", watched)
    async with BulkWriter(cluster.namesrv_addr, pending_bytes_max=3 << 20) as writer:
        for _ in range(4):
            await writer.write("T", Columns([bytes(64 << 10)] * 64))
        assert writer.rows >= 4 * 64 - 3 * 16
    assert 1 << 20 < highest <= 3 << 20
    assert sum(map(len, (await stored(cluster, "T")).values())) == 4 * 64


async def test_a_row_that_can_not_be_sent_ends_its_call_only(cluster: LocalCluster) -> None:
    """A wrong row ends its call before anything is sent, and the writer goes on."""
    async with BulkWriter(cluster.namesrv_addr) as writer:
        with pytest.raises(BadMessage, match="row 2 of the columns for topic 'T': no body"):
            await writer.write("T", Columns([b"0", b"1", None]))
        await writer.write("T", Columns([b"3"]))
    found = await stored(cluster, "T")
    assert [bytes(each.body) for messages in found.values() for each in messages] == [b"3"]


async def test_nothing_is_sent_behind_a_gap(cluster: LocalCluster) -> None:
    """A batch that is refused ends the writer, with a reason; later calls raise the same."""
    async with cluster.admin() as admin:
        await admin.topics.update("R", read_queues=1, write_queues=1)
    writer = await BulkWriter(cluster.namesrv_addr).open()
    await writer.write("R", Columns([b"1"]))
    await writer.flush()
    async with cluster.admin() as admin:
        await admin.topics.update("R", read_queues=1, write_queues=1, perm=4)
    await writer.write("R", Columns([b"2"]))
    for call in (writer.flush, writer.flush, writer.close):
        with pytest.raises(SendFailed, match="1 rows from row 0 on: code") as raised:
            await call()
        assert raised.value.definite
    found = await stored(cluster, "R")
    assert [bytes(each.body) for messages in found.values() for each in messages] == [b"1"]


def test_a_program_without_an_event_loop_sends_columns() -> None:
    """Leaving the block waits until all is stored."""
    with local_cluster_in_thread(replicas=1) as cluster:
        with BlockingWriter(cluster.namesrv_addr) as writer:
            writer.write("T", Columns([b"1", b"2"], key=["a", "a"]))
        found = anyio.run(stored, cluster, "T")
        assert [[bytes(each.body) for each in messages] for messages in found.values()] == [
            [b"1", b"2"]
        ]
