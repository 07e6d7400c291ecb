"""Our client and a stock one read, answer and commit each other's messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio
from clients import Client, each_of, ready
from drivers import Run
from judges import Scenario

from mqchaos.cluster.cluster import Cluster
from mqclient import Admin, Consumer, Decision, Message, Producer

FEATURE = "with_ours"
MEETING_S = 60.0
TO_US = {b"committed", b"late", b"a question"}


async def make_topics(namesrv_addr: str, *topics: str) -> None:
    """Make topics before their consumers look for them."""
    async with Admin(namesrv_addr) as admin:
        for topic in topics:
            await admin.topics.update(topic, read_queues=2, write_queues=2)


async def meet(namesrv_addr: str, topic: str) -> tuple[bytes, list[bytes]]:
    """The stock replier's answer to us, and all that we read until it has sent everything."""
    read: list[bytes] = []
    async with (
        Producer(namesrv_addr, "ours", checker=lambda _: Decision.UNKNOWN) as producer,
        Consumer(namesrv_addr, "ours", {f"{topic}_back": "*"}) as consumer,
    ):
        async with producer.transaction(Message(topic, b"committed")):
            pass
        async with producer.transaction(Message(topic, b"rolled back")) as transaction:
            await transaction.rollback()
        await producer.send(Message(topic, b"late", delay_s=2))
        with trio.fail_after(MEETING_S):
            async with trio.open_nursery() as nursery:
                answers: list[bytes] = []

                @nursery.start_soon
                async def ask() -> None:
                    question = Message(topic, b"a question")
                    reply = await producer.request(question, timeout_s=MEETING_S)
                    answers.append(reply.body)

                while set(read) < TO_US:
                    for message in await consumer.poll(timeout_s=0.5):
                        read.append(message.body)
                        if message.body == b"a question":
                            await producer.reply(message, b"reply to a question")
        read += [message.body for message in await consumer.poll(timeout_s=1.0)]
    return answers[0], read


@pytest.mark.parametrize("client", each_of("java4", "java5"))
def test_our_client_and_a_stock_one_understand_each_other(
    cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    """Requests and replies both ways, delayed and committed messages; nothing rolled back."""
    argv = ready(client)
    topic, namesrv_addr = f"{client.name}_{FEATURE}", cluster.layout.namesrv_addr
    trio.run(make_topics, namesrv_addr, topic, f"{topic}_back", f"%RETRY%{topic}")
    with Run(replace(client, features=(FEATURE,)), argv, namesrv_addr, tmp_path) as run:
        answer, read = trio.run(meet, namesrv_addr, topic)
        scenario: Scenario = run.scenarios()[FEATURE]
    assert answer == b"reply to a question"
    assert sorted(read) == sorted(TO_US)
    received = sorted(event["body"] for event in scenario.of("received"))
    assert received == ["a question", "committed", "late"], scenario.events
    assert [event["body"] for event in scenario.of("reply")] == ["reply to a question"]
