"""Priorities, as an application sees them."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from mqclient import BadMessage, Message, PopConsumer, ReceivedMessage
from mqlocal import local_cluster


async def test_what_matters_more_is_handled_first() -> None:
    """Waiting messages of higher priority are handled first, on each group and over a failover."""
    got: list[int] = []
    async with local_cluster() as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update(
                "T", read_queues=4, write_queues=4, attributes="+message.type=PRIORITY"
            )
        async with cluster.producer("P") as producer:
            for number in range(10):
                for priority in range(6):
                    sent = await producer.send(
                        Message("T", b"%d" % number, priority=priority, keys="k")
                    )
                    assert sent.queue_id == min(priority, 3)
        await cluster.kill("leader")

        def take(message: ReceivedMessage) -> None:
            got.append(message.priority)
            if len(got) == 60:
                scope.cancel()

        with trio.fail_after(300), trio.CancelScope() as scope:
            async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as consumer:
                await consumer.run(take)
    assert sorted(got) == sorted(list(range(6)) * 10)
    levels = [min(priority, 3) for priority in got]
    inversions = sum(a < b for a, b in pairwise(levels))
    assert inversions <= 2, levels


async def test_each_group_has_a_queue_for_a_priority() -> None:
    """A priority has its queue on each broker group, and groups take turns."""
    async with local_cluster(replicas=1, groups=2) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=4, write_queues=4)
        async with cluster.producer("P") as producer:
            sent = [await producer.send(Message("T", b"x", priority=2)) for _ in range(20)]
    assert {each.queue_id for each in sent} == {2}
    assert {each.broker_name for each in sent} == {"broker-a", "broker-b"}


@pytest.mark.parametrize(
    ("message", "where"),
    [
        (Message("T", b"", priority=-1), {}),
        (Message("T", b"", priority=2**31), {}),
        (Message("T", b"", priority=1.0), {}),  # type: ignore[arg-type]
        (Message("T", b"", priority=True), {}),
        (Message("T", b"", priority=1, delay_s=1), {}),
        (Message("T", b"", priority=1, properties={"__SHARDINGKEY": "k"}), {}),
        (Message("T", b"", priority=1), {"queue_id": 1}),
        (Message("T", b"", priority=1), {"key": "k"}),
        (Message("T", b"", properties={"_SYS_MSG_PRIORITY_": "1"}), {}),
    ],
)
async def test_what_has_no_priority_is_refused(
    message: Message, where: dict[str, int | str]
) -> None:
    """A message that can't have a priority is refused by the producer with the reason."""
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        with pytest.raises(BadMessage, match="priority"):
            await producer.send(message, **where)  # type: ignore[arg-type]
