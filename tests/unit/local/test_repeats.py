"""Messages with `repeat_s`, as an application sees them."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trio

from mqclient import BadMessage, Message, RecallTooLate
from mqlocal import LocalCluster, local_cluster


async def arrivals(cluster: LocalCluster, until_s: float) -> list[float]:
    """When messages come, from now on, in seconds."""
    came: list[float] = []
    began_s = trio.current_time()
    async with cluster.consumer("C", {"T": "*"}) as consumer:
        while (left_s := began_s + until_s - trio.current_time()) > 0:
            for message in await consumer.poll(1, timeout_s=left_s):
                came.append(trio.current_time() - began_s)
                assert message.properties["REPEAT_OF"]
    return came


async def test_it_comes_so_often_and_no_more() -> None:
    """A message comes as often as it says, first after one period."""
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            await producer.send(Message("T", b"tick", repeat_s=60, repeats=3))
        came = await arrivals(cluster, 600)
    assert came == pytest.approx([60, 120, 180], abs=1.5)


async def test_it_comes_until_it_is_taken_back() -> None:
    """A message comes until it is recalled, over leaders' deaths; a second recall is refused."""
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        at = cluster.now() + timedelta(seconds=10)
        sent = await producer.send(Message("T", b"tick", deliver_at=at, repeat_s=60))
        first = await arrivals(cluster, 100)
        await cluster.restart(await cluster.kill("leader"))
        second = await arrivals(cluster, 100)
        await producer.recall(sent)
        third = await arrivals(cluster, 300)
        with pytest.raises(RecallTooLate):
            await producer.recall(sent)
    assert first == pytest.approx([10, 70], abs=2)
    assert len(second) in (1, 2)
    assert third == []


async def test_it_ends_with_its_own_time() -> None:
    """A repeated message ends at its `ttl_s`."""
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            await producer.send(Message("T", b"tick", repeat_s=60, ttl_s=150))
        came = await arrivals(cluster, 600)
        async with cluster.admin() as admin:
            assert await admin.messages.scheduled() == ()
    assert came == pytest.approx([60, 120], abs=1.5)


async def test_what_can_not_be_repeated_is_refused() -> None:
    """A wrong repetition is refused by the producer with the reason."""
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        for message in (
            Message("T", b"", repeat_s=0.5),
            Message("T", b"", repeat_s=float("nan")),
            Message("T", b"", repeat_s=41 * 86_400),
            Message("T", b"", repeat_s=60, repeats=0),
            Message("T", b"", repeat_s=60, delay_level=1),
            Message("T", b"", delay_s=1, repeats=5),
            Message("T", b"", properties={"REPEAT_EVERY_MS": "1000"}),
            Message("T", b"", repeat_s=60, ttl_s=60),
        ):
            with pytest.raises(BadMessage, match=r"repeat|ttl_s"):
                await producer.send(message)
