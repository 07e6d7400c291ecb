"""Reading queues by ranges of offsets, beside a real cluster in memory."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
import trio

from mqclient import BadInput, Message, MessageQueue, NoLeader, Piece, RangeReader, Refused, Sql
from mqclient.ranges.pieces import DELETED, MADE_AGAIN, TRUNCATED
from mqlocal import LocalCluster, local_cluster

SEED = 39


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with local_cluster(replicas=1) as cluster:
        yield cluster


async def send(cluster: LocalCluster, topic: str, bodies: list[bytes], **more: object) -> None:
    async with cluster.producer("P") as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **more), queue_id=0)  # type: ignore[arg-type]


async def read_all(reader: RangeReader, queue: MessageQueue, begin: int, end: int) -> list[Piece]:
    pieces = []
    while begin < end:
        pieces.append(await reader.read(queue, begin, end))
        begin = pieces[-1].next_offset
    return pieces


def offsets_in(pieces: list[Piece]) -> list[int]:
    return [offset for piece in pieces if piece.table for offset in piece.table.offsets]


async def test_any_range_is_read_exactly(cluster: LocalCluster) -> None:
    """A range has each of its messages once and nothing beyond, for any ends and pulls."""
    rng = random.Random(SEED)
    await send(cluster, "T", [rng.randbytes(rng.randrange(3000)) for _ in range(60)])
    async with RangeReader(cluster.namesrv_addr) as reader:
        ((queue, bounds), *_) = (await reader.bounds("T")).queues.items()
        assert (bounds.begin, bounds.end) == (0, 60)
        assert bounds.life > 0
        for _ in range(40):
            begin, end = sorted(rng.sample(range(61), 2))
            at, found, size = begin, [], rng.choice([1, 2000, 100_000])
            while at < end:
                piece = await reader.read(queue, at, end, life=bounds.life, size_bytes=size)
                assert piece.next_offset > at
                assert not piece.gaps
                at, found = piece.next_offset, [*found, piece]
            assert at == end
            assert offsets_in(found) == [*range(begin, end)]


async def test_a_range_without_offsets_is_read_at_once(cluster: LocalCluster) -> None:
    """An empty range is read at once, also of an empty queue; a wrong range is refused."""
    await send(cluster, "T", [b"x"] * 3)
    async with RangeReader(cluster.namesrv_addr) as reader:
        began = trio.current_time()
        for queue, bounds in (await reader.bounds("T")).queues.items():
            piece = await reader.read(queue, bounds.end, bounds.end, life=bounds.life)
            assert piece == Piece(bounds.end)
        assert trio.current_time() - began < 1
        for begin, end in ((2, 1), (-1, 1)):
            with pytest.raises(BadInput, match=f"offsets {begin} to {end} are not a range"):
                await reader.read(queue, begin, end)


async def test_a_broker_filters_and_the_range_still_ends(cluster: LocalCluster) -> None:
    """A range with a filter, by tags or SQL92, ends also if nothing matches."""
    async with cluster.producer("P") as producer:
        for number in range(30):
            message = Message("T", b"", tags="AB"[number % 2], properties={"n": str(number)})
            await producer.send(message, queue_id=0)
    async with RangeReader(cluster.namesrv_addr) as reader:
        queue = MessageQueue("T", cluster.groups[0], 0)
        for expression, wanted in [
            ("A", [*range(0, 30, 2)]),
            ("C", []),
            (Sql("n >= 10 AND n < 13"), [10, 11, 12]),
        ]:
            at, found = 0, []
            while at < 30:
                piece = await reader.read(queue, at, 30, expression=expression)
                assert not piece.gaps
                at, found = piece.next_offset, [*found, piece]
            assert offsets_in(found) == wanted


async def test_what_is_missing_is_told_with_its_reason(cluster: LocalCluster) -> None:
    """Missing messages are told with a reason: no such offset, made again, or deleted."""
    await send(cluster, "T", [b"x"] * 5)
    queue = MessageQueue("T", cluster.groups[0], 0)
    async with RangeReader(cluster.namesrv_addr) as reader, cluster.admin() as admin:
        life = (await reader.bounds("T")).queues[queue].life
        pieces = await read_all(reader, queue, 2, 9)
        assert offsets_in(pieces) == [2, 3, 4]
        assert [gap for piece in pieces for gap in piece.gaps] == [(5, 9, TRUNCATED)]

        await admin.topics.delete("T")
        assert (await reader.read(queue, 1, 4, life=life)).gaps == ((1, 4, DELETED),)
        await send(cluster, "T", [b"y"] * 5)
        assert (await reader.read(queue, 1, 4, life=life)).gaps == ((1, 4, MADE_AGAIN),)
        assert (await reader.bounds("T")).queues[queue].life > life


async def test_bounds_tell_of_groups_that_are_gone_and_of_silent_ones() -> None:
    """A deleted topic's group has answered; a group that is away is named as silent."""
    async with local_cluster(replicas=1, groups=2) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=2, write_queues=2)
        async with RangeReader(cluster.namesrv_addr, timeout_s=1.0) as reader:
            a, b = cluster.groups
            found = await reader.bounds("T")
            there = [MessageQueue("T", name, number) for name in (a, b) for number in (0, 1)]
            assert [*found.queues] == there
            assert (found.answered, found.silent) == ({a, b}, set())
            await cluster.kill(await cluster.leader(b))
            found = await reader.bounds("T", known=[a, b])
            assert found.answered == {a}
            assert {*found.queues} == {MessageQueue("T", a, 0), MessageQueue("T", a, 1)}
            assert found.silent <= {b}
            nowhere = await reader.bounds("Nowhere", known=[a])
            assert (dict(nowhere.queues), nowhere.answered) == ({}, {a})


async def test_a_read_lives_through_the_death_of_the_leader() -> None:
    """A read waits for the next leader, and raises if there is none for long."""
    async with local_cluster() as cluster:
        await send(cluster, "T", [b"x"] * 50)
        queue = MessageQueue("T", cluster.groups[0], 0)
        async with RangeReader(cluster.namesrv_addr, patience_s=20.0) as reader:
            pieces = [await reader.read(queue, 0, 50, messages=10)]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cluster.kill, "leader")
                pieces += await read_all(reader, queue, pieces[0].next_offset, 50)
            assert offsets_in(pieces) == [*range(50)]
            await cluster.kill("leader")
            with pytest.raises((NoLeader, Refused)):
                await reader.read(queue, 0, 50)
