"""A `PopConsumer` in a loop, and a paused one, whose messages others get."""

from __future__ import annotations

import pytest
import trio

from mqclient import ClientClosed, Message, PopConsumer, blocking
from mqlocal import LocalCluster, local_cluster, local_cluster_in_thread


def popping(cluster: LocalCluster, invisible_s: float = 30.0) -> PopConsumer:
    return PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}, invisible_s=invisible_s)


async def test_asking_for_the_next_message_acknowledges_the_one_before(
    mq_cluster: LocalCluster,
) -> None:
    """A loop's next step acknowledges its message, unless it was nacked or its body raised."""
    async with mq_cluster.producer("P") as producer:
        await producer.send_batch([Message("T", b"%d" % number) for number in range(4)])
        seen: list[bytes] = []

        async def loop() -> None:
            async with popping(mq_cluster) as consumer:
                async for message in consumer:
                    seen.append(message.body)
                    if message.body == b"1":
                        assert await consumer.nack(message, delay_s=1)
                    if message.body == b"2":
                        assert await consumer.ack(message) == 0
                    if message.body == b"3":
                        raise LookupError

        with pytest.raises(LookupError):
            await loop()
        async with popping(mq_cluster) as other:
            again: list[bytes] = []
            with trio.move_on_after(120):
                async for message in other:
                    again.append(message.body)
    assert seen == [b"0", b"1", b"2", b"3"]
    assert sorted(again) == [b"1", b"3"]


async def test_a_loop_ends_when_its_consumer_is_drained(mq_cluster: LocalCluster) -> None:
    """A loop ends when another task drains its consumer; later polls raise."""
    async with popping(mq_cluster) as consumer, trio.open_nursery() as nursery:

        async def drain() -> None:
            await trio.sleep(5)
            await consumer.drain()

        nursery.start_soon(drain)
        async for _ in consumer:
            pass
        with pytest.raises(ClientClosed):
            await consumer.poll()


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_paused_consumer_leaves_messages_to_others(
    mq_cluster: LocalCluster, at_once: bool
) -> None:
    """A paused consumer gives its fetched messages back, and shares again after `resume`."""
    handled: list[str] = []

    async def slowly(_message: object) -> None:
        handled.append("paused one")
        await trio.sleep(1)

    async def quickly(_message: object) -> None:
        handled.append("other")

    async with (
        mq_cluster.producer("P") as producer,
        popping(mq_cluster, 600) as consumer,
        popping(mq_cluster, 600) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, slowly)
        for number in range(40):
            await producer.send(Message("T", b"%d" % number))
        await trio.sleep(0 if at_once else 3.5)
        consumer.pause()
        assert consumer.paused()
        before = len(handled)
        nursery.start_soon(other.run, quickly)
        await trio.sleep(60)
        assert len(handled) == 40
        assert handled[before:].count("paused one") <= 1
        consumer.resume()
        other.pause()
        await producer.send(Message("T", b"last"))
        await trio.sleep(30)
        assert handled[-1] == "paused one"
        assert len(handled) == 41
        nursery.cancel_scope.cancel()


def test_blocking_loops_and_pauses() -> None:
    """Blocking consumers loop and pause as the asynchronous ones do."""
    with (
        local_cluster_in_thread(replicas=1) as cluster,
        cluster.producer("P") as producer,
        blocking.PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as consumer,
    ):
        for number in range(2):
            producer.send(Message("T", b"%d" % number), queue_id=0)
        assert next(consumer).body == b"0"
        consumer.pause()
        assert consumer.paused()
        assert consumer.poll(timeout_s=0.2) == []
        consumer.resume()
        assert next(consumer).body == b"1"


async def test_only_what_nobody_was_handed_is_not_redelivered() -> None:
    """A message that was given back before anybody had it counts no delivery."""
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
