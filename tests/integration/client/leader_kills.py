"""A group of three whose leaders are killed while programs send and read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import trio
from clusters import new_cluster

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import Probe, serving
from mqclient import Admin, Message, Producer

KILLS = 2
PATIENCE_S = 90.0
T = TypeVar("T")


@dataclass
class Killing:
    """The messages that were sent to a topic, and how far the scene is."""

    topic: str
    sent: int = 0
    killed: trio.Event = field(default_factory=trio.Event)
    all_sent: trio.Event = field(default_factory=trio.Event)
    done: trio.Event = field(default_factory=trio.Event)

    async def run(self, cluster: Cluster, *members: Callable[[], Awaitable[None]]) -> None:
        """Send and kill leaders while members read, until the group `CG` has all messages."""
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, cluster.layout.namesrv_addr)
                nursery.start_soon(self._kill_leaders, cluster)
                nursery.start_soon(self._until_done, cluster.layout.namesrv_addr)
                for member in members:
                    nursery.start_soon(member)

    async def _send(self, namesrv_addr: str) -> None:
        async with Producer(namesrv_addr, "PG") as producer:
            while not self.killed.is_set():
                await producer.send(Message(self.topic, b"%d" % self.sent), timeout_s=30)
                self.sent += 1
                await trio.sleep(0.01)
        self.all_sent.set()

    async def _until_done(self, namesrv_addr: str) -> None:
        await self.all_sent.wait()
        async with Admin(namesrv_addr) as admin:
            while (await admin.groups.progress("CG", self.topic)).lag:  # noqa: ASYNC110 -- a tool asks
                await trio.sleep(0.2)
        self.done.set()

    async def _kill_leaders(self, cluster: Cluster) -> None:
        for _ in range(KILLS):
            await trio.sleep(1.5)
            await replace_leader(cluster, away_s=1.0)
        self.killed.set()


def in_group_of_three(folder: Path, scene: Callable[[Cluster], Awaitable[T]]) -> T:
    """The result of a scene on a new cluster."""
    with new_cluster(folder).running() as cluster:
        return trio.run(scene, cluster)


async def replace_leader(cluster: Cluster, away_s: float) -> None:
    """Kill the first group's leader, start it again `away_s` later, and wait until all serves."""
    async with cluster.pool() as pool:
        leader = (await Probe(cluster, pool).wait_for_leader(cluster.layout.brokers[0])).node.name
    cluster.kill(leader)
    await trio.sleep(away_s)
    cluster.start([leader])
    await serving(cluster)
