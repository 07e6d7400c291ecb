"""A name server that knows nothing: it runs, clients reach it, and no broker may tell it anything.

It is one that has another secret than the brokers. As those prove that they know theirs, it refuses
them, and they register with the others only. Clients that ask it are told that there is no such
topic, and must ask another.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NameServerLayout
from mqchaos.cluster.probe import Probe
from mqchaos.faults.kinds import BLANK_NAMESRV
from mqchaos.faults.obstacles import OfMany, effect_of
from mqchaos.faults.targets import Victims


class Blank(OfMany):
    """Name servers are killed, and others come at their addresses that know nothing."""

    kind = BLANK_NAMESRV

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """While they serve, and brokers have a secret."""
        if cluster.secret_file is None:
            return "the brokers of this cluster have no secret"
        return super().why_not(cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Start name servers with another secret in place of these."""
        await self._restart(cluster, victims, strange=True)
        await effect_of(partial(self.took_effect, cluster, victims))

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Check that the strangers answer, and know no group."""
        async with cluster.pool() as pool:
            probe = Probe(cluster, pool)
            known = [
                await probe.known_groups(server.address)
                for server in victims
                if isinstance(server, NameServerLayout)
            ]
        return all(groups == 0 for groups in known)

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Start the right ones again."""
        await self._restart(cluster, victims, strange=False)

    async def _restart(self, cluster: Cluster, victims: Victims, *, strange: bool) -> None:
        names = [victim.name for victim in victims]
        await trio.to_thread.run_sync(cluster.kill_together, names)
        for name in names:
            cluster.estrange(name, strange=strange)
        cluster.start(names)


STRANGER_FAULTS: Final = (Blank(),)
