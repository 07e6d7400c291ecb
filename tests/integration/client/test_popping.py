"""The POP consumer against a real broker: acks, failures, members, time.

Every test runs under trio and under asyncio, but those of blocking clients.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import anyio
import pytest
from loops import both_loops, trio_first

from dledger.errors import BadInput
from mqclient import (
    Admin,
    ClientClosed,
    Message,
    Nack,
    PopConsumer,
    PoppedMessage,
    Producer,
    SubscriptionConflict,
)
from mqclient.consuming.popping.running import Handler


async def send(namesrv_addr: str, topic: str, count: int, queues: int = 1) -> None:
    """Send messages 0 to `count`."""
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update(topic, read_queues=queues, write_queues=queues)
    async with Producer(namesrv_addr, "PG") as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number))


async def left(namesrv_addr: str, topic: str) -> int:
    """Messages that the group has not acknowledged, or that lie behind such a one."""
    async with Admin(namesrv_addr) as admin:
        return (await admin.groups.progress(topic, topic)).lag


async def run_until(
    done: anyio.Event, consumer: PopConsumer, handler: Handler, concurrency: int = 1
) -> None:
    """Handle messages until an event; the consumer's block is left in order."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(consumer.run, handler, concurrency))
        with anyio.fail_after(20):
            await done.wait()
        tasks.cancel_scope.cancel()


async def taken(consumer: PopConsumer, count: int) -> list[PoppedMessage]:
    """Messages that a consumer polls, until there are `count`."""
    found: list[PoppedMessage] = []
    with anyio.fail_after(10):
        while len(found) < count:
            found += await consumer.poll(count - len(found))
    return found


@both_loops
async def test_a_handler_that_never_waits_gets_through(namesrv_addr: str, topic: str) -> None:
    """A handler that never waits gets through, however far its acks are behind."""
    await send(namesrv_addr, topic, 0)
    async with Producer(namesrv_addr, "PG") as producer:
        for number in range(3000):
            await producer.send_soon(Message(topic, b"%d" % number))
    seen: Counter[bytes] = Counter()
    done = anyio.Event()

    def handle(message: PoppedMessage) -> None:
        seen[message.body] += 1
        if len(seen) == 3000:
            done.set()

    async with PopConsumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        await run_until(done, consumer, handle)
    assert set(seen.values()) == {1}
    assert await left(namesrv_addr, topic) == 0


@both_loops
async def test_a_slow_handler_keeps_its_message(namesrv_addr: str, topic: str) -> None:
    """A slow handler keeps its message for `hold_s`; then another member gets it."""
    await send(namesrv_addr, topic, 1)
    seen: list[int] = []

    async def handle(message: PoppedMessage) -> None:
        seen.append(message.deliveries)
        await anyio.sleep(1.5)
        tasks.cancel_scope.cancel()

    async with (
        PopConsumer(namesrv_addr, topic, {topic: "*"}, invisible_s=0.4) as one,
        PopConsumer(namesrv_addr, topic, {topic: "*"}, invisible_s=0.4) as other,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run, handle)
            tasks.start_soon(other.run, handle)
        assert seen == [1]
    assert await left(namesrv_addr, topic) == 0
    await send(namesrv_addr, topic, 1)
    async with PopConsumer(namesrv_addr, topic, {topic: "*"}, invisible_s=0.4) as one:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(one.run, handle, 4, hold_s=0))
        assert seen[1:3] == [1, 2]


@trio_first
async def test_who_polls_acknowledges(namesrv_addr: str, topic: str) -> None:
    """Acks last, nacks come again, and what is extended stays away; the rest comes by time."""
    await send(namesrv_addr, topic, 4)
    async with PopConsumer(namesrv_addr, topic, {topic: "*"}, invisible_s=0.6) as consumer:
        first = {message.body: message for message in await taken(consumer, 4)}
        await consumer.ack(first[b"0"])
        await consumer.nack(first[b"1"], delay_s=0)
        await consumer.extend(first[b"2"], invisible_s=30)
        (again,) = await taken(consumer, 1)
        assert (again.body, again.deliveries) == (b"1", 2)
        await consumer.ack(again)
        (by_time,) = await taken(consumer, 1)
        assert (by_time.body, by_time.deliveries) == (b"3", 2)
        await consumer.ack(by_time)
        assert await consumer.poll(timeout_s=0.8) == []
        await consumer.ack(first[b"2"])
        assert await left(namesrv_addr, topic) == 0
    with pytest.raises(ClientClosed):
        await consumer.poll()


@both_loops
async def test_what_nobody_had_is_given_back_on_leaving(namesrv_addr: str, topic: str) -> None:
    """The next member need not wait, and it counts as never delivered."""
    await send(namesrv_addr, topic, 20)
    async with PopConsumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        with anyio.move_on_after(5):

            async def stop(message: PoppedMessage) -> None:
                tasks.cancel_scope.cancel()
                await anyio.sleep(1)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(consumer.run, stop, concurrency=4))
    async with PopConsumer(namesrv_addr, topic, {topic: "*"}) as consumer:
        found = await taken(consumer, 20)
        assert {message.body for message in found} == {b"%d" % n for n in range(20)}
        assert {message.deliveries for message in found} == {1}


@trio_first
async def test_an_ordered_queue_is_handled_in_order_by_one_member_at_a_time(
    namesrv_addr: str, topic: str
) -> None:
    """A message that fails is handled again in its place."""
    await send(namesrv_addr, topic, 30)
    seen: list[int] = []
    failed: list[int] = []
    done = anyio.Event()

    async def handle(message: PoppedMessage) -> None:
        number = int(message.body)
        await anyio.sleep(0.005)
        if number == 7 and not failed:
            failed.append(number)
            raise Nack(delay_s=0.1)
        seen.append(number)
        if len(seen) == 30:
            done.set()

    async def member() -> None:
        consumer = PopConsumer(namesrv_addr, topic, {topic: "*"}, ordered=True)
        async with consumer:
            await run_until(done, consumer, handle, 4)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(member)
        tasks.start_soon(member)
    assert seen == list(range(30))


@trio_first
async def test_a_member_that_differs_is_refused(namesrv_addr: str, topic: str) -> None:
    """A member that differs is refused, as one that pulls."""
    await send(namesrv_addr, topic, 1)
    async with PopConsumer(namesrv_addr, topic, {topic: "*"}) as first:
        await first.poll(timeout_s=5)  # until it reads, it counts for nothing
        other = PopConsumer(namesrv_addr, topic, {topic: "A"})
        with pytest.raises(SubscriptionConflict):
            await other.__aenter__()


@pytest.mark.parametrize(
    "wrong",
    [
        {"subscriptions": {}},
        {"invisible_s": 0},
        {"consume_from": "middle"},
        {"retry_delays_s": []},
        {"retry_delays_s": [-1]},
        {"group": "no group"},
    ],
)
def test_parameters_that_can_not_be_are_refused(wrong: dict[str, object]) -> None:
    """A wrong parameter is refused before any connection."""
    values: dict[str, object] = {"group": "CG", "subscriptions": {"T": "*"}}
    with pytest.raises(BadInput):
        PopConsumer("127.0.0.1:1", **(values | wrong))  # type: ignore[arg-type]
