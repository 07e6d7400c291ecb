"""Tools tell a paused member, as its heartbeats say, from a busy one and from one that left."""

from __future__ import annotations

from collections import Counter

import trio

from mqclient import Message, PopConsumer
from mqclient.admin import Admin
from mqlocal import LocalCluster, local_cluster

SEEN_S = 60.0
"""Time after which a heartbeat has come, and an idle reader is told."""


async def states(admin: Admin) -> Counter[str]:
    """How many queues are in which state."""
    return Counter(queue.state for queue in (await admin.groups.progress("G", "T")).queues)


async def send(cluster: LocalCluster, count: int) -> None:
    async with cluster.producer("P") as producer:
        for number in range(count):
            await producer.send(Message("T", b"x"), queue_id=number % 2)


async def test_a_paused_queue_is_told() -> None:
    """The other queue's messages are in hand, as nobody polls; after `resume` and a poll nothing is
    left."""
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=2, write_queues=2)
        async with cluster.consumer("G", {"T": "*"}) as consumer:
            await send(cluster, 2)
            read = 0
            while read < 2:
                read += len(await consumer.poll(timeout_s=5))
            await consumer.commit()
            consumer.pause(next(queue for queue in consumer.queues if queue.topic == "T"))
            await send(cluster, 4)
            await trio.sleep(SEEN_S)
            assert await states(admin) == {"paused": 1, "handed out": 1}
            paused = next(
                queue
                for queue in (await admin.groups.progress("G", "T")).queues
                if queue.state == "paused"
            )
            assert paused.reason.endswith("has paused the queue")
            consumer.resume()
            while read < 6:
                read += len(await consumer.poll(timeout_s=5))
            await consumer.commit()
            await trio.sleep(SEEN_S)
            assert await states(admin) == {"done": 2}


async def test_a_group_that_pops_is_paused_once_all_members_are() -> None:
    """A group that pops is paused once all its members are, as any may get a message."""
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=2, write_queues=2)
        async with (
            PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as one,
            PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as other,
        ):
            await send(cluster, 2)
            for _ in range(2):
                for message in await one.poll(1, timeout_s=30):
                    await one.ack(message)
            one.pause()
            await trio.sleep(SEEN_S)
            await send(cluster, 2)
            assert "paused" not in await states(admin)
            other.pause()
            await trio.sleep(SEEN_S)
            await send(cluster, 2)
            await trio.sleep(SEEN_S)
            found = await states(admin)
            assert found == {"paused": 2}, found


async def test_what_members_had_in_hand_is_nobodys_when_they_have_left() -> None:
    """Messages of a member that left are not in flight: they are read again."""
    async with local_cluster() as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=1, write_queues=1)
        async with cluster.producer("P") as producer:
            for number in range(20):
                await producer.send(Message("T", b"%d" % number))
        await trio.sleep(90)  # what came is no part of the last minute's rate
        async with cluster.consumer("G", {"T": "*"}) as reader:
            assert len(await reader.poll(4, timeout_s=5)) == 4
            await reader.commit()
            await trio.sleep(15)
            here = await admin.groups.progress("G", "T")
            assert (here.lag, here.queues[0].in_flight) == (16, 16)
            assert here.caught_up_s is not None
        gone = await admin.groups.progress("G", "T")
        assert (gone.members, gone.lag, gone.queues[0].in_flight) == (0, 16, 0)
        assert gone.queues[0].state == "no members"
        assert gone.caught_up_s is None
