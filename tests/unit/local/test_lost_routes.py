"""Topics that brokers have and name servers lost, as a tool removed them there."""

from __future__ import annotations

from itertools import count

import pytest
import trio

from dledger.remoting.headers import DeleteTopicInNamesrvHeader
from dledger.world import world
from mqbroker.limits import REGISTER_INTERVAL_S
from mqclient import Admin, Message, Nack, ReceivedMessage
from mqclient.limits import REBALANCE_POLL_S
from mqlocal import local_cluster

SOON_S = 10.0
RETRIES = "%RETRY%G"


async def lose(admin: Admin, topic: str) -> None:
    """Remove a topic at the name servers alone."""
    header = DeleteTopicInNamesrvHeader(topic=topic)
    await admin._requests.ask_every_name_server(header)
    assert topic not in {info.topic for info in await admin.topics.list()}


async def test_an_update_that_changes_nothing_shows_it_again() -> None:
    """An update that changes nothing returns when the name servers show the topic."""
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        for _ in range(2):
            with trio.fail_after(SOON_S):
                await admin.topics.update("T", read_queues=2, write_queues=2)
            await lose(admin, "T")


async def test_it_is_shown_again_in_time_though_other_topics_change() -> None:
    """Each change is told at once; all topics are told in their time nevertheless."""
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        every_s = world().seldom_s(REGISTER_INTERVAL_S)
        await admin.topics.update("T", read_queues=2, write_queues=2)
        await lose(admin, "T")
        with trio.fail_after(2 * every_s):
            for turn in count(2):
                await admin.topics.update("other", read_queues=turn, write_queues=turn)
                if "T" in {info.topic for info in await admin.topics.list()}:
                    break
                await trio.sleep(every_s / 5)


async def test_a_retry_topic_that_is_shown_late_is_read_soon() -> None:
    """A member that began without it looks for it every few seconds, and a retry is on time."""
    delay_s = 2 * REBALANCE_POLL_S
    handled_s: list[float] = []

    async def fail_once(_: ReceivedMessage) -> None:
        handled_s.append(trio.current_time())
        if len(handled_s) == 1:
            await admin.topics.update(RETRIES, read_queues=1, write_queues=1)
            raise Nack(delay_s=delay_s)
        tasks.cancel_scope.cancel()

    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=1, write_queues=1)
        async with cluster.consumer("G", {"T": "*"}):
            await trio.sleep(SOON_S)
        await lose(admin, RETRIES)
        async with (
            cluster.producer("P") as producer,
            cluster.consumer("G", {"T": "*"}) as consumer,
            trio.open_nursery() as tasks,
        ):
            await trio.sleep(SOON_S)
            await producer.send(Message("T", b"m"))
            await consumer.run(fail_once)
    first_s, again_s = handled_s
    assert again_s - first_s == pytest.approx(delay_s, abs=0.1)
