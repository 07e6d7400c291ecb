"""The client against real brokers: messages lie where it says, and are read as promised.

Every test runs under trio and under asyncio.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest
from clusters import serving_cluster
from loops import both_loops, trio_first

from mqclient import (
    BadMessage,
    BufferFull,
    Consumer,
    Message,
    MessageQueue,
    NoRoute,
    Producer,
    Rebalance,
    ReceivedMessage,
    SendResult,
    blocking,
)


@pytest.fixture(scope="module")
def namesrv_addr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server and three replicas, real processes, without fsync for speed."""
    with serving_cluster(tmp_path_factory.mktemp("cluster"), flush="ASYNC_FLUSH") as cluster:
        yield cluster.layout.namesrv_addr


async def read(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """The next `count` messages by iteration."""
    messages: list[ReceivedMessage] = []
    async for message in consumer:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


def place(message: ReceivedMessage | SendResult) -> tuple[str, int, int, int]:
    return message.broker_name, message.queue_id, message.queue_offset, message.position


@both_loops
async def test_a_message_is_read_as_it_was_sent(namesrv_addr: str, topic: str) -> None:
    """A message comes back with body, keys, tags and properties, at the place of its result."""
    sent = Message(topic, b"hello", keys="k1 k2", tags="A", properties={"colour": "grün"})
    async with Producer(namesrv_addr, "PG") as producer:
        result = await producer.send(sent)
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        (message,) = await read(consumer, 1)
    assert place(result) == place(message)
    assert result.message_id == message.message_id
    assert (topic, b"hello", "k1 k2", "A") == (
        message.topic,
        message.body,
        message.keys,
        message.tags,
    )
    assert message.properties["colour"] == "grün"


@trio_first
async def test_a_batch_is_stored_next_to_each_other(namesrv_addr: str, topic: str) -> None:
    """`send_batch` puts all messages into one queue at consecutive offsets and positions."""
    async with Producer(namesrv_addr, "PG") as producer:
        results = await producer.send_batch([Message(topic, bytes(10)) for _ in range(5)])
        assert len({result.queue_id for result in results}) == 1
        first = results[0].queue_offset
        assert [first + n for n in range(5)] == [r.queue_offset for r in results]
        sizes = {b.position - a.position for a, b in itertools.pairwise(results)}
        assert len(sizes) == 1
        with pytest.raises(BadMessage, match="one topic"):
            await producer.send_batch([Message(topic, b""), Message("Other", b"")])


@both_loops
async def test_handing_over_never_waits(namesrv_addr: str, topic: str) -> None:
    """`send_nowait` wants a known route, and refuses messages beyond the producer's bound."""
    message = Message(topic, b"x")
    async with Producer(namesrv_addr, "PG", pending_max=3) as producer:
        with pytest.raises(NoRoute, match="prepare"):
            producer.send_nowait(message)
        await producer.prepare(topic)
        pending = [producer.send_nowait(message) for _ in range(3)]
        with pytest.raises(BufferFull, match="3 messages"):
            producer.send_nowait(message)
        for each in pending:
            assert (await each.wait()).topic == topic
        assert (await producer.send_nowait(message).wait()).topic == topic


@trio_first
async def test_committed_messages_are_not_delivered_again(namesrv_addr: str, topic: str) -> None:
    """A group goes on after what it processed; the message in hand counts only if committed."""
    async with Producer(namesrv_addr, "PG") as producer:
        for number in range(10):
            await producer.send(Message(topic, b"%d" % number), key="k")
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        assert len(await read(consumer, 4)) == 4
    async with Consumer(namesrv_addr, topic, {topic: "*"}, auto_commit=False) as consumer:
        messages = await read(consumer, 4)
        assert [message.body for message in messages] == [b"3", b"4", b"5", b"6"]
        committed = await consumer.commit()
        assert list(committed.values()) == [7]
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        assert [message.body for message in await consumer.poll(9, 5.0)] == [b"7", b"8", b"9"]


@trio_first
async def test_seek_moves_a_queue(namesrv_addr: str, topic: str) -> None:
    """Reading goes on at the offset of a seek, back or forth."""
    async with Producer(namesrv_addr, "PG") as producer:
        results = [await producer.send(Message(topic, b"x"), key="k") for _ in range(10)]
    queue = MessageQueue(topic, results[0].broker_name, results[0].queue_id)
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        assert len(await read(consumer, 10)) == 10
        consumer.seek(queue, 4)
        assert [message.queue_offset for message in await read(consumer, 2)] == [4, 5]
        consumer.seek(queue, 9)
        assert [message.queue_offset for message in await read(consumer, 1)] == [9]


@both_loops
async def test_members_share_the_queues_and_take_over(namesrv_addr: str, topic: str) -> None:
    """Two members split a topic; when one leaves, the other reads all, and each message once.

    The second joins while the first reads and commits: that must not stall or repeat anything.
    """
    seen: list[bytes] = []
    seen_all = anyio.Event()
    events: list[Rebalance] = []

    async def consume(stop_after: int | None) -> None:
        async with Consumer(
            namesrv_addr, topic, {topic: "*"}, auto_commit=False, on_rebalance=events.append
        ) as consumer:
            while stop_after is None or len(seen) < stop_after:
                seen.extend(message.body for message in await consumer.poll(64, 0.2))
                await consumer.commit()
                if len(set(seen)) == 800:
                    seen_all.set()

    async with Producer(namesrv_addr, "PG") as producer, anyio.create_task_group() as tasks:
        await producer.send(Message(topic, b"0"))
        tasks.start_soon(consume, 400)
        await anyio.sleep(0.5)
        tasks.start_soon(consume, None)
        for number in range(1, 800):
            await producer.send(Message(topic, b"%d" % number))
        await seen_all.wait()
        tasks.cancel_scope.cancel()
    shares = {len([q for q in event.queues if q.topic == topic]) for event in events}
    assert {4, 8} <= shares
    assert any("announced a change of members" in event.cause for event in events)


@both_loops
async def test_a_handler_gets_each_queue_in_order(namesrv_addr: str, topic: str) -> None:
    """`run` handles several queues at a time, each in order; an exception ends it on request."""
    seen: dict[int, list[int]] = {}

    class EnoughError(Exception):
        pass

    async def handle(message: ReceivedMessage) -> None:
        await anyio.lowlevel.checkpoint()
        seen.setdefault(message.queue_id, []).append(message.queue_offset)
        if sum(map(len, seen.values())) == 200:
            raise EnoughError

    async with Producer(namesrv_addr, "PG") as producer:
        for _ in range(200):
            await producer.send_soon(Message(topic, b"x"))
    with pytest.raises(EnoughError):
        async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
            await consumer.run(handle, concurrency=4, on_error="raise")
    assert all(offsets == sorted(set(offsets)) for offsets in seen.values())


def test_the_blocking_face_does_the_same(namesrv_addr: str, topic: str) -> None:
    """Blocking clients send, send soon, send a batch, iterate and commit."""
    with blocking.Producer(namesrv_addr, "PG") as producer:
        first = producer.send(Message(topic, b"0"), key="k")
        soon = [producer.send_soon(Message(topic, b"%d" % n), key="k") for n in range(1, 5)]
        assert [each.result(5).queue_offset for each in soon] == [1, 2, 3, 4]
        batch = producer.send_batch([Message(topic, b"5"), Message(topic, b"6")], key="k")
        assert {first.queue_id} == {each.queue_id for each in batch}
    with blocking.Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        bodies = [message.body for message, _ in zip(consumer, range(5), strict=False)]
        assert bodies == [b"0", b"1", b"2", b"3", b"4"]
        assert len(consumer.commit()) == 1
