"""Transactions of consumers under each event loop and none; and over leaders that die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import replace_leader, serving
from mqchaos.cluster.processes import free_ports
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

pytestmark = pytest.mark.slow

KILLS = 2
PATIENCE_S = 90.0
Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.mark.parametrize("run", ["trio", "asyncio"], indirect=True)
def test_it_is_the_same_under_trio_and_asyncio(run: Run, topic: str, namesrv_addr: str) -> None:
    """Outputs and offsets, together; and nothing after an exception."""

    async def main() -> None:
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

    run(main)


def test_it_is_the_same_without_an_event_loop(topic: str, namesrv_addr: str) -> None:
    """Producer and consumer have threads of their own."""
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
class Work:
    """What was sent, and what members know to be stored."""

    sent: int = 0
    stored: set[bytes] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    killed: trio.Event = field(default_factory=trio.Event)
    all_sent: trio.Event = field(default_factory=trio.Event)
    done: trio.Event = field(default_factory=trio.Event)


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


async def send(namesrv_addr: str, work: Work) -> None:
    """Inputs, until all leaders have died that are to."""
    async with Producer(namesrv_addr, "PG") as producer:
        while not work.killed.is_set():
            await producer.send(Message("In", b"%d" % work.sent), timeout_s=30)
            work.sent += 1
            await trio.sleep(0.003)
    work.all_sent.set()


async def until_done(namesrv_addr: str, work: Work) -> None:
    """The group has passed all inputs."""
    await work.all_sent.wait()
    async with Admin(namesrv_addr) as admin:
        while (await admin.groups.progress("CG", "In")).lag:  # noqa: ASYNC110 -- a tool asks
            await trio.sleep(0.2)
    work.done.set()


async def kill_leaders(cluster: Cluster, work: Work) -> None:
    """One after the other, while all are at work."""
    for _ in range(KILLS):
        await trio.sleep(1.5)
        await replace_leader(cluster, away_s=1.0)
    work.killed.set()


async def scene(cluster: Cluster) -> tuple[Work, list[bytes]]:
    """Three members that come and go, while leaders die; and what is there afterwards."""
    await serving(cluster)
    namesrv_addr, work = cluster.layout.namesrv_addr, Work()
    async with Admin(namesrv_addr) as admin:
        for topic in ("In", "Out"):
            await admin.topics.update(topic, read_queues=4, write_queues=4)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, namesrv_addr, work)
            nursery.start_soon(kill_leaders, cluster, work)
            nursery.start_soon(until_done, namesrv_addr, work)
            for number in range(3):
                nursery.start_soon(member, namesrv_addr, work, number)
    outputs: list[bytes] = []
    async with Consumer(namesrv_addr, None, {"Out": "*"}, assign="all", offsets=None) as consumer:
        while messages := await consumer.poll(timeout_s=2):
            outputs += [message.body for message in messages]
    return work, outputs


def test_each_input_has_its_output_once(tmp_path: Path) -> None:
    """Although leaders are killed, and members end and rebalance with messages in hand."""
    layout = plan(free_ports(ports_needed(3, 1, 1)), 3, 1, 1)
    cluster = Cluster.create(tmp_path / "c", layout)
    with cluster.running():
        work, outputs = trio.run(scene, cluster)
    print(f"{work.sent} inputs, refused {dict(work.refused)}")
    assert Counter(outputs) == Counter(b"%d" % number for number in range(work.sent))
    assert work.stored <= set(outputs)
