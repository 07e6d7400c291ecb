"""Consumers with a pattern of topics get none of a broker's own topics."""

from __future__ import annotations

import re

import trio

from mqclient import Message
from mqlocal import local_cluster


async def test_a_pattern_brings_no_message_before_its_time() -> None:
    """`.*` gets a delayed message once, when it is due, and nothing that tools send."""
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            await producer.send(Message("T", b"now"))
            await producer.send(Message("T", b"later", delay_s=300))
            async with cluster.admin() as admin:
                owners = {(info.cluster, info.broker_name) for info in await admin.brokers.list()}
                kinds = {info.topic: info.kind for info in await admin.topics.list()}
            for names in owners:
                for name in names:
                    await producer.send(Message(name, b"probe"))
                    assert kinds[name] == "system"
        came: list[tuple[str, float]] = []
        began_s = trio.current_time()
        async with cluster.consumer("C", {re.compile(".*"): "*"}) as consumer:
            while (now_s := trio.current_time()) < began_s + 400:
                for message in await consumer.poll(10, timeout_s=began_s + 400 - now_s):
                    came.append((message.body.decode(), trio.current_time() - began_s))
    assert [body for body, _ in came] == ["now", "later"]
    assert came[1][1] > 295
