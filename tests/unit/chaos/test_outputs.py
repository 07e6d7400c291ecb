"""Outputs of consumers compared with what their group has passed."""

from __future__ import annotations

from trio.testing import MockClock

from mqchaos.cluster.access import NO_IDENTITY
from mqchaos.run.load.workload import output_key, outputs_of
from mqchaos.run.observer import without_their_output
from mqclient import Admin, Message
from mqlocal import LocalCluster, local_cluster


async def passed(cluster: LocalCluster, count: int) -> None:
    """A group that has read `count` of six inputs."""
    async with cluster.producer("P") as producer:
        for number in range(6):
            await producer.send(Message("In", b"", unique_key=f"k{number}"), queue_id=0)
    async with cluster.consumer("G", {"In": "*"}, auto_commit=False) as consumer:
        read = 0
        while read < count:
            read += len(await consumer.poll(count - read, timeout_s=5))
        await consumer.commit()


async def write(cluster: LocalCluster, *batches: str) -> None:
    """Outputs of these inputs. Brokers know a batch by its first message."""
    topic = outputs_of("In")
    async with cluster.producer("P") as producer:
        for numbers in batches:
            keys = [output_key(f"k{number}") for number in numbers]
            await producer.send_batch([Message(topic, b"", unique_key=key) for key in keys])


async def wrong_outputs(cluster: LocalCluster) -> list[str]:
    async with Admin(cluster.namesrv_addr) as admin:
        address, access = cluster.namesrv_addr, NO_IDENTITY.access()
        return await without_their_output(admin, address, access, "In", "G")


async def test_one_output_for_each_input_that_was_passed(autojump_clock: MockClock) -> None:
    """Each passed input has one output, and no other input has any."""
    async with local_cluster(replicas=1) as cluster:
        await passed(cluster, 4)
        await write(cluster, "0123")
        assert await wrong_outputs(cluster) == []

    async with local_cluster(replicas=1) as cluster:
        await passed(cluster, 4)
        await write(cluster, "023", "53")
        assert await wrong_outputs(cluster) == [
            "1 outputs are missing: k1-output",
            "2 outputs are there too often: k3-output, k5-output",
        ]
