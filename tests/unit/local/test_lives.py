"""A topic is deleted and made again while members read it: each gets all of the new topic, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from mqclient import Message, PopConsumer, Rebalance
from mqlocal import LocalCluster, local_cluster

pytestmark = pytest.mark.usefixtures("autojump_clock")

OLD, NEW = 40, 60


async def make(cluster: LocalCluster, *, again: bool = False) -> None:
    async with cluster.admin() as admin:
        if again:
            await admin.topics.delete("T")
        await admin.topics.update("T", read_queues=2, write_queues=2)


async def send(cluster: LocalCluster, name: str, count: int) -> None:
    async with cluster.producer("P") as producer:
        for number in range(count):
            await producer.send(Message("T", f"{name} {number}".encode()), queue_id=number % 2)


def new_bodies(count: int) -> list[bytes]:
    return sorted(f"new {number}".encode() for number in range(count))


async def read(poll: Callable[[], Awaitable[list[Any]]], got: list[bytes], count: int) -> None:
    """Poll until so many messages of the new topic have come."""
    with trio.fail_after(120):
        while len(got) < count:
            got += [each.body for each in await poll() if each.body.startswith(b"new")]


WAYS: dict[str, dict[str, Any]] = {
    "shared": {},
    "last": {"consume_from": "last"},
    "ordered": {"ordered": True},
    "by hand": {"auto_commit": False},
    "all": {"assign": "all", "offsets": None, "consume_from": "last"},
}


@pytest.mark.parametrize("sent", [3, NEW])
@pytest.mark.parametrize("way", WAYS)
async def test_a_running_member_reads_the_new_topic_from_its_first_message(
    way: str, sent: int
) -> None:
    """Whether its old position lies in the new queue or not; no old position is committed."""
    events: list[Rebalance] = []
    async with local_cluster(replicas=1) as cluster:
        await make(cluster)
        group = None if way == "all" else "C"
        consumer = cluster.consumer(group, {"T": "*"}, on_rebalance=events.append, **WAYS[way])
        async with consumer:
            await trio.sleep(5)
            await send(cluster, "old", OLD)
            seen = 0
            while seen < OLD // 2:
                seen += len(await consumer.poll(7, timeout_s=5))
            await make(cluster, again=True)
            await send(cluster, "new", sent)
            got: list[bytes] = []
            await read(lambda: consumer.poll(timeout_s=5), got, sent)
            assert sorted(got) == new_bodies(sent)
            assert await consumer.poll(timeout_s=10) == []
            if group is not None:
                await consumer.commit()
                async with cluster.admin() as admin:
                    progress = await admin.groups.progress("C", "T")
                    assert {each.consumer_offset for each in progress.queues} == {
                        (sent + 1) // 2,
                        sent // 2,
                    }
                    assert progress.lag == 0
    assert events[-1].cause in (
        "its topic was made again",
        "looked again",
        "joined",
        "its lock was lost",
    )


async def test_a_member_that_was_away_reads_the_new_topic(tmp_path: Path) -> None:
    """Its offsets in the file are of the life that is over."""
    async with local_cluster(replicas=1) as cluster:
        await make(cluster)
        await send(cluster, "old", OLD)
        ways: list[dict[str, Any]] = [
            {"group": "C", "consume_from": "last"},
            {"group": None, "assign": "all", "offsets": tmp_path / "offsets.json"},
        ]
        for way in ways:
            async with cluster.consumer(subscriptions={"T": "*"}, **way) as consumer:
                await consumer.poll(timeout_s=5)
                await consumer.commit()
        await make(cluster, again=True)
        await send(cluster, "new", NEW)
        for way in ways:
            async with cluster.consumer(subscriptions={"T": "*"}, **way) as consumer:
                got: list[bytes] = []
                poll = consumer.poll
                await read(lambda poll=poll: poll(timeout_s=5), got, NEW)  # type: ignore[misc]
                assert sorted(got) == new_bodies(NEW)


async def test_a_member_that_pops_acknowledges_nothing_of_the_new_topic() -> None:
    """What it had in hand was of the topic that is gone."""
    async with local_cluster(replicas=1) as cluster:
        await make(cluster)
        async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as consumer:
            await send(cluster, "old", OLD)
            old = await consumer.poll(OLD, timeout_s=5)
            await make(cluster, again=True)
            await send(cluster, "new", NEW)
            await consumer.ack(*old)
            got: list[bytes] = []

            async def poll() -> list[Any]:
                messages = await consumer.poll(timeout_s=5)
                await consumer.ack(*messages)
                return messages

            await read(poll, got, NEW)
            assert sorted(got) == new_bodies(NEW)


async def test_a_handler_of_the_old_topic_finishes_nothing_of_the_new_one() -> None:
    """It returns after the new topic's messages of the same offsets were handed out, and failed."""
    tried: dict[bytes, int] = {}
    again = trio.Event()
    async with local_cluster(replicas=1) as cluster:
        await make(cluster)
        async with (
            cluster.consumer("C", {"T": "*"}) as consumer,
            trio.open_nursery() as nursery,
        ):

            async def handle(message: Any) -> None:
                tried[message.body] = tried.get(message.body, 0) + 1
                if [tried.get(body) for body in new_bodies(4)] == [2, 2, 2, 2]:
                    again.set()
                if message.body.startswith(b"old"):
                    await trio.sleep(60)
                elif tried[message.body] == 1:
                    await trio.sleep(90)
                    raise ValueError

            nursery.start_soon(lambda: consumer.run(handle, 8, order="none"))
            await send(cluster, "old", 4)
            await trio.sleep(5)
            await make(cluster, again=True)
            await send(cluster, "new", 4)
            with trio.fail_after(600):
                await again.wait()
            nursery.cancel_scope.cancel()
