"""Processes that are killed: what many faults do to a node, whatever else they do to it."""

from __future__ import annotations

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.faults.targets import Victims


class Killing:
    """SIGKILL: the processes are gone in the middle of whatever they did; their files stay."""

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Kill all at one moment, and wait until the kernel has their files and ports back."""
        names = [victim.name for victim in victims]
        await trio.to_thread.run_sync(cluster.kill_together, names)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """There are no such processes any more."""
        return all(cluster.pid(victim.name) is None for victim in victims)

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Start them again on the same files."""
        cluster.start([victim.name for victim in victims])
