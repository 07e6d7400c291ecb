"""Handlers that fail, against real brokers: no message is lost, and none holds up others.

Every test runs under trio and under asyncio. Levels of delay are shorter than the default's.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import anyio
import pytest
import trio
from clusters import serving_cluster
from loops import both_loops, trio_first

from mqclient import Consumer, Message, Nack, Producer, ReceivedMessage, blocking
from mqclient.admin import UnknownTarget

SETTLED_S = 0.5
LEVELS = "1s 2s 3s 1s 1s 1s 1s"


@pytest.fixture(scope="module")
def namesrv_addr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server and a group of one, real processes, with short delays."""
    folder, settings = tmp_path_factory.mktemp("cluster"), {"messageDelayLevel": LEVELS}
    with serving_cluster(folder, nodes=1, flush="ASYNC_FLUSH", settings=settings) as cluster:
        yield cluster.layout.namesrv_addr


async def send(namesrv_addr: str, topic: str, count: int) -> None:
    """Messages 0 to `count`, all in one queue."""
    async with Producer(namesrv_addr, "PG") as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number), key="one queue")


class Handled:
    """Bodies that a handler saw, in order, with how often each had come again."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, int]] = []

    def note(self, message: ReceivedMessage) -> None:
        self.seen.append((message.body, message.reconsume_times))


async def handle_until(
    consumer: Consumer,
    handler: Callable[[ReceivedMessage], Awaitable[None]],
    done: Callable[[], bool],
    times_max: int | None = None,
) -> None:
    """Run a handler until it returned or raised, and `done` is true."""
    with anyio.CancelScope() as scope:

        async def watched(message: ReceivedMessage) -> None:
            try:
                await handler(message)
            finally:
                if done():
                    scope.deadline = anyio.current_time() + SETTLED_S

        await consumer.run(watched, max_reconsume_times=times_max)


@both_loops
async def test_a_message_whose_handler_fails_comes_again_and_holds_nobody_up(
    namesrv_addr: str, topic: str
) -> None:
    """A message that fails twice is handled at the third time, and holds nobody up."""
    handled = Handled()

    async def handler(message: ReceivedMessage) -> None:
        handled.note(message)
        if message.body == b"3" and message.reconsume_times < 2:
            raise ValueError("not yet")

    await send(namesrv_addr, topic, 10)
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        await handle_until(consumer, handler, lambda: len(handled.seen) == 12)
    assert handled.seen[:10] == [(b"%d" % number, 0) for number in range(10)]
    assert handled.seen[10:] == [(b"3", 1), (b"3", 2)]
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        assert await consumer.poll(timeout_s=1) == [], "all of it was committed"


@trio_first
async def test_who_polls_may_send_a_message_back(namesrv_addr: str, topic: str) -> None:
    """A message of a poll may be nacked; the others count as processed."""
    await send(namesrv_addr, topic, 3)
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        first = await consumer.poll(timeout_s=10)
        while len(first) < 3:
            first += await consumer.poll(timeout_s=10)
        await consumer.nack(first[1], delay_level=1)
        (again,) = await consumer.poll(timeout_s=10)
        assert (again.body, again.reconsume_times, again.topic) == (b"1", 1, topic)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_blocking_face_survives_its_handler_too(
    namesrv_addr: str, topic: str, concurrency: int
) -> None:
    """A blocking handler's failures are retried, in one thread or several; leaving ends `run`."""
    handled = Handled()
    done = threading.Event()
    ended = threading.Event()

    def handler(message: ReceivedMessage) -> None:
        handled.note(message)
        if message.reconsume_times == 1:
            done.set()
        elif message.body == b"1":
            raise Nack(1)

    def run_until_closed(consumer: blocking.Consumer) -> None:
        consumer.run(handler, concurrency)
        ended.set()

    trio.run(send, namesrv_addr, topic, 3)
    with blocking.Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        thread = threading.Thread(target=run_until_closed, args=(consumer,))
        thread.start()
        assert done.wait(20)
    thread.join(20)
    assert ended.is_set()
    assert handled.seen == [(b"0", 0), (b"1", 0), (b"2", 0), (b"1", 1)]


@trio_first
async def test_a_schedule_of_the_groups_own_says_when_a_message_comes_again(
    namesrv_addr: str, topic: str
) -> None:
    """A group's own schedule is in seconds; `Nack(delay_s=...)` goes before it."""
    came: list[float] = []

    async def handler(message: ReceivedMessage) -> None:
        came.append(anyio.current_time())
        if message.reconsume_times == 0:
            raise Nack(delay_s=0.2)
        if message.reconsume_times < 3:
            raise ValueError("not yet")

    await send(namesrv_addr, topic, 1)
    schedule = (60.0, 0.7, 0.3)
    async with Consumer(namesrv_addr, topic, {topic: "*"}, retry_delays_s=schedule) as consumer:
        await handle_until(consumer, handler, lambda: len(came) == 4)
    waits = [after - before for before, after in itertools.pairwise(came)]
    assert all(wait >= least for wait, least in zip(waits, (0.2, 0.7, 0.3), strict=True)), waits
    assert sum(waits) < 10


@both_loops
async def test_a_handler_that_hangs_is_cancelled_and_its_message_comes_again(
    namesrv_addr: str, topic: str
) -> None:
    """A hanging handler is cancelled, and others in its queue are through long before."""
    handled = Handled()

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"3" and message.reconsume_times == 0:
            await anyio.sleep(3600)
        handled.note(message)
        if len(handled.seen) == 20:
            scope.deadline = anyio.current_time() + 0.1

    await send(namesrv_addr, topic, 20)
    async with Consumer(namesrv_addr, topic, {topic: "*"}, retry_delays_s=[0.1]) as consumer:
        with anyio.CancelScope() as scope:
            await consumer.run(handler, 4, order="none", timeout_s=0.5)
    assert handled.seen[-1] == (b"3", 1)
    assert sorted(handled.seen[:-1]) == sorted(
        (b"%d" % number, 0) for number in range(20) if number != 3
    )
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        assert await consumer.poll(timeout_s=0.7) == [], "all of it was committed"


@trio_first
async def test_messages_are_committed_one_by_one_and_the_last_poll_on_leaving(
    namesrv_addr: str, topic: str
) -> None:
    """Messages below a gap are committed, and a block that ends normally commits its last poll."""
    await send(namesrv_addr, topic, 6)
    async with Consumer(namesrv_addr, topic, {topic: "*"}, auto_commit=False) as consumer:
        polled = await poll_count(consumer, 5)
        assert await consumer.commit(polled[1]) == {}
        assert list((await consumer.commit(polled[0])).values()) == [2]
        await consumer.nack(polled[2], delay_s=0.1)
        assert list((await consumer.commit(polled[3])).values()) == [4]
    async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        assert sorted(each.body for each in await poll_count(consumer, 3)) == [b"2", b"4", b"5"]
    with suppress(KeyError):
        async with Consumer(namesrv_addr, f"{topic}-2", {topic: "*"}) as consumer:
            await poll_count(consumer, 6)
            raise KeyError
    async with Consumer(namesrv_addr, f"{topic}-2", {topic: "*"}) as consumer:
        assert len(await poll_count(consumer, 6)) == 6
    async with Consumer(namesrv_addr, f"{topic}-2", {topic: "*"}) as consumer:
        assert await consumer.poll(timeout_s=0.7) == []


async def poll_count(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """Poll until `count` messages have come, by one poll after the other."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += await consumer.poll(count - len(found), timeout_s=10)
    return found


def test_dead_letters_are_listed_and_sent_again_once(namesrv_addr: str, topic: str) -> None:
    """Dead letters are sent again once, as new messages; a dry run sends none."""

    async def dead() -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            for number in range(3):
                message = Message(topic, b"%d" % number, keys=f"k{number}", properties={"a": "b"})
                await producer.send(message)
        seen: list[bytes] = []
        async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
            with anyio.fail_after(10):
                while len(seen) < 3:
                    for message in await consumer.poll(timeout_s=10):
                        seen.append(message.body)
                        await consumer.nack(message, -1)

    trio.run(dead)
    with blocking.Admin(namesrv_addr) as admin:
        letters = admin.dead_letters
        listed = letters.list(topic)
        assert {(each.text, each.keys, each.origin_topic) for each in listed} == {
            ("0", "k0", topic),
            ("1", "k1", topic),
            ("2", "k2", topic),
        }
        planned = letters.redrive(topic, dry_run=True)
        assert planned == listed
        assert letters.redrive(topic, message_id=listed[2].offset_message_id)[0].redriven_as
        assert len(letters.redrive(topic, count=2)) == 2
        assert letters.redrive(topic) == letters.list(topic) == ()
        assert len(letters.list(topic, redriven=True)) == 3
        with pytest.raises(UnknownTarget, match="not in the dead letters"):
            letters.redrive("other", message_id=listed[0].offset_message_id)
        with pytest.raises(UnknownTarget, match="no consumer group"):
            letters.list("nobody")
    with blocking.Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        again = [*consumer.poll(timeout_s=5), *consumer.poll(timeout_s=1)]
        again += consumer.poll(timeout_s=1)
    assert sorted((m.body, m.keys, m.reconsume_times, m.properties["a"]) for m in again) == [
        (b"0", "k0", 0, "b"),
        (b"1", "k1", 0, "b"),
        (b"2", "k2", 0, "b"),
    ]
