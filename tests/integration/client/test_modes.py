"""Ways of reading, against a real broker: shared, all, chosen queues, patterns, pauses."""

from __future__ import annotations

import re
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
import trio
from loops import both_loops

from dledger.errors import BadInput
from mqclient import (
    Admin,
    Consumer,
    Message,
    MessageQueue,
    NotAssigned,
    Producer,
    ReceivedMessage,
    SubscriptionConflict,
    blocking,
)


async def send(namesrv_addr: str, topic: str, count: int, queues: int = 4) -> None:
    """Send messages 0 to `count`, one queue after the other."""
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update(topic, read_queues=queues, write_queues=queues)
    async with Producer(namesrv_addr, "PG") as producer:
        for number in range(count):
            message = Message(topic, b"%d" % number, keys=f"k{number % 3}")
            await producer.send(message, queue_id=number % queues)


async def take(consumer: Consumer, count: int) -> list[int]:
    """Numbers of `count` messages, and of those that follow within a moment."""
    found: list[int] = []
    while len(found) < count:
        found += [int(message.body) for message in await consumer.poll(timeout_s=10)]
    found += [int(message.body) for message in await consumer.poll(timeout_s=0.2)]
    return sorted(found)


@both_loops
async def test_each_member_reads_everything_and_keeps_its_own_place(
    namesrv_addr: str, topic: str, tmp_path: Path
) -> None:
    """Members that broadcast read everything, two with a file each, and one with none."""

    async def read(name: str | None, count: int) -> list[int]:
        offsets = None if name is None else tmp_path / name
        async with Consumer(
            namesrv_addr, topic, {topic: "*"}, assign="all", offsets=offsets
        ) as consumer:
            return await take(consumer, count)

    await send(namesrv_addr, topic, 8)
    assert await read("one", 8) == await read("two", 8) == [*range(8)]
    await send(namesrv_addr, topic, 2)
    assert await read("one", 2) == [0, 1]
    assert len(await read(None, 10)) == len(await read(None, 10)) == 10
    assert await read("two", 2) == [0, 1]


async def test_chosen_queues_are_read_without_a_group(namesrv_addr: str, topic: str) -> None:
    """Queues are read from the oldest message, the next one or a time, without a group."""
    await send(namesrv_addr, topic, 8)
    await anyio.sleep(0.05)
    between = datetime.now(UTC)
    await send(namesrv_addr, topic, 4)
    queue = MessageQueue(topic, "broker-a", 1)
    for start, expected in (("first", [1, 1, 5]), (between, [1]), ("last", [])):
        async with Consumer(
            namesrv_addr, None, assign=[queue], offsets=None, consume_from=start
        ) as consumer:
            assert await take(consumer, len(expected)) == expected, start
            assert consumer.queues == (queue,)
    with pytest.raises(BadInput, match=f"topicRoute -t {topic}"):
        async with Consumer(
            namesrv_addr, None, assign=[MessageQueue(topic, "broker-a", 9)], offsets=None
        ):
            pass
    async with Admin(namesrv_addr) as admin:
        assert topic not in {group.group for group in await admin.groups.list()}
        assert await admin.groups.of_topic(topic) == ()


async def test_a_queue_is_paused_moved_and_resumed(namesrv_addr: str, topic: str) -> None:
    """A queue is paused and moved, by offset, place or time, while the others go on."""
    await send(namesrv_addr, topic, 8, queues=2)
    zero, one = (MessageQueue(topic, "broker-a", number) for number in (0, 1))
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        assert await take(consumer, 8) == [*range(8)]
        consumer.pause(zero)
        assert consumer.paused() == (zero,)
        assert await consumer.seek_to(zero, "first") == 0
        assert await consumer.seek_to(one, datetime.now(UTC) - timedelta(hours=1)) == 0
        assert await take(consumer, 4) == [1, 3, 5, 7]
        consumer.resume()
        assert await take(consumer, 4) == [0, 2, 4, 6]
        assert await consumer.seek_to(zero, "last") == 4
        with pytest.raises(NotAssigned, match="can't pause"):
            consumer.pause(MessageQueue(topic, "broker-a", 9))


async def test_topics_that_match_are_read_also_if_they_come_later(
    namesrv_addr: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics whose whole names match are read, also later ones, and no others."""
    monkeypatch.setattr("mqclient.limits.PATTERN_POLL_S", 0.1)
    await send(namesrv_addr, f"{topic}-eu", 2)
    await send(namesrv_addr, f"other-{topic}-eu", 2)
    pattern = re.compile(f"{topic}-[a-z]+")
    async with Consumer(namesrv_addr, topic, {pattern: "*"}) as consumer:
        assert await take(consumer, 2) == [0, 1]
        await send(namesrv_addr, f"{topic}-us", 3)
        assert await take(consumer, 3) == [0, 1, 2]


async def test_members_that_differ_are_refused_unless_they_may(
    namesrv_addr: str, topic: str
) -> None:
    """A member that differs is refused with both named, unless it may, or the other has left."""
    await send(namesrv_addr, topic, 0)
    async with Consumer(namesrv_addr, topic, {topic: "a"}) as first:
        await first.poll(timeout_s=0.5)  # until it reads, it counts for nothing
        with pytest.raises(SubscriptionConflict) as refused:
            async with Consumer(namesrv_addr, topic, {topic: "b"}):
                pass
        for told in (first.client_id, f"[{topic} a]", f"[{topic} b]", "same_subscriptions"):
            assert told in str(refused.value)
        async with Consumer(namesrv_addr, topic, {topic: "b"}, same_subscriptions=False):
            pass
        async with Consumer(namesrv_addr, topic, {topic: "a"}):
            pass
    async with Consumer(namesrv_addr, topic, {topic: "b"}):
        pass


async def test_a_member_finishes_what_it_has_before_it_gives_a_queue_up(
    namesrv_addr: str, topic: str
) -> None:
    """A member lets its slow handlers end and commits before it gives a queue up.

    Messages that the new reader began before that commit are handled twice, and none is missed.
    """
    handled, begun = Counter[bytes](), Counter[bytes]()
    still_there: list[bool] = []
    some, done = anyio.Event(), anyio.Event()

    async def handler(message: ReceivedMessage) -> None:
        begun[message.body] += 1
        await anyio.sleep(0.02)
        handled[message.body] += 1
        if len(handled) == 40:
            some.set()
        if len(handled) == 200:
            done.set()

    async def consume() -> None:
        async def revoked(queues: tuple[MessageQueue, ...]) -> None:
            await anyio.sleep(0.05)
            still_there.append(set(queues) <= set(consumer.queues))

        async with Consumer(
            namesrv_addr, topic, {topic: "*"}, assign="sticky", on_revoke=revoked
        ) as consumer:
            await consumer.run(handler, 8, order="none")

    await send(namesrv_addr, topic, 200, queues=8)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await some.wait()
        tasks.start_soon(consume)
        await done.wait()
        await anyio.sleep(0.1)
        assert begun == handled
        tasks.cancel_scope.cancel()
    assert True in still_there
    assert False not in still_there


async def test_a_message_may_be_handled_again_in_its_place(
    namesrv_addr: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended message holds up those behind it in its queue, or of its key, and no others."""
    monkeypatch.setattr("mqclient.limits.SUSPEND_S", 0.1)
    for order, behind in (("queue", range(3, 9)), ("key", (3, 6))):
        seen: list[int] = []

        async def handler(message: ReceivedMessage, seen: list[int] = seen) -> None:
            number = int(message.body)
            seen.append(number)
            if number == 0 and seen.count(0) < 4:
                raise ValueError("not yet")
            if len(set(seen)) == 9:
                scope.cancel()

        group = f"{topic}-{order}"
        await send(namesrv_addr, group, 9, queues=1)
        async with Consumer(namesrv_addr, group, {group: "*"}) as consumer:
            with anyio.CancelScope() as scope:
                await consumer.run(handler, 4, order=order, on_error="suspend")
        last = len(seen) - 1 - seen[::-1].index(0)
        assert seen.count(0) == 4
        assert all(seen.index(number) > last for number in behind), seen
        if order == "key":
            assert all(seen.index(number) < last for number in (1, 2, 4, 5, 7, 8)), seen


def test_the_blocking_face_reads_in_batches_and_is_told_what_it_loses(
    namesrv_addr: str, topic: str
) -> None:
    """`on_revoke` may call the consumer: it runs in a thread of its own."""
    trio.run(send, namesrv_addr, topic, 20, 2)
    sizes: list[int] = []
    told = threading.Event()

    def handler(batch: list[ReceivedMessage]) -> None:
        sizes.append(len(batch))
        if sum(sizes) == 20:
            raise ValueError("enough")

    def revoked(queues: tuple[MessageQueue, ...]) -> None:
        consumer.commit()
        told.set()

    with blocking.Consumer(namesrv_addr, topic, {topic: "*"}, on_revoke=revoked) as consumer:
        with pytest.raises(ValueError, match="enough"):
            consumer.run_batches(handler, 7, on_error="raise")
        assert max(sizes) <= 7
        consumer.pause()
        with blocking.Consumer(namesrv_addr, topic, {topic: "*"}):
            assert told.wait(10)
