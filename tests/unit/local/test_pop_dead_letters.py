"""Messages that popping members give up are dead letters once, and acknowledged."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from dledger.failpoints import SEAM
from mqclient import Message, PopConsumer, PoppedMessage
from mqlocal import LocalCluster, local_cluster

COUNT = 60


async def through_with(cluster: LocalCluster, count: int) -> None:
    """Wait until the group is through with `count` messages."""
    passed = 0
    while passed < count:
        await trio.sleep(0.2)
        async with cluster.admin() as admin:
            rows = (await admin.groups.progress("G", "T")).queues
        passed = sum(row.consumer_offset for row in rows if row.topic == "T")


def poison(message: PoppedMessage) -> None:
    """Raise an error for every message."""
    raise ValueError(message.body)


async def test_each_is_a_dead_letter_once_though_leaders_die() -> None:
    """Four members give up sixty messages; leaders are killed meanwhile, and a member's request is
    repeated, or its message comes again."""
    async with local_cluster() as cluster:
        async with cluster.producer("P") as producer:
            for number in range(COUNT):
                await producer.send(Message("T", b"%d" % number))
        with trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(give_up, cluster)
                for _ in range(3):
                    await trio.sleep(0.2)
                    await cluster.restart(await cluster.kill())
                await through_with(cluster, COUNT)
                nursery.cancel_scope.cancel()
        async with cluster.admin() as admin:
            letters = await admin.dead_letters.list("G", count=2 * COUNT)
        assert Counter(each.text for each in letters) == {str(number): 1 for number in range(COUNT)}


async def give_up(cluster: LocalCluster) -> None:
    """A member whose handler fails, slowly."""

    async def handle(message: PoppedMessage) -> None:
        await trio.sleep(0.05)
        poison(message)

    async with PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}, invisible_s=1) as consumer:
        await consumer.run(handle, max_reconsume_times=0)


async def test_each_is_a_dead_letter_once_though_its_member_dies_as_it_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member that dies while its dead letter is stored needs no successor for the ack."""
    life, letters, few = trio.CancelScope(), 0, 5

    def died(place: str) -> bool:
        nonlocal letters
        if place == "batch.applied":
            letters += 1
            life.cancel()
        return False

    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            for number in range(few):
                await producer.send(Message("T", b"%d" % number))
        monkeypatch.setattr(SEAM, "handler", died)
        while letters < few:
            with trio.CancelScope() as life:
                await give_up(cluster)
        with trio.move_on_after(10) as life:
            await give_up(cluster)
        async with cluster.admin() as admin:
            buried = await admin.dead_letters.list("G")
        assert Counter(each.text for each in buried) == {str(number): 1 for number in range(few)}
        await through_with(cluster, few)


async def test_a_group_that_takes_none_back_is_through_with_them() -> None:
    """A group that stores no dead letters, as in RocketMQ, still has the message acknowledged."""
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer, cluster.admin() as admin:
            await producer.send(Message("T", b"x"))
            await admin.groups.update("G", retry_queue_nums=0)
        with trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(give_up, cluster)
                await through_with(cluster, 1)
                nursery.cancel_scope.cancel()
        async with cluster.admin() as admin:
            assert await admin.dead_letters.list("G") == ()


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("times", [0, 2])
async def test_a_group_s_tries_are_counted_for_members_that_pop(times: int, by_hand: bool) -> None:
    """`updateSubGroup -r`: a handler that raises once more buries the message, once and for good,
    and so does a `nack`."""
    tried: list[int] = []

    def handle(message: PoppedMessage) -> None:
        tried.append(message.reconsume_times)
        poison(message)

    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        async with cluster.producer("P") as producer:
            await producer.send(Message("T", b"x"))
        await admin.groups.update("G", retry_max_times=times)
        group = (cluster.namesrv_addr, "G", {"T": "*"})
        async with PopConsumer(*group, retry_delays_s=[1]) as consumer:
            with trio.move_on_after(600):
                if not by_hand:
                    await consumer.run(handle)
            for _ in range(60 if by_hand else 0):
                for message in await consumer.poll():
                    tried.append(message.reconsume_times)
                    assert await consumer.nack(message, delay_s=1)
                    assert not await consumer.nack(message), "it is no longer this consumer's"
        (letter,) = await admin.dead_letters.list("G")
    assert (letter.text, letter.reconsume_times) == ("x", times + 1)
    assert tried == [*range(times + 1)]
