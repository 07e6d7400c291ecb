"""Faults of the network: one class, and for each kind a shape of links and what they do.

Whether it took effect says the proxy: bytes or connections must have met the rule. A cut link
between nodes that have nothing to say to each other shows nothing, so somebody whom it hurts has
to talk: a leader does, five times a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NETWORK
from mqchaos.faults.kinds import (
    BRIDGE,
    CUT_CLIENTS,
    CUT_NAMESRV,
    DEAF,
    ISLAND,
    LOSSY,
    MUTE,
    NARROW,
    PARTITION,
    RESET,
    RING,
    SLOW,
    Kind,
)
from mqchaos.faults.obstacles import effect_of, majority_missing, not_serving
from mqchaos.faults.targets import Victims
from mqchaos.network import rules
from mqchaos.network.control import Request, tell
from mqchaos.network.rules import CUT, Direction, Rule, Shape


@dataclass(frozen=True, slots=True)
class NetworkFault:
    """`rule` None: the connections are reset, once."""

    kind: Kind
    shape: Shape
    rule: Rule | None

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """While links pass a proxy, all of these serve, and a majority can still talk."""
        if cluster.pid(NETWORK) is None:
            return "the links of this cluster pass no proxy"
        obstacle = not_serving(cluster, victims)
        if obstacle is None:
            cut = rules.cut_off(cluster.layout, self._cut(cluster, victims))
            gone = tuple(node for node in cluster.layout.nodes if node.name in cut)
            obstacle = majority_missing(cluster, gone)
        return obstacle

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Have the proxy do it, and wait until something met it."""
        directions = sorted(self._directions(cluster, victims))
        reset = self.rule is None
        request = Request(self._name(victims), directions, self.rule, reset=reset)
        await tell(cluster.folder(NETWORK), request)
        cluster.cut_off |= rules.cut_off(cluster.layout, self._cut(cluster, victims))
        await effect_of(partial(self.took_effect, cluster, victims))

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """The proxy has held something back for it, or reset something."""
        status = await tell(cluster.folder(NETWORK), Request())
        return status.touched.get(self._name(victims), 0) > 0

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Let everything through that waits."""
        await tell(cluster.folder(NETWORK), Request(self._name(victims), healed=True))
        cluster.cut_off -= rules.cut_off(cluster.layout, self._cut(cluster, victims))

    def _directions(self, cluster: Cluster, victims: Victims) -> frozenset[Direction]:
        return self.shape(cluster.layout, {server.name for server in victims})

    def _cut(self, cluster: Cluster, victims: Victims) -> frozenset[Direction]:
        cuts = self.rule is not None and self.rule.cut
        return self._directions(cluster, victims) if cuts else frozenset()

    def _name(self, victims: Victims) -> str:
        return " ".join([self.kind.name, *sorted(server.name for server in victims)])


NETWORK_FAULTS: Final = (
    NetworkFault(PARTITION, rules.from_peers, CUT),
    NetworkFault(ISLAND, rules.from_everybody, CUT),
    NetworkFault(BRIDGE, rules.but_for_a_bridge, CUT),
    NetworkFault(RING, rules.ring, CUT),
    NetworkFault(MUTE, rules.unheard, CUT),
    NetworkFault(DEAF, rules.unhearing, CUT),
    NetworkFault(CUT_CLIENTS, rules.from_clients, CUT),
    NetworkFault(CUT_NAMESRV, rules.from_namesrvs, CUT),
    NetworkFault(SLOW, rules.among, Rule(delay_s=0.02, jitter_s=0.02)),
    NetworkFault(LOSSY, rules.among, Rule(loss=0.01)),
    NetworkFault(NARROW, rules.among, Rule(bytes_per_s=4e6)),
    NetworkFault(RESET, rules.from_everybody, None),
)
