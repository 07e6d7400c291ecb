"""A topic that brokers have and name servers have lost: a tool removed it there as it was made."""

from __future__ import annotations

from itertools import count

import trio
from trio.testing import MockClock

from dledger.remoting.headers import DeleteTopicInNamesrvHeader
from dledger.world import world
from mqbroker.limits import REGISTER_INTERVAL_S
from mqclient import Admin
from mqlocal import local_cluster

SOON_S = 10.0


async def lose(admin: Admin, topic: str) -> None:
    """Remove it at the name servers alone."""
    header = DeleteTopicInNamesrvHeader(topic=topic)
    await admin._requests.ask_every_name_server(header)
    assert topic not in {info.topic for info in await admin.topics.list()}


async def test_an_update_that_changes_nothing_shows_it_again(autojump_clock: MockClock) -> None:
    """It returns when the name servers show the topic, however the topic was."""
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        for _ in range(2):
            with trio.fail_after(SOON_S):
                await admin.topics.update("T", read_queues=2, write_queues=2)
            await lose(admin, "T")


async def test_it_is_shown_again_in_time_though_other_topics_change(
    autojump_clock: MockClock,
) -> None:
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
