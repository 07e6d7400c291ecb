"""Waits for tests of faults: until a group is level, and until it has another leader."""

from __future__ import annotations

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import Probe
from mqchaos.faults.targets import Target, Victims, victims

ELECTED_S = 10.0


async def level(cluster: Cluster, target: Target = Target.LEADER) -> Victims:
    """Wait until a leader serves and all nodes are level; the nodes of a fault's target."""
    (broker,) = cluster.layout.brokers
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)
        await probe.wait_until_serving()
        await probe.wait_until_level(broker)
        leader = (await probe.wait_for_leader(broker)).node
    return victims(target, 0.0, cluster.layout, broker, leader)


async def replaced(cluster: Cluster, leaders: Victims) -> None:
    """Wait until another node leads."""
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)
        with trio.fail_after(ELECTED_S):
            while (await probe.wait_for_leader(cluster.layout.brokers[0])).node in leaders:  # noqa: ASYNC110
                await trio.sleep(0.05)
