"""The client against real brokers: what is sent is where the client says, and is read as promised.

Every test runs under trio and under asyncio.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
import trio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports
from mqclient import (
    BadMessage,
    BufferFull,
    Consumer,
    Message,
    MessageQueue,
    NoReply,
    NoRoute,
    Producer,
    Rebalance,
    ReceivedMessage,
    SendResult,
    Sql,
    blocking,
)

if TYPE_CHECKING:
    from conftest import Run

BOTH_LOOPS = pytest.mark.parametrize("run", ["trio", "asyncio"], indirect=True)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def namesrv_addr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server and three replicas, real processes, without fsync for speed."""
    directory: Path = tmp_path_factory.mktemp("cluster") / "c"
    layout = plan(free_ports(ports_needed(3, 1, 1)), 3, 1, 1, "ASYNC_FLUSH")
    with Cluster.create(directory, layout).running() as cluster:
        trio.run(serving, cluster)
        yield layout.namesrv_addr


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


def test_a_consumer_gets_what_its_sql_expression_is_true_for(
    run: Run, namesrv_addr: str, topic: str
) -> None:
    """By the properties that senders gave; the broker leaves the others out."""

    async def main() -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            for amount in range(10):
                properties = {"amount": str(amount)}
                await producer.send(Message(topic, b"%d" % amount, properties=properties))
        wanted = {topic: Sql("amount BETWEEN 3 AND 5")}
        async with Consumer(namesrv_addr, topic, wanted) as consumer:
            messages = await read(consumer, 3)
            assert sorted(message.body for message in messages) == [b"3", b"4", b"5"]
            assert await consumer.poll(timeout_s=0.3) == []

    run(main)


def test_a_request_gets_the_reply_of_who_consumes_it(
    run: Run, namesrv_addr: str, topic: str
) -> None:
    """Its own one, of several that wait; without an answer in time the request says so."""

    async def answer(*, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        async with (
            Producer(namesrv_addr, "Repliers") as replier,
            Consumer(namesrv_addr, topic, {topic: "asked"}) as consumer,
        ):
            task_status.started()
            async for message in consumer:
                await replier.reply(message, message.body.upper(), properties={"mood": "good"})

    async def main() -> None:
        replies: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            asked = Message(topic, b"question %d" % number, tags="asked")
            reply = await producer.request(asked, timeout_s=10)
            assert reply.properties["mood"] == "good"
            replies[number] = reply.body

        async with Producer(namesrv_addr, "PG") as producer, anyio.create_task_group() as tasks:
            await producer.send(Message(topic, b"makes the topic"))
            await tasks.start(answer)
            async with anyio.create_task_group() as asking:
                for number in range(5):
                    asking.start_soon(ask, number)
            assert replies == {number: b"QUESTION %d" % number for number in range(5)}
            with pytest.raises(NoReply):
                await producer.request(Message(topic, b"anybody?"), timeout_s=0.3)
            async with Consumer(namesrv_addr, topic + "G", {topic: "*"}) as consumer:
                sent = await read(consumer, 7)
            (unasked,) = [message for message in sent if message.body == b"makes the topic"]
            with pytest.raises(BadMessage, match="asks for no reply"):
                await producer.reply(unasked, b"answer")
            tasks.cancel_scope.cancel()

    run(main)


@BOTH_LOOPS
def test_a_message_is_read_as_it_was_sent(run: Run, namesrv_addr: str, topic: str) -> None:
    """Body, keys, tags and properties come back, at the place that `send` named."""

    async def main() -> None:
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

    run(main)


def test_messages_with_one_key_keep_their_order(run: Run, namesrv_addr: str, topic: str) -> None:
    """Pipelined sends of a key share a queue and lie there in the order of the calls."""

    async def main() -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            pending = [
                (n % 7, await producer.send_soon(Message(topic, b"x"), key=f"key-{n % 7}"))
                for n in range(2000)
            ]
            results = [(key, await each.wait()) for key, each in pending]
        for key in range(7):
            mine = [result for each, result in results if each == key]
            assert len({result.queue_id for result in mine}) == 1
            offsets = [result.queue_offset for result in mine]
            assert sorted(set(offsets)) == offsets

    run(main)


def test_a_batch_is_stored_next_to_each_other(run: Run, namesrv_addr: str, topic: str) -> None:
    """`send_batch` puts all messages into one queue at consecutive offsets and positions."""

    async def main() -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            results = await producer.send_batch([Message(topic, bytes(10)) for _ in range(5)])
            assert len({result.queue_id for result in results}) == 1
            first = results[0].queue_offset
            assert [first + n for n in range(5)] == [r.queue_offset for r in results]
            sizes = {b.position - a.position for a, b in itertools.pairwise(results)}
            assert len(sizes) == 1
            with pytest.raises(BadMessage, match="one topic"):
                await producer.send_batch([Message(topic, b""), Message("Other", b"")])

    run(main)


@BOTH_LOOPS
def test_handing_over_never_waits(run: Run, namesrv_addr: str, topic: str) -> None:
    """`send_nowait` wants a known route, and refuses beyond the producer's bound."""

    async def main() -> None:
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

    run(main)


def test_a_repeated_unique_key_is_stored_once(run: Run, namesrv_addr: str, topic: str) -> None:
    """A message sent again under its own unique key is answered with the first copy's place."""

    async def main() -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            message = Message(topic, b"once", unique_key=f"{topic}-0001")
            first = await producer.send(message, queue_id=3, alone=True)
            second = await producer.send(message, queue_id=3, alone=True)
            assert place(first) == place(second)

    run(main)


def test_only_wanted_tags_are_read(run: Run, namesrv_addr: str, topic: str) -> None:
    """A tag subscription gets its tags only, and commits past what it does not want."""

    async def main() -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            for number in range(30):
                await producer.send(Message(topic, b"%d" % number, tags="ABC"[number % 3]), key="k")
        async with Consumer(namesrv_addr, topic, {topic: "A || C"}) as consumer:
            messages = await read(consumer, 20)
            assert {"A", "C"} == {message.tags for message in messages}
            await consumer.commit()
        async with Consumer(namesrv_addr, topic, {topic: "A || C"}) as consumer:
            assert await consumer.poll(10, 0.5) == []

    run(main)


def test_oneway_messages_arrive(run: Run, namesrv_addr: str, topic: str) -> None:
    """One-way sends are not acknowledged; with healthy brokers they are stored all the same."""

    async def main() -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            await producer.prepare(topic)
            for number in range(50):
                producer.send_oneway(Message(topic, b"%d" % number))
            await producer.flush()
        async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
            assert len(await read(consumer, 50)) == 50

    run(main)


def test_committed_messages_are_not_delivered_again(
    run: Run, namesrv_addr: str, topic: str
) -> None:
    """A group goes on after what it processed; the message in hand counts only if committed."""

    async def main() -> None:
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

    run(main)


def test_seek_moves_a_queue(run: Run, namesrv_addr: str, topic: str) -> None:
    """After a seek reading goes on at that offset, back or forth."""

    async def main() -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            results = [await producer.send(Message(topic, b"x"), key="k") for _ in range(10)]
        queue = MessageQueue(topic, results[0].broker_name, results[0].queue_id)
        async with Consumer(namesrv_addr, topic, {topic: "*"}) as consumer:
            assert len(await read(consumer, 10)) == 10
            consumer.seek(queue, 4)
            assert [message.queue_offset for message in await read(consumer, 2)] == [4, 5]
            consumer.seek(queue, 9)
            assert [message.queue_offset for message in await read(consumer, 1)] == [9]

    run(main)


@BOTH_LOOPS
def test_members_share_the_queues_and_take_over(run: Run, namesrv_addr: str, topic: str) -> None:
    """Two members split a topic; when one leaves, the other reads all, and each message once.

    The second joins while the first reads and commits: that must not stall or repeat anything.
    """

    async def main() -> None:
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

    run(main)


@BOTH_LOOPS
def test_a_handler_gets_each_queue_in_order(run: Run, namesrv_addr: str, topic: str) -> None:
    """`run` handles several queues at a time, each in order; an exception ends it on request."""

    async def main() -> None:
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

    run(main)


def test_the_blocking_face_does_the_same(namesrv_addr: str, topic: str) -> None:
    """Without an event loop: send, send soon, send a batch, iterate, commit."""
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
