"""Messages of a deleted topic that members hold end with it, when it is made again.

A model: each member has messages of the old topic in one of the states that there are, the topic is
made again, and the member goes on. Nothing that it does with them touches the new topic.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from mqclient import ClientError, Message, PopConsumer, Rebalance
from mqlocal import LocalCluster, local_cluster

QUEUES, OLD = 2, 40
NEW = [b"new %d" % number for number in range(4)]
Make = Callable[[LocalCluster, Path], Any]


def puller(**settings: Any) -> Make:
    return lambda cluster, path: cluster.consumer(
        **{"group": "G", "subscriptions": {"T": "*"}, **settings}
    )


WAYS: dict[str, Make] = {
    "pull": puller(),
    "full": puller(prefetch_messages=4),
    "by hand": puller(auto_commit=False),
    "ordered": puller(ordered=True),
    "last": puller(consume_from="last"),
    "chosen": puller(group=None, assign="all", offsets=None, consume_from="last"),
    "file": lambda cluster, path: cluster.consumer(
        "G", {"T": "*"}, assign="all", offsets=path / "offsets"
    ),
    "pop": lambda cluster, _: PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}, invisible_s=600),
}


async def made(cluster: LocalCluster, *, again: bool = False) -> None:
    async with cluster.admin() as admin:
        if again:
            await admin.topics.delete("T")
        await admin.topics.update("T", read_queues=QUEUES, write_queues=QUEUES)


async def send(cluster: LocalCluster, name: str, count: int) -> list[bytes]:
    bodies = [f"{name} {number}".encode() for number in range(count)]
    async with cluster.producer("P") as producer:
        for number, body in enumerate(bodies):
            await producer.send(Message("T", body), queue_id=number % QUEUES)
    return sorted(bodies)


async def use(consumer: Any, way: str, message: Any, choice: int) -> None:
    """Finish a message, or send it back, or forget it."""
    with suppress(ClientError):
        if choice == 0 and way not in ("chosen", "file"):
            await consumer.nack(message)
        elif choice == 1:
            await (consumer.ack if way == "pop" else consumer.commit)(message)


@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("new", [3, 60])
@pytest.mark.parametrize("way", WAYS)
async def test_what_is_held_of_the_old_topic_ends_with_it(
    way: str, new: int, paused: bool, tmp_path: Path
) -> None:
    """Messages of the old topic, in any state, count for nothing, and no new one is missed."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    async with local_cluster(replicas=1) as cluster:
        await made(cluster)
        async with WAYS[way](cluster, tmp_path) as consumer:
            await trio.sleep(3)
            await send(cluster, "old", OLD)
            in_hand = [*await consumer.poll(draw.randint(1, 9), timeout_s=5)]
            await trio.sleep(3)
            if paused and way != "pop":
                consumer.pause()
            await made(cluster, again=True)
            bodies = await send(cluster, "new", new)
            await trio.sleep(3)
            if paused and way != "pop":
                consumer.resume()
            got: list[bytes] = []
            stale: list[bytes] = []
            with trio.fail_after(200):
                while len(set(got)) < new:
                    for message in in_hand:
                        await use(consumer, way, message, draw.randint(0, 2))
                    in_hand = []
                    for message in await consumer.poll(draw.randint(1, 9), timeout_s=2):
                        is_new = message.body.startswith(b"new")
                        (got if is_new else stale).append(message.body)
                        if is_new and way == "pop":
                            await consumer.ack(message)
                        if not is_new:
                            in_hand.append(message)
            if way == "by hand":
                await consumer.commit()
        assert len(stale) < OLD // 2, "what was fetched ahead is dropped, but for a full consumer's"
        assert sorted(got) == bodies
        async with cluster.admin() as admin:
            assert "%DLQ%G" not in await admin.topics.list()
            if way not in ("chosen", "file"):
                progress = await admin.groups.progress("G", "T")
                assert progress.lag == 0
                assert sum(each.consumer_offset for each in progress.queues) == new
            retry = [name for name in await admin.topics.list() if name == "%RETRY%G"]
            for name in retry:
                assert sum(q.max_offset for q in (await admin.topics.status(name)).queues) == 0


async def test_a_member_that_was_away_reads_the_new_topic(tmp_path: Path) -> None:
    """The member's offsets in the file are of the topic's life that is over."""
    async with local_cluster(replicas=1) as cluster:
        await made(cluster)
        await send(cluster, "old", OLD)
        ways: list[dict[str, Any]] = [
            {"group": "C", "consume_from": "last"},
            {"group": None, "assign": "all", "offsets": tmp_path / "offsets.json"},
        ]
        for way in ways:
            async with cluster.consumer(subscriptions={"T": "*"}, **way) as consumer:
                await consumer.poll(timeout_s=5)
                await consumer.commit()
        await made(cluster, again=True)
        bodies = await send(cluster, "new", 60)
        for way in ways:
            async with cluster.consumer(subscriptions={"T": "*"}, **way) as consumer:
                got: list[bytes] = []
                with trio.fail_after(120):
                    while len(got) < len(bodies):
                        got += [message.body for message in await consumer.poll(timeout_s=5)]
                assert sorted(got) == bodies


async def test_a_handler_of_the_old_topic_finishes_nothing_of_the_new_one() -> None:
    """The handler returns after the new topic's messages of the same offsets failed."""
    events: list[Rebalance] = []
    tried: dict[bytes, int] = {}
    again = trio.Event()
    async with local_cluster(replicas=1) as cluster:
        await made(cluster)
        async with (
            cluster.consumer("C", {"T": "*"}, on_rebalance=events.append) as consumer,
            trio.open_nursery() as nursery,
        ):

            async def handle(message: Any) -> None:
                tried[message.body] = tried.get(message.body, 0) + 1
                if [tried.get(body) for body in NEW] == [2] * len(NEW):
                    again.set()
                if message.body.startswith(b"old"):
                    await trio.sleep(60)
                elif tried[message.body] == 1:
                    await trio.sleep(90)
                    raise ValueError

            nursery.start_soon(lambda: consumer.run(handle, 8, order="none"))
            await send(cluster, "old", 4)
            await trio.sleep(5)
            await made(cluster, again=True)
            await send(cluster, "new", len(NEW))
            with trio.fail_after(600):
                await again.wait()
            nursery.cancel_scope.cancel()
    assert "its topic was made again" in {event.cause for event in events}
