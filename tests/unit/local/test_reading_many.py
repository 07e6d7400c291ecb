"""`poll_many` gives the messages of `poll` by column, with all else alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio

from mqclient import (
    Consumer,
    Message,
    MessageQueue,
    ReadMany,
    ReceivedMessage,
    Sql,
    limits,
)
from mqlocal import LocalCluster, local_cluster, local_cluster_in_thread

Read = tuple[int, int, int, bytes]
FILTERS = ["*", "red || blue", Sql("size > 500 AND TAGS <> 'red'")]


async def fill(cluster: LocalCluster, chance: random.Random, count: int) -> None:
    """Messages of any sizes and tags, some compressed, some whose bodies are in parts."""
    async with (
        cluster.producer("P") as plain,
        cluster.producer("Q", compression="zlib", compress_from_bytes=300) as compressed,
    ):
        for _ in range(count):
            size = chance.choice((0, 7, 100, 100, 600))
            body = bytes(size) if chance.random() < 0.3 else chance.randbytes(size)
            properties = {"size": str(size)}
            tags = chance.choice(("", "red", "blue", "green"))
            message = Message("T", body, tags=tags, properties=properties)
            if chance.random() < 0.03:
                await plain.send_large(Message("T", chance.randbytes(1500), tags=tags))
            else:
                await chance.choice((plain, compressed)).send_soon(message)
        for _ in range(chance.randrange(3)):
            await plain.send_many("T", [chance.randbytes(50) for _ in range(40)])


def by_message(messages: Sequence[ReceivedMessage]) -> list[Read]:
    return [(m.queue_id, m.queue_offset, m.store_timestamp_ms, m.body) for m in messages]


def by_column(many: ReadMany) -> list[Read]:
    columns = many.queue_ids, many.queue_offsets, many.store_times_ms
    return [*zip(*(column.tolist() for column in columns), many.bodies(), strict=True)]


async def all_of(consumer: Consumer, chance: random.Random, *, many: bool) -> list[Read]:
    """All messages that there are."""
    found: list[Read] = []
    while True:
        count = chance.choice((1, 7, 100, 10_000))
        if not many:
            got = by_message(await consumer.poll(count, timeout_s=3))
        else:
            read = await consumer.poll_many(count, timeout_s=3)
            got = by_column(read)
            assert by_message(read) == got
            assert by_message([read[number] for number in range(-len(read), 0)]) == got
            assert by_message(read[::2]) == got[::2]
            assert {batch.queue.queue_id for batch in read.batches} == {n for n, *_ in got}
        if not got:
            return found
        assert len(got) <= count
        found += got


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
@pytest.mark.usefixtures("small")
async def test_it_gives_what_poll_gives(monkeypatch: pytest.MonkeyPatch, wanted: str | Sql) -> None:
    """Both polls give the same messages, by any filter and in answers of any size."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    monkeypatch.setattr(limits, "PULL_BYTES_MAX", chance.choice((1000, 10_000, 1 << 20)))
    async with local_cluster(replicas=1) as cluster:
        await fill(cluster, chance, 200)
        async with cluster.consumer("A", {"T": wanted}) as consumer:
            polled = await all_of(consumer, chance, many=False)
        async with cluster.consumer("B", {"T": wanted}) as consumer:
            many = await all_of(consumer, chance, many=True)
    assert len(polled) > 5
    assert sorted(many) == sorted(polled)
    for queue_id in {queue_id for queue_id, *_ in many}:
        offsets = [offset for each, offset, *_ in many if each == queue_id]
        assert offsets == sorted(set(offsets))


async def numbered(cluster: LocalCluster, count: int, topic: str = "T") -> None:
    async with cluster.producer("P") as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(count)])


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_asking_for_more_says_that_what_was_given_is_processed(*, auto_commit: bool) -> None:
    """A poll, or `commit` alone, marks earlier messages as processed; the rest comes again."""

    async def fail(consumer: Consumer) -> int:
        async with consumer:
            done = len(await consumer.poll_many(100, timeout_s=10))
            if not auto_commit:
                await consumer.commit()
            assert await consumer.poll_many(100, timeout_s=10)
            await trio.sleep(3)
            raise ValueError(done)

    async with local_cluster(replicas=1) as cluster:
        await numbered(cluster, 300)
        with pytest.raises(ValueError, match="100"):
            await fail(cluster.consumer("C", {"T": "*"}, auto_commit=auto_commit))
        total = 100
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            while got := await consumer.poll_many(70, timeout_s=10):
                total += len(got)
            assert set(consumer.lag().values()) == {0}
    assert total == 300


async def test_one_message_of_many_can_be_sent_back() -> None:
    """A single message of many can be nacked, and comes again alone."""
    async with local_cluster(replicas=1) as cluster:
        await numbered(cluster, 100)
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            bodies: list[bytes] = []
            while len(bodies) < 101:
                many = await consumer.poll_many(timeout_s=30)
                for message in many:
                    if message.body == b"42" and not message.reconsume_times:
                        await consumer.nack(message, delay_s=1)
                bodies += many.bodies()
    assert sorted(bodies) == sorted([*(b"%d" % number for number in range(100)), b"42"])


async def test_what_was_read_stays_though_its_queue_goes_to_another_or_away() -> None:
    """A member comes, and nothing is given twice that was processed; then the topic is deleted."""
    async with local_cluster(replicas=1) as cluster:
        await numbered(cluster, 1000)
        seen: list[bytes] = []
        async with cluster.consumer("C", {"T": "*"}, ordered=True) as first:
            held = await first.poll_many(300, timeout_s=10)
            seen += held.bodies()
            async with cluster.consumer("C", {"T": "*"}, ordered=True) as second:
                for _ in range(6):
                    await trio.sleep(1)
                    for member in (first, second):
                        seen += (await member.poll_many(200, timeout_s=1)).bodies()
                assert first.queues
                assert second.queues
            async with cluster.admin() as admin:
                await admin.topics.delete("T")
            await trio.sleep(5)
            assert not await first.poll_many(timeout_s=1)
            assert sorted(held.bodies()) == sorted(seen[:300])
            assert held[0].queue == MessageQueue("T", "broker-a", int(held.queue_ids[0]))
    assert len(seen) == len(set(seen)) == 1000


async def test_outputs_and_what_many_came_from_are_stored_in_one_step() -> None:
    """A block that fails stores no outputs, and all its messages come again."""
    async with local_cluster(replicas=1) as cluster:
        await numbered(cluster, 200)
        async with (
            cluster.producer("P", name="named") as producer,
            cluster.consumer("C", {"T": "*"}, auto_commit=False) as consumer,
        ):
            total, failures = 0, 1
            while total < 200:
                with suppress(ValueError):
                    async with consumer.transaction(producer) as transaction:
                        many = await consumer.poll_many(70, timeout_s=10, one_group=True)
                        await transaction.send(
                            Message("Sums", b"%d" % sum(map(int, many.bodies())))
                        )
                        if failures:
                            failures -= 1
                            raise ValueError("this time not")
                    total += len(many)
        async with cluster.consumer("D", {"Sums": "*"}) as consumer:
            sums: list[int] = []
            while bodies := (await consumer.poll_many(timeout_s=3)).bodies():
                sums += map(int, bodies)
    assert sum(sums) == sum(range(200))


def test_a_program_without_an_event_loop_has_it_too() -> None:
    """The blocking `poll_many` gives the same columns."""
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.producer("P") as producer:
            producer.send_many("T", [b"%d" % number for number in range(100)])
        seen: list[Read] = []
        with cluster.consumer("C", {"T": "*"}) as consumer:
            while len(seen) < 100:
                many = consumer.poll_many(timeout_s=30)
                assert by_message(many) == by_column(many)
                seen += by_column(many)
    assert sorted(int(body) for *_, body in seen) == [*range(100)]
