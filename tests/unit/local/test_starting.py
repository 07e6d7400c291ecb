"""Programs that start before the servers, or beside a name server that starts."""

from __future__ import annotations

import math

import pytest
import trio

from mqclient import Consumer, Message, NoRoute, PopConsumer, Producer
from mqlocal import LocalCluster, local_cluster

BROKERS = ["broker-a-n0", "broker-b-n0"]
NO_TOPICS = {"autoCreateTopicEnable": False}


async def start_later(cluster: LocalCluster, names: list[str], after_s: float) -> None:
    for name in names:
        await trio.sleep(after_s)
        cluster._named(name).start(cluster._tasks)  # `restart` would wait for the brokers


@pytest.mark.parametrize("stopped", [["namesrv-0"], [*BROKERS, "namesrv-0"]])
async def test_a_send_waits_for_servers_that_start_within_its_deadline(stopped: list[str]) -> None:
    """A send of any kind waits within its deadline for servers that start one by one."""
    async with (
        local_cluster(replicas=1, groups=2, settings=NO_TOPICS) as cluster,
        trio.open_nursery() as nursery,
    ):
        async with cluster.admin() as admin:
            await admin.topics.update("T", broker="broker-b", read_queues=1, write_queues=1)
        for name in stopped:
            await cluster.stop(name)
        nursery.start_soon(start_later, cluster, [*reversed(stopped)], 0.7)
        async with Producer(cluster.namesrv_addr, timeout_s=30) as producer:
            with trio.fail_after(20):
                await producer.prepare("T")
                await producer.send(Message("T", b"x"))
        await trio.sleep(30)  # brokers look rarely for a name server on virtual time
        for way in (
            lambda producer: producer.send(Message("T", b"x"), timeout_s=20),
            lambda producer: producer.send_soon(Message("T", b"x"), timeout_s=20),
            lambda producer: producer.send_batch([Message("T", b"x")], timeout_s=20),
            lambda producer: producer.send_many("T", [b"x"], timeout_s=20),
        ):
            await cluster.stop("namesrv-0")
            nursery.start_soon(start_later, cluster, ["namesrv-0"], 0.7)
            async with Producer(cluster.namesrv_addr) as producer:
                await way(producer)
        async with cluster.admin() as admin:
            (queue,) = (await admin.topics.status("T")).queues
            assert queue.max_offset == 5


@pytest.mark.parametrize("kind", [Consumer, PopConsumer])
async def test_a_consumer_that_starts_first_reads_once_the_servers_are_there(
    kind: type[Consumer],
) -> None:
    """A consumer that starts before the servers enters its block, and reads once they are there."""
    async with local_cluster(replicas=1) as cluster, trio.open_nursery() as nursery:
        async with cluster.producer("P") as producer:
            await producer.send(Message("T", b"x"))
        await cluster.stop("namesrv-0")
        nursery.start_soon(start_later, cluster, ["namesrv-0"], 2)
        async with kind(cluster.namesrv_addr, "G", {"T": "*"}) as consumer:
            assert [each.body for each in await consumer.poll(timeout_s=20)] == [b"x"]


async def test_what_is_not_there_is_told_at_the_deadline_or_at_once() -> None:
    """An unknown topic is an error at once; absent name servers are one at the deadline."""
    async with local_cluster(replicas=1, settings=NO_TOPICS) as cluster:
        async with Producer(cluster.namesrv_addr) as producer:
            began_s = trio.current_time()
            with pytest.raises(NoRoute, match="does not know it"):
                await producer.send(Message("Nobody", b""), timeout_s=20)
            assert trio.current_time() - began_s < 0.5
        await cluster.stop("namesrv-0")
        async with Producer(cluster.namesrv_addr) as producer:
            for timeout_s in (0.0, 0.3, 5.0):
                began_s = trio.current_time()
                with pytest.raises(NoRoute, match="no name server answer"):
                    await producer.send(Message("T", b""), timeout_s=timeout_s)
                took_s = trio.current_time() - began_s
                assert math.isclose(took_s, timeout_s, abs_tol=0.3)
                assert producer.pending == 0
