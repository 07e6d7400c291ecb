"""`send_soon` gathers messages that have a body alone, with no visible difference but speed."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from datetime import UTC, datetime

import msgspec
import pytest
import trio
from trio.testing import MockClock

from dledger.errors import DledgerError
from mqclient import Message, Producer, SendFailed, SendResult, limits
from mqclient.producing.chunks.gathering import Gathered, plain
from mqclient.producing.pending import PendingSend
from mqlocal import LocalCluster, local_cluster

OTHER_VALUES = {
    "body": bytearray(b"x"),
    "properties": {"a": "b"},
    "deliver_at": datetime(2030, 1, 1, tzinfo=UTC),
    **dict.fromkeys(("keys", "tags", "unique_key"), "x"),
}


async def read(cluster: LocalCluster, count: int) -> dict[str, tuple[SendResult, bytes]]:
    """Where each message lies, and its body, by its id."""
    found = {}
    async with cluster.consumer("C", {"T": "*"}) as consumer:
        with trio.fail_after(60):
            while len(found) < count:
                for m in await consumer.poll(1000, timeout_s=5):
                    at = (m.topic, m.broker_name, m.queue_id, m.queue_offset, m.position)
                    found[m.message_id] = (SendResult(m.message_id, *at), m.body)
    return found


def told(pending: PendingSend) -> SendResult:
    """The result that a sender was given, without its leader."""
    return msgspec.structs.replace(pending.result(), leader="")


@pytest.mark.parametrize("name", [field.name for field in fields(Message)])
def test_a_message_with_anything_else_is_not_plain(name: str) -> None:
    """A message is not plain if any field but its body is set, new fields too."""
    message = Message("T", b"x")
    assert plain(message)
    if name != "topic":
        assert not plain(replace(message, **{name: OTHER_VALUES.get(name, 1)}))


async def test_each_message_is_where_its_sender_was_told(autojump_clock: MockClock) -> None:
    """Each message lies where its sender was told, for any order of kinds, sizes and batches."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sent: list[tuple[PendingSend, bytes]] = []
    others = 0

    async def some(producer: Producer) -> None:
        nonlocal others
        for _ in range(chance.randrange(40)):
            body = chance.randbytes(chance.choice((0, 1, 100, 2000)))
            message = Message("T", body, tags=chance.choice(("", "", "", "t")))
            queue_id = chance.choice((None, None, None, 1))
            timeout_s = chance.choice((None, None, None, 60.0))
            pending = await producer.send_soon(message, queue_id=queue_id, timeout_s=timeout_s)
            sent.append((pending, body))
        if chance.random() < 0.2:
            many = [chance.randbytes(50) for _ in range(20)]
            others += len(await producer.send_many("T", many, queue_id=2))
        if chance.random() < 0.3:
            await trio.sleep(0.02)

    async with local_cluster() as cluster, cluster.producer("P", batch_bytes_max=9000) as producer:
        for _ in range(40):
            await some(producer)
        await producer.flush()
        assert producer.pending == 0
        found = await read(cluster, len(sent) + others)

    gathered = sum(isinstance(pending, Gathered) for pending, _ in sent)
    assert 0 < gathered < len(sent)
    for pending, body in sent:
        assert found[pending.unique_key] == (told(pending), body)


async def test_what_comes_later_in_a_queue_lies_later(autojump_clock: MockClock) -> None:
    """Messages have offsets in the order of handing over, gathered or not."""
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        pending = []
        for number in range(400):
            where = None if number % 7 else 1
            pending.append(await producer.send_soon(Message("T", b"x"), queue_id=where))
        await producer.flush()

    queues: dict[int, list[int]] = {}
    for each in pending:
        queues.setdefault(each.result().queue_id, []).append(each.result().queue_offset)
    assert queues[1] == sorted(queues[1])
    assert all(offsets == sorted(offsets) for offsets in queues.values())


async def test_a_leaders_death_doubles_and_loses_none(autojump_clock: MockClock) -> None:
    """Chunks that were on their way are sent again as they were."""
    async with local_cluster() as cluster, cluster.producer("P", timeout_s=60) as producer:
        pending = [await producer.send_soon(Message("T", b"%d" % n)) for n in range(500)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.kill)
            for number in range(500, 2000):
                pending.append(await producer.send_soon(Message("T", b"%d" % number)))
                if number % 100 == 0:
                    await trio.sleep(0.01)
        await producer.flush()

        found = await read(cluster, len(pending))

    assert sorted(int(body) for _, body in found.values()) == list(range(2000))
    assert {each.unique_key: told(each) for each in pending} == {
        key: result for key, (result, _) in found.items()
    }


async def test_without_a_leader_each_fails_by_its_own_key_when_its_time_is_over(
    autojump_clock: MockClock,
) -> None:
    """Without a leader each send fails when its own time is over, the later ones later."""
    async with local_cluster() as cluster, cluster.producer("P", timeout_s=2) as producer:
        await producer.send(Message("T", b"first"))
        for name in cluster.servers:
            if name != "namesrv-0":
                await cluster.kill(name)
        took: list[tuple[str, float]] = []

        async def fail() -> None:
            began = trio.current_time()
            pending = await producer.send_soon(Message("T", b"x"))
            with pytest.raises(DledgerError) as caught:
                await pending.wait()
            assert isinstance(caught.value, SendFailed)
            assert caught.value.unique_key == pending.unique_key
            took.append((pending.unique_key, trio.current_time() - began))

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(fail)
                await trio.sleep(0.003)

        assert len({key for key, _ in took}) == 30
        assert all(2 <= seconds < 2.2 for _, seconds in took)
        assert producer.pending == 0


async def test_many_topics_share_few_batches(autojump_clock: MockClock) -> None:
    """Messages over many topics in turn fill the batches that wait."""
    topics = [f"T{number}" for number in range(30)]
    async with (
        local_cluster() as cluster,
        cluster.producer("P", linger_s=10 * limits.GATHER_FOR_S) as producer,
    ):
        for topic in topics:
            await producer.prepare(topic)
        pending = []
        for number in range(1500):
            pending.append(await producer.send_soon(Message(topics[number % 30], b"x")))
            if number % 30 == 29:
                await trio.sleep(limits.GATHER_FOR_S / 4)
        await producer.flush()

        batches = {each._chunk.batch for each in pending if isinstance(each, Gathered)}

    assert len(batches) <= 3 * len(topics)


async def test_what_a_producer_may_hold_is_kept_to(autojump_clock: MockClock) -> None:
    """Gathered messages count as others do, and nothing of them is left behind."""
    async with local_cluster() as cluster, cluster.producer("P", pending_max=50) as producer:
        most = 0
        for _ in range(1000):
            await producer.send_soon(Message("T", bytes(10)))
            most = max(most, producer.pending)
        await producer.flush()

        assert most == 50
        assert producer.pending == 0
        assert producer._outbox._gatherings == {}


async def test_a_flush_waits_for_what_came_before_it(autojump_clock: MockClock) -> None:
    """A flush waits for earlier messages alone, and later messages linger again."""
    async with (
        local_cluster(replicas=1, groups=2) as cluster,
        cluster.admin() as admin,
        cluster.producer("P", linger_s=1) as producer,
        trio.open_nursery() as nursery,
    ):
        for broker in ("broker-a", "broker-b"):
            await admin.topics.update(broker, broker=broker)
            await producer.send(Message(broker, b"first"))
        await cluster.kill("broker-b-n0")
        before = [
            await producer.send_soon(Message("broker-a", b"x", keys="k" * with_key))
            for with_key in (0, 1, 0)
        ]
        meanwhile: list[PendingSend] = []

        async def send() -> None:
            meanwhile.append(await producer.send_soon(Message("broker-b", b"x")))

        nursery.start_soon(send)
        await producer.flush()
        assert all(each.settled for each in before)
        assert [each.settled for each in meanwhile] == [False]

        with trio.move_on_after(1) as given_up:
            await producer.flush()
        assert given_up.cancelled_caught
        last = await producer.send_soon(Message("broker-a", b"x"))
        await trio.sleep(0.9)
        assert not last.settled
        assert (await last.wait()).queue_offset >= 0


async def test_compressed_bodies_are_not_gathered(autojump_clock: MockClock) -> None:
    """Bodies that are compressed are not gathered, since their size is not known before."""
    bodies = [bytes(5000), b"small"]
    async with local_cluster() as cluster, cluster.producer("P", compression="zlib") as producer:
        pending = [await producer.send_soon(Message("T", body)) for body in bodies]
        await producer.flush()
        assert not any(isinstance(each, Gathered) for each in pending)

        found = await read(cluster, 2)

    assert [found[each.unique_key] for each in pending] == [
        (told(each), body) for each, body in zip(pending, bodies, strict=True)
    ]
