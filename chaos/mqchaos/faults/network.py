"""Faults of the network: one class, and for each kind a shape of links and what they do.

Links are the proxy's or the kernel's, and either does what a rule says. Whether a fault took effect
says whoever has the links: bytes, packets or connections must have met the rule. A cut link between
nodes that have nothing to say to each other shows nothing, so somebody whom it hurts has to talk: a
leader does, five times a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NETWORK
from mqchaos.faults import kinds
from mqchaos.faults.kinds import Kind
from mqchaos.faults.obstacles import effect_of, majority_missing, not_serving
from mqchaos.faults.targets import Victims
from mqchaos.network import rules
from mqchaos.network.control import Request, Status, tell
from mqchaos.network.needs import kernel_lacks
from mqchaos.network.rules import CUT, Direction, Rule, Shape


async def break_links(cluster: Cluster, request: Request) -> Status:
    """Break links or mend them, whosever they are. Raises ClusterError."""
    if cluster.switch is not None:
        return await trio.to_thread.run_sync(cluster.switch.take, request)
    return await tell(cluster.folder(NETWORK), request)


@dataclass(frozen=True, slots=True)
class NetworkFault:
    """A fault of some links between servers. `rule` None: the connections are reset, once."""

    kind: Kind
    shape: Shape
    rule: Rule | None

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """The obstacle: links that can't be broken so, a victim that does not serve, or no majority
        that can still talk."""
        obstacle = self._unbreakable(cluster)
        if obstacle is not None:
            return obstacle
        obstacle = not_serving(cluster, victims)
        if obstacle is None:
            cut = rules.cut_off(cluster.layout, self._cut(cluster, victims))
            gone = tuple(node for node in cluster.layout.nodes if node.name in cut)
            obstacle = majority_missing(cluster, gone)
        return obstacle

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Inject the fault, and wait until a packet has met it."""
        directions = sorted(self._directions(cluster, victims))
        reset = self.rule is None
        request = Request(self._name(victims), directions, self.rule, reset=reset)
        await break_links(cluster, request)
        cluster.cut_off |= rules.cut_off(cluster.layout, self._cut(cluster, victims))
        await effect_of(partial(self.took_effect, cluster, victims))

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Something was held back or changed for it, or reset."""
        if self.rule is None and cluster.switch is not None:
            return True  # the kernel counts nothing of it: `inject` has
        status = await break_links(cluster, Request())
        return status.touched.get(self._name(victims), 0) > 0

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Remove the fault's rules: the bytes that were held back are delivered."""
        await break_links(cluster, Request(self._name(victims), healed=True))
        cluster.cut_off -= rules.cut_off(cluster.layout, self._cut(cluster, victims))

    def _unbreakable(self, cluster: Cluster) -> str | None:
        """Why nobody could do that to these links; None if somebody can."""
        if cluster.switch is not None:
            return kernel_lacks(self.rule)
        if cluster.pid(NETWORK) is None:
            return "the links of this cluster pass no proxy"
        of_packets = self.rule is not None and self.rule.of_packets
        return "the proxy forwards bytes, and no packets" if of_packets else None

    def _directions(self, cluster: Cluster, victims: Victims) -> frozenset[Direction]:
        return self.shape(cluster.layout, {server.name for server in victims})

    def _cut(self, cluster: Cluster, victims: Victims) -> frozenset[Direction]:
        cuts = self.rule is not None and self.rule.cut
        return self._directions(cluster, victims) if cuts else frozenset()

    def _name(self, victims: Victims) -> str:
        return " ".join([self.kind.name, *sorted(server.name for server in victims)])


NETWORK_FAULTS: Final = (
    NetworkFault(kinds.PARTITION, rules.from_peers, CUT),
    NetworkFault(kinds.ISLAND, rules.from_everybody, CUT),
    NetworkFault(kinds.BRIDGE, rules.but_for_a_bridge, CUT),
    NetworkFault(kinds.RING, rules.ring, CUT),
    NetworkFault(kinds.MUTE, rules.unheard, CUT),
    NetworkFault(kinds.DEAF, rules.unhearing, CUT),
    NetworkFault(kinds.CUT_CLIENTS, rules.from_clients, CUT),
    NetworkFault(kinds.CUT_NAMESRV, rules.from_namesrvs, CUT),
    NetworkFault(kinds.SLOW, rules.among, Rule(delay_s=0.02, jitter_s=0.02)),
    NetworkFault(kinds.LOSSY, rules.among, Rule(loss=0.01)),
    NetworkFault(kinds.NARROW, rules.among, Rule(bytes_per_s=4e6)),
    NetworkFault(kinds.DOUBLED, rules.among, Rule(doubled=0.1)),
    NetworkFault(kinds.DISORDERED, rules.among, Rule(delay_s=0.01, hasty=0.25)),
    NetworkFault(kinds.GARBLED, rules.among, Rule(garbled=0.01)),
    NetworkFault(kinds.RESET, rules.from_everybody, None),
)
