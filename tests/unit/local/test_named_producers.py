"""A named producer stores each message once, by every call that sends."""

from __future__ import annotations

from collections import Counter

import trio

from mqclient import ManyFailed, Message, Producer, SendFailed, SendUnknown
from mqlocal import LocalCluster, local_cluster

QUEUES = 4
ROUNDS = 24
SINGLE = 50
MANY = 500
LARGE_BYTES = 5 * 1024 * 1024


async def everything(cluster: LocalCluster) -> Counter[bytes]:
    """Bodies of a topic with their number."""
    found = Counter[bytes]()
    async with cluster.consumer("C", {"T": "*"}) as consumer:
        while messages := await consumer.poll(timeout_s=5):
            found.update(message.body for message in messages)
    return found


async def test_every_face_of_a_named_producer_stores_once() -> None:
    """Acknowledged messages of every call are stored once, while leaders die."""
    acknowledged: list[bytes] = []

    async def single(producer: Producer, number: int) -> None:
        bodies = [b"single %d %d" % (number, each) for each in range(SINGLE)]
        pending = [(body, await producer.send_soon(Message("T", body))) for body in bodies]
        for body, each in pending:
            try:
                await each.wait()
                acknowledged.append(body)
            except (SendFailed, SendUnknown):
                pass

    async def batch(producer: Producer, number: int) -> None:
        bodies = [b"batch %d %d" % (number, each) for each in range(2 * QUEUES)]
        queue_ids = [each % QUEUES for each in range(2 * QUEUES)]
        try:
            await producer.send_batch([Message("T", body) for body in bodies], queue_ids=queue_ids)
            acknowledged.extend(bodies)
        except (SendFailed, SendUnknown):
            pass

    async def many(producer: Producer, number: int) -> None:
        bodies = [b"many %d %d" % (number, each) for each in range(MANY)]
        try:
            await producer.send_many("T", bodies)
            acknowledged.extend(bodies)
        except ManyFailed:
            pass

    async def large(producer: Producer) -> None:
        body = b"large".ljust(LARGE_BYTES, b".")
        await producer.send_large(Message("T", body))
        acknowledged.append(body)

    async with local_cluster() as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=QUEUES, write_queues=QUEUES)
        async with (
            cluster.producer("P", timeout_s=5, name="payments") as producer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(large, producer)
            for number in range(ROUNDS):
                nursery.start_soon(single, producer, number)
                nursery.start_soon(batch, producer, number)
                nursery.start_soon(many, producer, number)
                await trio.sleep(0.01)
                if number % 10 == 5:
                    killed = await cluster.kill("leader")
                    nursery.start_soon(cluster.restart, killed)
        found = await everything(cluster)

    assert set(found.values()) == {1}
    assert set(acknowledged) <= set(found)
    assert len(acknowledged) > ROUNDS * MANY / 2
