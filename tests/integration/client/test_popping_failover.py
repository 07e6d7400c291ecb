"""POP over leaders' deaths: no message is lost, and acknowledged ones never come again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dledger.errors import DledgerError
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import serving
from mqclient import Admin, PopConsumer, PoppedMessage

from .leader_kills import Killing, in_group_of_three

INVISIBLE_S = 3.0


@dataclass
class Work(Killing):
    """Messages by state: sent, given to members, and acknowledged for sure."""

    given: Counter[bytes] = field(default_factory=Counter)
    acked: set[bytes] = field(default_factory=set)
    again: list[bytes] = field(default_factory=list)
    unsure: int = 0

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


async def scene(cluster: Cluster) -> Work:
    """Three members of a topic with two queues, while leaders die."""
    await serving(cluster)
    namesrv_addr, work = cluster.layout.namesrv_addr, Work("Jobs")
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update("Jobs", read_queues=2, write_queues=2)
    await work.run(cluster, *[partial(member, namesrv_addr, work)] * 3)
    async with PopConsumer(namesrv_addr, "CG", {"Jobs": "*"}) as consumer:
        work.take(await consumer.poll(timeout_s=INVISIBLE_S + 1))  # what comes would be too much
    return work


def test_a_failover_loses_no_message_and_repeats_none_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    """A message whose ack was answered never comes again."""
    work = in_group_of_three(tmp_path, scene)
    repeated = sum(work.given.values()) - work.sent
    print(f"sent {work.sent}, given again {repeated}, acks not answered {work.unsure}")
    assert set(work.given) == {b"%d" % number for number in range(work.sent)}
    assert len(work.acked) >= work.sent - work.unsure
    assert work.again == []
