"""Faults: what can be done to a node, whether it can be done now, and how it is undone.

Each fault offers `available`, `inject` and `heal`, etcd's robustness tests' shape: a fault is
injected only where it is available, so that a plan never takes more from a group than the group is
built to survive, since a loss then would prove nothing.
"""

from __future__ import annotations

from typing import Protocol

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout


class Fault(Protocol):
    """One kind of fault."""

    @property
    def name(self) -> str:
        """As it stands in the history when it is injected."""

    @property
    def undone(self) -> str:
        """As it stands in the history when it is healed."""

    def available(self, cluster: Cluster, node: NodeLayout) -> bool:
        """Whether it may be injected now."""

    def inject(self, cluster: Cluster, node: NodeLayout) -> None:
        """Do it. It has happened when this returns."""

    def heal(self, cluster: Cluster, node: NodeLayout) -> None:
        """Undo it. The node may need time to catch up afterwards."""


class Kill:
    """SIGKILL: the process is gone in the middle of whatever it did; its files stay."""

    name = "kill"
    undone = "restart"

    def available(self, cluster: Cluster, node: NodeLayout) -> bool:
        """While the node runs and a majority of its group runs without it."""
        group = cluster.layout.group(node.broker)
        others = [each for each in group if each != node and cluster.pid(each.name) is not None]
        return cluster.pid(node.name) is not None and 2 * len(others) > len(group)

    def inject(self, cluster: Cluster, node: NodeLayout) -> None:
        """Kill the process, and wait until the kernel has taken its files and ports back."""
        cluster.kill(node.name)

    def heal(self, cluster: Cluster, node: NodeLayout) -> None:
        """Start it again on the same files."""
        cluster.start([node.name])
