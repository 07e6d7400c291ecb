"""A group that begins at the "last" message reads queues made later from their first one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from mqclient import Message, PopConsumer
from mqlocal import LocalCluster, local_cluster

WAYS: dict[str, dict[str, Any]] = {
    "shared": {"group": "C"},
    "ordered": {"group": "C", "ordered": True},
    "pattern": {"group": "C", "subscriptions": {re.compile("T.*"): "*"}},
    "popped": {"group": "C"},
    "all": {"group": None, "assign": "all", "offsets": None},
    "file": {"group": None, "assign": "all"},
}
#: A consumer that keeps no offsets begins anew each time, so it is never away.
BOTH = pytest.mark.parametrize(
    ("way", "away"),
    [(way, away) for way in WAYS for away in (False, True) if (way, away) != ("all", True)],
)


class Reader:
    """A consumer of either kind."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def read(self, count: int) -> list[bytes]:
        """The next messages, and what else comes within a moment."""
        got: list[bytes] = []
        with trio.move_on_after(60):
            while len(got) < count:
                got += await self._poll()
        return sorted(got + await self._poll())

    async def _poll(self) -> list[bytes]:
        messages = await self._consumer.poll(timeout_s=5)
        if isinstance(self._consumer, PopConsumer):
            await self._consumer.ack(*messages)
        return [message.body for message in messages]


@asynccontextmanager
async def reader_now(cluster: LocalCluster, way: str, directory: Path) -> AsyncIterator[Reader]:
    options = {"subscriptions": {"T": "*"}, "consume_from": "last", **WAYS[way]}
    if way == "file":
        options["offsets"] = directory / "offsets.json"
    if way == "popped":
        async with PopConsumer(cluster.namesrv_addr, **options) as popping:
            yield Reader(popping)
        return
    async with cluster.consumer(**options) as consumer:
        yield Reader(consumer)


@asynccontextmanager
async def reader(cluster: LocalCluster, way: str, directory: Path) -> AsyncIterator[Reader]:
    """A member that was there for a while."""
    async with reader_now(cluster, way, directory) as member:
        await member.read(0)
        yield member


async def read_of(
    cluster: LocalCluster,
    way: str,
    directory: Path,
    *,
    away: bool,
    change: Callable[[], Awaitable[None]],
    count: int,
    first: Callable[[Reader], Awaitable[object]] | None = None,
) -> list[bytes]:
    """Messages that a group reads after a change: by a member that was there before it and did
    something `first`, or by another one after that."""
    async with reader(cluster, way, directory) as member:
        if first is not None:
            await first(member)
        if not away:
            await change()
            return await member.read(count)
    await change()
    async with reader_now(cluster, way, directory) as member:
        return await member.read(count)


async def send(cluster: LocalCluster, name: str, *queue_ids: int) -> None:
    async with cluster.producer("P") as producer:
        for number in queue_ids:
            await producer.send(Message("T", f"{name} {number}".encode()), queue_id=number)


async def make(cluster: LocalCluster, queues: int, broker: str | None = None) -> None:
    async with cluster.admin() as admin:
        await admin.topics.update("T", broker=broker, read_queues=queues, write_queues=queues)


@BOTH
async def test_queues_that_a_topic_gets_are_read_from_their_first_message(
    way: str, away: bool, tmp_path: Path
) -> None:
    """New queues of a topic are read from their first message, old ones from what is new."""
    async with local_cluster(replicas=1) as cluster:
        await make(cluster, 2)
        await send(cluster, "before", 0, 1)

        async def known(member: Reader) -> None:
            if away and way == "popped":
                await send(cluster, "known", 0, 1)
                await member.read(2)

        async def wider() -> None:
            await make(cluster, 6)
            await send(cluster, "new", *range(6))

        got = await read_of(cluster, way, tmp_path, away=away, change=wider, count=6, first=known)
        assert got == [b"new %d" % number for number in range(6)]


@BOTH
@pytest.mark.parametrize("is_there", [True, False])
async def test_an_empty_or_a_missing_topic_is_read_from_its_first_message(
    way: str, away: bool, is_there: bool, tmp_path: Path
) -> None:
    """The end where a group begins is the end as it came, not as the first message came; nor does
    it matter that no broker had a topic of the group's then."""
    async with local_cluster(replicas=1) as cluster:
        if is_there:
            await make(cluster, 3)

        async def filled() -> None:
            if not is_there:
                await make(cluster, 3)
            await send(cluster, "new", 0, 1, 2)

        got = await read_of(cluster, way, tmp_path, away=away, change=filled, count=3)
        assert got == [b"new 0", b"new 1", b"new 2"]


@pytest.mark.parametrize("way", ["popped", "shared", "ordered", "pattern", "file"])
async def test_what_is_read_of_a_topic_that_appeared_does_not_come_again(
    way: str, tmp_path: Path
) -> None:
    """A group that has gone on is never set back by what it learns about its beginning."""
    async with local_cluster(replicas=1) as cluster:
        async with reader(cluster, way, tmp_path):
            pass
        await make(cluster, 2)
        await send(cluster, "new", 0, 1)
        async with reader_now(cluster, way, tmp_path) as member:
            assert await member.read(2) == [b"new 0", b"new 1"]
            assert [await member.read(0) for _ in range(4)] == [[]] * 4


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("way", ["shared", "popped"])
async def test_queues_on_a_further_broker_group_are_read_from_their_first_message(
    way: str, away: bool, tmp_path: Path
) -> None:
    """A group reads a topic from its first message on a broker group that had none of it."""
    async with local_cluster(replicas=1, groups=2) as cluster:
        first, second = cluster.groups
        await make(cluster, 1, first)
        await send(cluster, "before", 0)

        async def known(member: Reader) -> None:
            await send(cluster, "known", 0)
            assert await member.read(1) == [b"known 0"]

        async def further() -> None:
            await make(cluster, 1, second)
            async with cluster.producer("P") as producer:
                for number in range(4):
                    await producer.send(Message("T", b"new %d" % number))

        got = await read_of(cluster, way, tmp_path, away=away, change=further, count=4, first=known)
        assert got == [b"new %d" % number for number in range(4)]


async def test_a_new_group_begins_where_it_says() -> None:
    """A group that an operator has made begins where its first member says."""
    async with local_cluster(replicas=1) as cluster:
        async with cluster.admin() as admin:
            await admin.groups.update("C")
        await make(cluster, 1)
        await send(cluster, "before", 0)
        async with reader(cluster, "shared", Path()) as member:
            await send(cluster, "after", 0)
            assert await member.read(1) == [b"after 0"]


async def test_a_group_without_members_keeps_its_lag() -> None:
    """A group without members keeps its lag, though it never committed."""
    async with local_cluster(replicas=1) as cluster:
        await make(cluster, 2)
        for group, start in (("C", "last"), ("D", "first")):
            async with cluster.consumer(group, {"T": "*"}, consume_from=start) as consumer:
                assert await consumer.poll(timeout_s=5) == []
        await send(cluster, "new", 0, 1)
        async with cluster.admin() as admin:
            for group in "CD":
                progress = await admin.groups.progress(group)
                lags = {each.queue_id: each.lag for each in progress.queues if each.topic == "T"}
                assert lags == {0: 1, 1: 1}, group
