"""Which popped messages may have been somebody's before."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from mqclient import Message, PopConsumer
from mqlocal import local_cluster


async def test_only_what_nobody_was_handed_is_not_redelivered(autojump_clock: MockClock) -> None:
    """What was given back before anybody had it counts as no delivery, and is redelivered."""
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            await producer.send(Message("T", b"first"), queue_id=0)
            async with PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as leaving:
                (first,) = await leaving.poll()
                assert (first.redelivered, first.deliveries) == (False, 1)
                assert first.asked_s <= first.since_s
                await leaving.ack(first)
                assert await leaving.poll() == []  # its pop waits at the broker, and then brings:
                await producer.send(Message("T", b"nobody's"), queue_id=0)
                await trio.sleep(1)
            await producer.send(Message("T", b"new"), queue_id=0)
        async with PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as consumer:
            given_back, new = await consumer.poll()
            assert (bytes(given_back.body), bytes(new.body)) == (b"nobody's", b"new")
            assert (given_back.redelivered, given_back.deliveries) == (True, 1)
            assert (new.redelivered, new.deliveries) == (False, 1)
            await consumer.nack(new, delay_s=1)
            await trio.sleep(2)
            (again,) = await consumer.poll()
            assert (again.redelivered, again.deliveries) == (True, 2)
