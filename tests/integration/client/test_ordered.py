"""Ordered consumers against a real broker: one at a time has a queue, and its order is kept."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
import trio

from dledger.addresses import parse_address
from dledger.net import connect_peer
from dledger.remoting.bodies import LockBatchBody, encode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from mqclient import (
    Admin,
    Consumer,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    blocking,
)

QUEUES, PER_QUEUE = 4, 30


async def send(namesrv_addr: str, topic: str, per_queue: int) -> None:
    """Messages that say their place in their queue, with one of three keys."""
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update(topic, read_queues=QUEUES, write_queues=QUEUES)
    async with Producer(namesrv_addr, "PG") as producer:
        for place in range(per_queue):
            for queue_id in range(QUEUES):
                message = Message(topic, b"%d" % place, keys=f"k{place % 3}")
                await producer.send(message, queue_id=queue_id)


@pytest.mark.parametrize("order", ["queue", "key"])
def test_order_is_kept_while_members_come_and_go_and_handlers_fail(
    namesrv_addr: str, topic: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of a queue or a key are handled one at a time and in order, over three members.

    Two of them are cancelled in the middle. Of a queue none comes twice; of a key those may that
    were finished above a gap, and then in their order again.
    """
    monkeypatch.setattr("mqclient.limits.SUSPEND_S", 0.01)
    rng = random.Random(7)
    handled: dict[object, list[int]] = defaultdict(list)
    under_way: set[object] = set()
    widest = 0
    leaving: dict[int, trio.CancelScope] = {}
    done = trio.Event()

    async def handler(message: ReceivedMessage) -> None:
        nonlocal widest
        lane = (message.queue_id, message.keys if order == "key" else "")
        assert lane not in under_way
        under_way.add(lane)
        widest = max(widest, sum(key[0] == message.queue_id for key in under_way))
        try:
            await trio.sleep(rng.uniform(0, 0.02))
            if rng.random() < 0.05:
                raise ValueError("not this time")
        finally:
            under_way.remove(lane)
        handled[lane].append(int(message.body))
        total = sum(len(set(places)) for places in handled.values())
        if total in leaving:
            leaving.pop(total).cancel()
        if total == QUEUES * PER_QUEUE:
            done.set()

    async def consume(leaves_at: int) -> None:
        async with Consumer(namesrv_addr, topic, {topic: "*"}, ordered=True) as consumer:
            with trio.CancelScope() as scope:
                leaving[leaves_at] = scope
                await consumer.run(handler, 12, order=order)  # type: ignore[arg-type]

    async def main() -> None:
        await send(namesrv_addr, topic, PER_QUEUE)
        with trio.fail_after(40):
            async with trio.open_nursery() as nursery:
                for leaves_at in (40, 75, 10**9):
                    nursery.start_soon(consume, leaves_at)
                    await trio.sleep(0.1)
                await done.wait()
                await trio.sleep(0.1)
                nursery.cancel_scope.cancel()

    trio.run(main)
    for lane, places in handled.items():
        step = 3 if order == "key" else 1
        for number, place in enumerate(places):
            assert place < step or place - step in places[:number], (lane, places)
        assert order == "key" or len(places) == len(set(places)), (lane, places)
    assert (widest > 1) == (order == "key")


async def unlock(namesrv_addr: str, group: str, client_id: str, topic: str) -> None:
    """End a member's locks behind its back, as their time would."""
    async with Admin(namesrv_addr) as admin:
        (broker,) = await admin.brokers.list()
    queues = [MessageQueue(topic, "broker-a", queue_id) for queue_id in range(QUEUES)]
    body = encode_body(LockBatchBody(group, client_id, queues))
    async with connect_peer(*parse_address(broker.address), 3) as peer:
        await peer.request(Command(RequestCode.UNLOCK_BATCH_MQ, {}, body), 3)


def progress(namesrv_addr: str, group: str, queue: MessageQueue) -> int:
    with blocking.Admin(namesrv_addr) as admin:
        queues = admin.groups.progress(group, queue.topic).queues
    return next(each.consumer_offset for each in queues if each.queue_id == queue.queue_id)


def test_a_member_that_stood_still_past_its_lock_is_fenced(namesrv_addr: str, topic: str) -> None:
    """A member whose event loop stood still past its lock commits nothing, and gives the queue up.

    It has messages in flight; its locks end, another member takes one and goes on.
    """
    trio.run(send, namesrv_addr, topic, 3)
    causes: list[str] = []
    goes_on = threading.Event()
    with (
        ThreadPoolExecutor(2) as threads,
        blocking.Consumer(
            namesrv_addr,
            topic,
            {topic: "*"},
            ordered=True,
            auto_commit=False,
            on_rebalance=lambda event: causes.append(event.cause),
        ) as old,
    ):
        held: dict[MessageQueue, ReceivedMessage] = {}
        while len(held) < QUEUES:
            for message in old.poll(timeout_s=5):
                held.setdefault(message.queue, message)
        assert old.commit(held[MessageQueue(topic, "broker-a", 0)])
        threads.submit(old.portal.call, goes_on.wait, 15)
        trio.run(unlock, namesrv_addr, topic, old.client_id, topic)
        with blocking.Consumer(namesrv_addr, topic, {topic: "*"}, ordered=True) as new:
            polled: list[ReceivedMessage] = []
            while not any(message.queue_id for message in polled):
                polled += new.poll(timeout_s=10)
            queue = next(message.queue for message in polled if message.queue_id)
            end = max(message.queue_offset for message in polled if message.queue == queue) + 1
            new.commit()
            assert progress(namesrv_addr, topic, queue) == end
            late = threads.submit(old.commit, held[queue])
            goes_on.set()
            assert late.result(10) == {}
            assert progress(namesrv_addr, topic, queue) == end
            assert queue in new.queues
        assert "its lock was lost" in causes


async def test_a_poisonous_message_blocks_its_queue_or_is_given_up(
    namesrv_addr: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing message blocks its queue for ever, or is given up after N tries; others go on."""
    monkeypatch.setattr("mqclient.limits.SUSPEND_S", 0.01)
    await send(namesrv_addr, topic, 5)
    for times_max, expected in ((None, [0, 5, 5, 5]), (2, [4, 5, 5, 5])):
        handled: dict[int, list[int]] = defaultdict(list)
        tries = 0

        async def handler(
            message: ReceivedMessage, handled: dict[int, list[int]] = handled
        ) -> None:
            nonlocal tries
            if (message.queue_id, message.body) == (0, b"0"):
                tries += 1
                raise ValueError("poison")
            handled[message.queue_id].append(int(message.body))

        group = f"{topic}-{times_max}"
        async with Consumer(namesrv_addr, group, {topic: "*"}, ordered=True) as consumer:
            with anyio.move_on_after(1):
                await consumer.run(handler, 8, max_reconsume_times=times_max)
        assert [len(handled[queue_id]) for queue_id in range(QUEUES)] == expected
        assert tries == 3 if times_max == 2 else tries > 3
    async with Admin(namesrv_addr) as admin:
        (letter,) = await admin.dead_letters.list(f"{topic}-2")
        assert (letter.text, letter.origin_topic) == ("0", topic)


async def test_who_polls_is_let_finish_before_its_queues_are_anothers(
    namesrv_addr: str, topic: str
) -> None:
    """A second member joins while the first is busy with a poll: it gets only what is behind."""
    await send(namesrv_addr, topic, 5)
    seen: list[tuple[int, bytes]] = []
    async with Consumer(namesrv_addr, topic, {topic: "*"}, ordered=True) as first:
        while len(seen) < QUEUES * 5:
            seen += [(m.queue_id, m.body) for m in await first.poll(timeout_s=5)]
        async with Consumer(namesrv_addr, topic, {topic: "*"}, ordered=True) as second:
            began = trio.current_time()
            assert await second.poll(timeout_s=0.7) == [], "the first one is busy"
            assert await first.poll(timeout_s=0.1) == []
            with trio.fail_after(5):
                while not second._locks.leases.queues():  # type: ignore[union-attr]
                    await second.poll(timeout_s=0.1)
            assert 0.7 <= trio.current_time() - began < 4
            assert await second.poll(timeout_s=0.3) == []
