"""Rates and full buffers, as an application sees them: slower, with nothing lost or in vain."""

from __future__ import annotations

import pytest
import trio

from mqclient import Consumer, Message, Nack, PopConsumer, ReceivedMessage, SendFailed, limits
from mqclient.consuming.fetching import QueueFetcher
from mqlocal import LocalCluster, local_cluster


async def set_rates(cluster: LocalCluster, *, send: str = "", consume: str = "") -> None:
    """Topic T and group C, with attributes."""
    async with cluster.admin() as admin:
        await admin.topics.update("T", read_queues=1, write_queues=1, attributes=send)
        await admin.groups.update("C", attributes=consume)


async def fill(cluster: LocalCluster, count: int) -> None:
    """Send `count` messages, each with its number as the body."""
    async with cluster.producer("P") as producer:
        for number in range(count):
            await producer.send_soon(Message("T", b"%d" % number), queue_id=0)


@pytest.mark.parametrize("name", [None, "payments"])
async def test_a_producer_waits_as_long_as_it_is_told(name: str | None) -> None:
    """A producer waits as long as it is told, within its deadline, over a change of leaders.

    A producer with a name has no other rate.
    """
    async with local_cluster() as cluster:
        await set_rates(cluster, send="+send.rate.messages=10")
        began_s = trio.current_time()
        async with cluster.producer("P", timeout_s=30, name=name) as producer:
            for number in range(60):
                await producer.send(Message("T", b"%d" % number))
                if number == 30:
                    await cluster.kill("leader")
        took_s = trio.current_time() - began_s
        async with cluster.admin() as admin:
            (rate,) = await admin.statistics.rates()

    # A second's worth passes at once, and another with each new leader.
    assert (60 - 2 * 10) / 10 - 0.1 <= took_s < 8
    assert (rate.kind, rate.name, rate.messages_per_s) == ("topic", "T", 10)
    assert rate.bytes_per_s is None
    assert rate.held_back_1_min > 0


async def test_a_send_whose_turn_is_behind_its_deadline_fails_at_once() -> None:
    """A send whose turn comes after its deadline fails at once, definitely."""
    async with local_cluster(replicas=1) as cluster:
        await set_rates(cluster, send="+send.rate.messages=1")
        async with cluster.producer("P", timeout_s=3) as producer:
            await producer.send_batch([Message("T", b"x")] * 60)
            began_s = trio.current_time()
            with pytest.raises(SendFailed, match=r"takes 1 messages/s.* the deadline is before"):
                await producer.send(Message("T", b"y"), queue_id=0)

    assert trio.current_time() - began_s < 0.5


@pytest.mark.parametrize("rate", ["+consume.rate.messages=20", "+consume.rate.bytes=2600"])
async def test_a_group_is_given_no_more_than_its_rate(rate: str) -> None:
    """A group gets all messages in order at its rate, over a change of leaders."""
    async with local_cluster() as cluster:
        await set_rates(cluster, consume=rate)
        await fill(cluster, 120)
        got: list[bytes] = []
        began_s = trio.current_time()
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            while len(got) < 120:
                got += [message.body for message in await consumer.poll(timeout_s=60)]
                if len(got) >= 60 and cluster.runs("broker-a-n0"):
                    await cluster.kill("broker-a-n0")

    assert got == [b"%d" % number for number in range(120)]
    assert 3 <= trio.current_time() - began_s < 12


async def test_a_pop_consumer_is_given_no_more_either() -> None:
    """A pop consumer gets each message once, at its group's rate."""
    async with local_cluster(replicas=1) as cluster:
        await set_rates(cluster, consume="+consume.rate.messages=20")
        await fill(cluster, 100)
        got: list[bytes] = []
        began_s = trio.current_time()

        async def take(message: ReceivedMessage) -> None:
            got.append(message.body)
            if len(got) == 100:
                scope.cancel()

        with trio.fail_after(600), trio.CancelScope() as scope:
            async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as consumer:
                await consumer.run(take)

    assert sorted(got) == sorted({b"%d" % number for number in range(100)})
    assert 3 <= trio.current_time() - began_s < 10


def _fetchers(consumer: Consumer) -> list[QueueFetcher]:
    assert consumer._assignment is not None
    return [*consumer._assignment.fetchers.values()]


async def test_a_full_consumer_pulls_no_more_and_drops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full consumer asks for nothing, holds a bounded number, and hands all out in order.

    A handler that fails meanwhile gets its message again.
    """
    monkeypatch.setattr(limits, "PULL_RECORDS_MAX", 20)
    handled: list[int] = []
    failed: set[int] = set()
    most = 0
    async with local_cluster(replicas=1) as cluster:
        await set_rates(cluster)
        await fill(cluster, 1000)
        async with cluster.consumer(
            "C", {"T": "*"}, retry_delays_s=[1], prefetch_messages=100
        ) as consumer:

            async def slow(message: ReceivedMessage) -> None:
                nonlocal most
                number = int(message.body)
                fetched = [fetcher.progress.buffered for fetcher in _fetchers(consumer)]
                most = max(most, *fetched)
                if number % 100 == 7 and number not in failed:
                    failed.add(number)
                    raise Nack
                await trio.sleep(0.01)
                handled.append(number)
                if len(handled) == 1000:
                    scope.cancel()

            with trio.fail_after(600), trio.CancelScope() as scope:
                await consumer.run(slow)
    assert [number for number in handled if number not in failed] == [
        number for number in range(1000) if number not in failed
    ]
    assert sorted(handled) == list(range(1000))
    assert 0 < most < 50 + 20
