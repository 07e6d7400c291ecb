"""Batches over several queues are stored as a whole, or not at all."""

from __future__ import annotations

import pytest
import trio

from dledger.remoting.message import tags_code
from mqclient import BadMessage, Message, SendFailed, SendUnknown
from mqlocal import LocalCluster, local_cluster

QUEUES = 4
BATCHES = 30


async def make_topic(cluster: LocalCluster) -> None:
    async with cluster.admin() as admin:
        await admin.topics.update("T", read_queues=QUEUES, write_queues=QUEUES)


async def everything(cluster: LocalCluster) -> dict[int, list[bytes]]:
    """Bodies of each queue, in order."""
    found: dict[int, list[bytes]] = {}
    async with cluster.consumer("C", {"T": "*"}) as consumer:
        while messages := await consumer.poll(timeout_s=5):
            for message in messages:
                found.setdefault(message.queue_id, []).append(message.body)
    return found


async def test_a_batch_is_in_all_of_its_queues_or_in_none() -> None:
    """A batch is in all of its queues or in none, once and in order, over leaders' deaths."""
    outcomes: dict[int, str] = {}
    async with local_cluster() as cluster:
        await make_topic(cluster)
        async with cluster.producer("P", timeout_s=5) as producer:

            async def send(number: int) -> None:
                messages = [Message("T", b"%d" % number) for _ in range(2 * QUEUES)]
                try:
                    queue_ids = [n % QUEUES for n in range(2 * QUEUES)]
                    sent = await producer.send_batch(messages, queue_ids=queue_ids)
                    outcomes[number] = "stored"
                    assert [each.queue_id for each in sent] == queue_ids
                except SendFailed:
                    outcomes[number] = "failed"
                except SendUnknown:
                    outcomes[number] = "unknown"

            async with trio.open_nursery() as nursery:
                for number in range(BATCHES):
                    nursery.start_soon(send, number)
                    await trio.sleep(0.01)
                    if number % 10 == 5:
                        killed = await cluster.kill("leader")
                        nursery.start_soon(cluster.restart, killed)
        found = await everything(cluster)

    assert len(found) == QUEUES
    first, *others = [[int(body) for body in found[queue_id]] for queue_id in sorted(found)]
    assert all(queue == first for queue in others)
    assert first == sorted(first)
    counts = {number: first.count(number) for number in range(BATCHES)}
    for number, outcome in outcomes.items():
        assert counts[number] in {"stored": {2}, "failed": {0}, "unknown": {0, 2}}[outcome]
    assert "stored" in outcomes.values()


async def test_each_message_of_a_batch_goes_where_its_key_says() -> None:
    """A message of a batch goes to the queue of its key, as by `send`, and in the same order."""
    async with local_cluster(replicas=1) as cluster:
        await make_topic(cluster)
        keys = [f"k{number % 7}" for number in range(40)]
        async with cluster.producer("P") as producer:
            sent = await producer.send_batch(
                [Message("T", b"%d" % number) for number in range(40)], keys=keys
            )
            alone = await producer.send(Message("T", b"40"), key="k3")
        found = await everything(cluster)
    assert [each.queue_id for each in sent] == [abs(tags_code(key)) % QUEUES for key in keys]
    assert alone.queue_id == sent[3].queue_id
    assert len({each.message_id for each in sent}) == 40
    for number, each in enumerate(sent):
        assert found[each.queue_id].index(b"%d" % number) == each.queue_offset


async def test_a_batch_for_two_broker_groups_is_refused() -> None:
    """A batch for two broker groups, which no log holds, is refused; queue numbers choose one."""
    async with local_cluster(replicas=1, groups=2) as cluster:
        await make_topic(cluster)
        messages = [Message("T", b"x")] * 8
        async with cluster.producer("P") as producer:
            with pytest.raises(BadMessage, match="queues of broker-a and broker-b: each broker"):
                await producer.send_batch(messages, keys=[f"k{n}" for n in range(8)])
            sent = await producer.send_batch(messages, queue_ids=[0, 1, 2, 3] * 2)
            assert len({each.broker_name for each in sent}) == 1
            assert {each.queue_id for each in sent} == {0, 1, 2, 3}


async def test_a_batch_needs_a_queue_for_each_message() -> None:
    """A batch with too few queues for its messages is refused before anything is sent."""
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        await make_topic(cluster)
        two = [Message("T", b"x"), Message("T", b"y")]
        with pytest.raises(BadMessage, match="2 messages to 'T' with 1 queue_ids or keys"):
            await producer.send_batch(two, queue_ids=[0])
        with pytest.raises(BadMessage, match="not both"):
            await producer.send_batch(two, queue_ids=[0, 1], keys=["a", "b"])
        with pytest.raises(BadMessage, match="one queue for all, or one for each"):
            await producer.send_batch(two, queue_ids=[0, 1], key="a")
        with pytest.raises(BadMessage, match="no queue 4"):
            await producer.send_batch(two, queue_ids=[0, 4])
        with pytest.raises(BadMessage, match="no queue -1"):
            await producer.send_batch(two, queue_ids=[-1, 0])
        assert producer.pending == 0
