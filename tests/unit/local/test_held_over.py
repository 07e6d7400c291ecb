"""What members hold of a topic that is deleted and made again: it ends with the old topic.

A model: each member has messages of the old topic in one of the states that there are, the topic is
made again, and the member goes on. Whatever it does with them, the new topic is not touched by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mqclient import ClientError, Message, PopConsumer
from mqlocal import LocalCluster, local_cluster

QUEUES, OLD = 2, 40
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
    "chosen": puller(group=None, assign="all", offsets=None),
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
    """Finish it, or send it back, or forget it."""
    with suppress(ClientError):
        if choice == 0 and way not in ("chosen", "file"):
            await consumer.nack(message)
        elif choice == 1:
            await (consumer.ack if way == "pop" else consumer.commit)(message)


@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("new", [3, 60])
@pytest.mark.parametrize("way", WAYS)
async def test_what_is_held_of_the_old_topic_ends_with_it(
    way: str, new: int, paused: bool, autojump_clock: MockClock, tmp_path: Path
) -> None:
    """Fetched, handed out, committed, sent back: nothing of it counts, nothing new is missed."""
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
