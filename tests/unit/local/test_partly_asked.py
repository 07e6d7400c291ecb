"""Two broker groups, one without a leader: tools show the other one, and name it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mqclient import Message, NoLeader
from mqclient.admin import Admin
from mqlocal import LocalCluster, local_cluster

SENT = 20


async def without_leader(cluster: LocalCluster, group: str) -> None:
    """Kill the leader and one member more."""
    leader = await cluster.leader(group)
    other = next(name for name in cluster.servers if group in name and name != leader)
    for name in (leader, other):
        await cluster.kill(name)


@asynccontextmanager
async def half_led() -> AsyncIterator[tuple[LocalCluster, Admin]]:
    """Messages that a consumer group has read in both broker groups; then one member of the second
    is left, which never leads."""
    async with local_cluster(replicas=3, groups=2) as cluster, cluster.admin() as admin:
        rate = "+send.rate.messages=100000"
        await admin.topics.update("T", read_queues=1, write_queues=1, attributes=rate)
        async with cluster.producer("P") as producer, cluster.consumer("G", {"T": "*"}) as reader:
            for _ in range(SENT):
                await producer.send(Message("T", b"x"))
            read = 0
            while read < SENT:
                read += len(await reader.poll(timeout_s=5))
            await reader.commit()
            for _ in range(SENT):
                await producer.send(Message("T", b"not read"))
        await without_leader(cluster, cluster.groups[1])
        yield cluster, admin


async def test_a_group_without_a_leader_hides_no_other() -> None:
    """The others' progress is shown with the lost group's name; without `partly` it is an error."""
    async with half_led() as (cluster, admin):
        first, second = cluster.groups
        with pytest.raises(NoLeader, match=second):
            await admin.groups.progress("G")
        with pytest.raises(NoLeader, match=second):
            await admin.groups.list()
        for found in (
            await admin.groups.progress("G", partly=True),
            next(each for each in await admin.groups.list(partly=True) if each.group == "G"),
        ):
            assert {queue.broker_name for queue in found.queues} == {first}
            assert found.lag == sum(queue.lag for queue in found.queues) > 0
            assert list(found.unasked) == [second]
            assert "showed no leader" in found.unasked[second]
            assert found.caught_up_s is None
        assert [text for text in admin.left_out if second in text and "can't be asked" in text]
        unknown = await admin.groups.progress("Nobody", partly=True)
        assert (unknown.queues, list(unknown.unasked)) == ((), [second])


async def test_the_hour_of_the_others_is_shown() -> None:
    """The other leaders' last hour is shown; the lost group alone is an error."""
    async with half_led() as (cluster, admin):
        assert len(await admin.statistics.history()) == 1
        assert [text for text in admin.left_out if cluster.groups[1] in text]
        with pytest.raises(NoLeader):
            await admin.statistics.history(cluster.groups[1])


async def test_traffic_and_rates_of_the_others_are_shown() -> None:
    """Traffic of the others is shown, without a row for topics of the lost group alone."""
    async with half_led() as (cluster, admin):
        second = cluster.groups[1]
        for wanted in (admin.statistics.traffic, admin.statistics.rates):
            with pytest.raises(NoLeader, match=second):
                await wanted()
        (row,) = await admin.statistics.traffic(partly=True)
        assert (row.topic, row.group) == ("T", "G")
        progress = await admin.groups.progress("G", partly=True)
        assert row.lag == progress.lag > 0
        assert row.in_24_h > 0
        assert [text for text in admin.left_out if second in text and "can't be asked" in text]
        assert admin.unasked == (second,)
        (one,) = await admin.statistics.traffic("T", partly=True)
        assert one.lag == row.lag
    async with half_led() as (cluster, admin):
        (rate,) = await admin.statistics.rates(partly=True)
        assert (rate.broker_name, rate.kind, rate.name) == (cluster.groups[0], "topic", "T")
        assert [text for text in admin.left_out if cluster.groups[1] in text]


async def test_nothing_is_told_if_nobody_can_be_asked() -> None:
    """A question that no leader answers is an error, with `partly`, too."""
    async with half_led() as (cluster, admin):
        await without_leader(cluster, cluster.groups[0])
        with pytest.raises(NoLeader):
            await admin.groups.progress("G", partly=True)
        for wanted in (admin.statistics.traffic, admin.statistics.rates):
            with pytest.raises(NoLeader):
                await wanted(partly=True)
