"""Transactions of consumers under each event loop and without one, over leaders' deaths."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio
from loops import both_loops

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import serving
from mqclient import (
    Admin,
    Consumer,
    Message,
    NotAssigned,
    OffsetsMoved,
    Producer,
    TransactionUnanswered,
)
from mqclient.blocking import Consumer as BlockingConsumer
from mqclient.blocking import Producer as BlockingProducer

from .leader_kills import PATIENCE_S, Killing, in_group_of_three


@both_loops
async def test_it_is_the_same_under_trio_and_asyncio(topic: str, namesrv_addr: str) -> None:
    """Outputs and offsets are stored together, and not after an exception, on both event loops."""
    async with (
        Producer(namesrv_addr, "P", name=topic) as producer,
        Consumer(namesrv_addr, topic, {topic: "*"}, auto_commit=False) as consumer,
    ):
        await producer.send(Message(topic, b"in"), queue_id=0)
        for fails in (True, False):
            messages = []
            while not messages:
                messages = await consumer.poll(timeout_s=5)
            assert [message.body for message in messages] == [b"in"]
            try:
                async with consumer.transaction(producer) as transaction:
                    await transaction.send(Message(f"{topic}-out", b"%d" % fails))
                    if fails:
                        raise ConnectionError
            except ConnectionError:
                assert fails
        (result,) = transaction.results
        assert result.queue_offset == 0
        assert (await consumer.commit()) == {}, "all of it is committed"


def test_it_is_the_same_without_an_event_loop(topic: str, namesrv_addr: str) -> None:
    """A blocking producer and consumer write outputs with offsets."""
    with (
        BlockingProducer(namesrv_addr, "P", name=topic) as producer,
        BlockingConsumer(namesrv_addr, topic, {topic: "*"}, auto_commit=False) as consumer,
    ):
        producer.send(Message(topic, b"in"), queue_id=0)
        messages = []
        while not messages:
            messages = consumer.poll(timeout_s=5)
        with consumer.transaction(producer) as transaction:
            transaction.send(Message(f"{topic}-out", messages[0].body))
        producer.send(Message(f"{topic}-out", b"beside"))

        assert [result.queue_offset for result in transaction.results] == [0]
        with consumer.transaction(producer) as transaction:
            transaction.send(Message(f"{topic}-out", b"never"))
            transaction.rollback()
        assert transaction.results == []


@dataclass
class Work(Killing):
    """Sent messages, and those that members know to be stored."""

    stored: set[bytes] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)


async def member(namesrv_addr: str, work: Work, number: int) -> None:
    """Three lives, each ended in the middle of something, and one until all is done."""
    for life in range(4):
        async with (
            Producer(namesrv_addr, "P", name=f"member-{number}") as producer,
            Consumer(
                namesrv_addr, "CG", {"In": "*"}, auto_commit=False, revoke_timeout_s=0.5
            ) as consumer,
        ):
            with trio.move_on_after(1.0 + 0.7 * number + life / 2 if life < 3 else PATIENCE_S):
                while not work.done.is_set():
                    messages = await consumer.poll(9, timeout_s=0.5)
                    try:
                        async with consumer.transaction(producer) as transaction:
                            for message in messages:
                                await transaction.send(Message("Out", message.body))
                            await trio.sleep(0.01)
                    except (OffsetsMoved, NotAssigned, TransactionUnanswered) as error:
                        work.refused[type(error).__name__] += 1
                    else:
                        work.stored.update(message.body for message in messages)


async def scene(cluster: Cluster) -> tuple[Work, list[bytes]]:
    """Three members that come and go, while leaders die; and what is there afterwards."""
    await serving(cluster)
    namesrv_addr, work = cluster.layout.namesrv_addr, Work("In")
    async with Admin(namesrv_addr) as admin:
        for topic in ("In", "Out"):
            await admin.topics.update(topic, read_queues=4, write_queues=4)
    members = [partial(member, namesrv_addr, work, number) for number in range(3)]
    await work.run(cluster, *members)
    outputs: list[bytes] = []
    async with Consumer(namesrv_addr, None, {"Out": "*"}, assign="all", offsets=None) as consumer:
        while messages := await consumer.poll(timeout_s=2):
            outputs += [message.body for message in messages]
    return work, outputs


def test_each_input_has_its_output_once(tmp_path: Path) -> None:
    """An input has one output, though leaders are killed and members rebalance."""
    work, outputs = in_group_of_three(tmp_path, scene)
    print(f"{work.sent} inputs, refused {dict(work.refused)}")
    assert Counter(outputs) == Counter(b"%d" % number for number in range(work.sent))
    assert work.stored <= set(outputs)
