"""Leaders die while our own consumers pop: nothing is lost, and what was acknowledged stays so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from dledger.errors import DledgerError
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import replace_leader, serving
from mqchaos.cluster.processes import free_ports
from mqclient import Admin, Message, PopConsumer, PoppedMessage, Producer

pytestmark = pytest.mark.slow

KILLS = 2
INVISIBLE_S = 3.0
PATIENCE_S = 90.0


class Work:
    """What was sent, what members were given, and what they know to be acknowledged."""

    def __init__(self) -> None:
        self.sent = 0
        self.given: Counter[bytes] = Counter()
        self.acked: set[bytes] = set()
        self.again: list[bytes] = []
        self.unsure = 0
        self.killed = trio.Event()
        self.all_sent = trio.Event()
        self.done = trio.Event()

    def take(self, messages: list[PoppedMessage]) -> None:
        for message in messages:
            if message.body in self.acked:
                self.again.append(message.body)
            self.given[message.body] += 1


async def member(namesrv_addr: str, work: Work) -> None:
    """Pop and acknowledge, and note only what was answered."""
    consumer = PopConsumer(namesrv_addr, "CG", {"Jobs": "*"}, invisible_s=INVISIBLE_S)
    async with consumer:
        while not work.done.is_set():
            messages = await consumer.poll(20, timeout_s=0.5)
            work.take(messages)
            try:
                await consumer.ack(*messages)
            except DledgerError:
                work.unsure += len(messages)  # done or not: if not, they come again
            else:
                work.acked.update(message.body for message in messages)


async def send(namesrv_addr: str, work: Work) -> None:
    """Jobs, until all leaders have died that are to."""
    async with Producer(namesrv_addr, "PG") as producer:
        while not work.killed.is_set():
            await producer.send(Message("Jobs", b"%d" % work.sent), timeout_s=30)
            work.sent += 1
            await trio.sleep(0.003)
    work.all_sent.set()


async def until_done(namesrv_addr: str, work: Work) -> None:
    """Nothing is left that is not acknowledged."""
    await work.all_sent.wait()
    async with Admin(namesrv_addr) as admin:
        while (await admin.groups.progress("CG", "Jobs")).lag:  # noqa: ASYNC110 -- a tool asks
            await trio.sleep(0.2)
    work.done.set()


async def kill_leaders(cluster: Cluster, work: Work) -> None:
    """One after the other, while all are at work."""
    for _ in range(KILLS):
        await trio.sleep(1.5)
        await replace_leader(cluster, away_s=1.0)
    work.killed.set()


async def scene(cluster: Cluster) -> Work:
    """Three members of a topic with two queues, while leaders die."""
    await serving(cluster)
    namesrv_addr, work = cluster.layout.namesrv_addr, Work()
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update("Jobs", read_queues=2, write_queues=2)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, namesrv_addr, work)
            nursery.start_soon(kill_leaders, cluster, work)
            nursery.start_soon(until_done, namesrv_addr, work)
            for _ in range(3):
                nursery.start_soon(member, namesrv_addr, work)
    async with PopConsumer(namesrv_addr, "CG", {"Jobs": "*"}) as consumer:
        work.take(await consumer.poll(timeout_s=INVISIBLE_S + 1))  # what comes would be too much
    return work


def test_a_failover_loses_no_message_and_repeats_none_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    """Whoever was told that a message is done never sees it again."""
    layout = plan(free_ports(ports_needed(3, 1, 1)), 3, 1, 1)
    cluster = Cluster.create(tmp_path / "c", layout)
    with cluster.running():
        work = trio.run(scene, cluster)
    repeated = sum(work.given.values()) - work.sent
    print(f"sent {work.sent}, given again {repeated}, acks not answered {work.unsure}")
    assert set(work.given) == {b"%d" % number for number in range(work.sent)}
    assert len(work.acked) >= work.sent - work.unsure
    assert work.again == []
