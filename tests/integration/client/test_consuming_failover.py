"""Consuming over a leader's death: order, retries and locks are in the replicated log."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import trio
from clusters import new_cluster

from mqchaos.cluster.probe import Probe
from mqclient import Admin, Consumer, Message, Nack, Producer, ReceivedMessage
from mqclient.connection.peers import PeerPool

QUEUES, PER_QUEUE = 4, 60


async def test_a_leader_dies_under_ordered_and_failing_handlers(tmp_path: Path) -> None:
    """Two ordered members handle each queue's messages once, in order, with the same locks after
    it as before. In another group, what was sent back comes again once, and nothing is lost."""
    in_order: dict[int, list[int]] = defaultdict(list)
    failing: dict[tuple[int, int], int] = defaultdict(int)
    half, done = trio.Event(), trio.Event()

    def note() -> None:
        handled = sum(map(len, in_order.values()))
        if handled >= QUEUES * PER_QUEUE // 3:
            half.set()
        expected = QUEUES * PER_QUEUE * 4 // 3
        if handled == QUEUES * PER_QUEUE and sum(failing.values()) == expected:
            done.set()

    async def one_after_the_other(message: ReceivedMessage) -> None:
        await trio.sleep(0.01)
        in_order[message.queue_id].append(int(message.body))
        note()

    async def fails_for_each_third(message: ReceivedMessage) -> None:
        queue_id, place = message.keys.split("-")
        failing[int(queue_id), int(place)] += 1
        note()
        if int(place) % 3 == 0 and message.reconsume_times == 0:
            raise Nack(delay_s=0.5)

    async def ordered(namesrv: str) -> None:
        async with Consumer(namesrv, "ordered", {"T": "*"}, ordered=True) as consumer:
            assert consumer._locks is not None
            its = consumer._locks.leases
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, one_after_the_other, 4)
                await half.wait()
                locks = {queue: its.token(queue) for queue in its.queues()}
                await done.wait()
                # The retry topic's queue may have come since, on a machine that is busy.
                assert {queue: its.token(queue) for queue in locks} == locks
                assert None not in locks.values()
                nursery.cancel_scope.cancel()

    async def retrying(namesrv: str) -> None:
        async with Consumer(namesrv, "retrying", {"T": "*"}) as consumer:
            await consumer.run(fails_for_each_third, 4, order="none")

    with new_cluster(tmp_path).running() as cluster:
        namesrv = cluster.layout.namesrv_addr
        async with PeerPool() as pool, Producer(namesrv, "PG") as producer:
            probe = Probe(cluster, pool)
            await probe.wait_until_serving()
            async with Admin(namesrv) as admin:
                await admin.topics.update("T", read_queues=QUEUES, write_queues=QUEUES)
            with trio.fail_after(40):
                async with trio.open_nursery() as nursery:
                    for _ in range(2):
                        nursery.start_soon(ordered, namesrv)
                    nursery.start_soon(retrying, namesrv)
                    for place in range(PER_QUEUE):
                        for queue_id in range(QUEUES):
                            message = Message("T", b"%d" % place, keys=f"{queue_id}-{place}")
                            await producer.send(message, queue_id=queue_id)
                    await half.wait()
                    cluster.kill((await probe.wait_for_leader("broker-a")).node.name)
                    await done.wait()
                    await trio.sleep(0.7)
                    nursery.cancel_scope.cancel()
    assert dict(in_order) == {queue_id: [*range(PER_QUEUE)] for queue_id in range(QUEUES)}
    assert all(times == (2 if place % 3 == 0 else 1) for (_, place), times in failing.items())
    assert len(failing) == QUEUES * PER_QUEUE
