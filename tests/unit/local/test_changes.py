"""Operators' changes of topics and groups, against a model: what is not named stays."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from dledger.remoting.bodies import SubscriptionGroupConfig
from mqclient import Admin, Message
from mqclient.errors import Refused
from mqlocal import local_cluster

QUEUES = 6


async def route_of(admin: Admin) -> dict[str, Any]:
    """The topic's numbers in its route."""
    (group,) = (await admin.topics.route("T")).groups
    return {
        "read_queues": group.read_queues,
        "write_queues": group.write_queues,
        "perm": group.perm,
    }


async def test_a_topic_s_changes_change_what_they_name() -> None:
    """Attributes alone, queues alone, permissions alone: all else stays; no message gets lost."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=QUEUES, write_queues=QUEUES, order=True)
        full = chance.randrange(QUEUES)
        async with cluster.producer("P") as producer:
            await producer.send(Message("T", b"x"), queue_id=full)
        model: dict[str, Any] = {"read_queues": QUEUES, "write_queues": QUEUES, "perm": 6}
        ordered = True
        for _ in range(60):
            values = {
                "read_queues": chance.randint(1, 9),
                "write_queues": chance.randint(1, 9),
                "perm": chance.choice([2, 4, 6]),
                "order": chance.choice([True, False]),
                "attributes": f"+send.rate.messages={chance.randint(1, 9)}",
            }
            named = {name: values[name] for name in values if chance.random() < 0.3}
            wanted = model | {name: named[name] for name in model if name in named}
            lost = wanted["read_queues"] <= full or (
                wanted["write_queues"] > wanted["read_queues"]
                and (wanted["read_queues"], wanted["write_queues"])
                != (model["read_queues"], model["write_queues"])
            )
            try:
                await admin.topics.update("T", **named)
            except Refused:
                assert lost, named
            else:
                assert not lost, named
                model = wanted
                ordered = named.get("order", ordered)
            assert await route_of(admin) == model
            order = (await admin.topics.route("T")).order_config
            assert order == (f"broker-a:{model['write_queues']}" if ordered else None)


async def test_a_group_s_changes_change_what_they_name() -> None:
    """A group's change is made on each broker group by itself, where settings may differ."""
    async with local_cluster(replicas=1, groups=2) as cluster, cluster.admin() as admin:
        first, second = cluster.groups
        await admin.groups.update("G", broker=first, retry_max_times=3)
        await admin.groups.update("G", broker=second, consume_broadcast_enable=False)
        await admin.groups.update("G", attributes="+consume.rate.messages=5")
        await admin.groups.update("G", retry_queue_nums=2)
        expected = SubscriptionGroupConfig(
            "G", retry_queue_nums=2, attributes={"consume.rate.messages": "5"}
        )
        found = [await admin.groups.config("G", broker=name) for name in (first, second)]
    assert found == [
        msgspec.structs.replace(expected, retry_max_times=3),
        msgspec.structs.replace(expected, consume_broadcast_enable=False),
    ]


async def test_a_new_topic_may_be_given_one_number() -> None:
    """A single number means both: messages in a queue that nobody reads would be lost."""
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        for named in ({"read_queues": 3}, {"write_queues": 3}, {}):
            await admin.topics.delete("T") if await topic_is_there(admin) else None
            await admin.topics.update("T", **named)
            count = 3 if named else 8
            assert await route_of(admin) == {
                "read_queues": count,
                "write_queues": count,
                "perm": 6,
            }


async def topic_is_there(admin: Admin) -> bool:
    """Whether the topic is listed."""
    return "T" in {info.topic for info in await admin.topics.list()}
