"""Faults: what can be done to a node, whether it can be done now, and how it is undone.

Each fault offers `available`, `inject` and `heal`, etcd's robustness tests' shape, and
`took_effect`, which looks whether it really happened. A fault is injected only where it is
available, so that a plan never takes more from a group than the group is built to survive, since a
loss then would prove nothing.
"""

from __future__ import annotations

import signal
import time
from typing import Final, Protocol

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.faults.kinds import KILL, PAUSE, STOP, Kind
from mqchaos.limits import EFFECT_S, POLL_S


class Fault(Protocol):
    """One kind of fault."""

    kind: Kind

    def available(self, cluster: Cluster, node: NodeLayout) -> bool:
        """Whether it may be injected now."""

    def inject(self, cluster: Cluster, node: NodeLayout) -> None:
        """Do it. It has happened when this returns."""

    def took_effect(self, cluster: Cluster, node: NodeLayout) -> bool:
        """Whether it has: looked up, not remembered."""

    def heal(self, cluster: Cluster, node: NodeLayout) -> None:
        """Undo it. The node may need time to catch up afterwards."""


class OfOneNode:
    """A fault that takes one node away: its group must be able to miss that one."""

    def available(self, cluster: Cluster, node: NodeLayout) -> bool:
        """While the node serves, and a majority of its group without it."""
        group = cluster.layout.group(node.broker)
        others = [each for each in group if each != node and cluster.serves(each.name)]
        return cluster.serves(node.name) and 2 * len(others) > len(group)


class Kill(OfOneNode):
    """SIGKILL: the process is gone in the middle of whatever it did; its files stay."""

    kind = KILL

    def inject(self, cluster: Cluster, node: NodeLayout) -> None:
        """Kill the process, and wait until the kernel has taken its files and ports back."""
        cluster.kill(node.name)

    def took_effect(self, cluster: Cluster, node: NodeLayout) -> bool:
        """There is no such process any more."""
        return cluster.pid(node.name) is None

    def heal(self, cluster: Cluster, node: NodeLayout) -> None:
        """Start it again on the same files."""
        cluster.start([node.name])


class Stop(Kill):
    """SIGTERM: the node hands over what it leads, and ends in order, as for a new version."""

    kind = STOP

    def inject(self, cluster: Cluster, node: NodeLayout) -> None:
        """Tell it to end, and wait until it has."""
        cluster.stop([node.name])


class Pause(OfOneNode):
    """SIGSTOP: the process stands still, its connections open, and does not know that it did."""

    kind = PAUSE

    def inject(self, cluster: Cluster, node: NodeLayout) -> None:
        """Tell it to stop, and wait until the last of its threads has."""
        cluster.signal(node.name, signal.SIGSTOP)
        deadline_s = time.monotonic() + EFFECT_S
        while not cluster.stopped(node.name) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)

    def took_effect(self, cluster: Cluster, node: NodeLayout) -> bool:
        """The kernel says that it is stopped."""
        return cluster.stopped(node.name)

    def heal(self, cluster: Cluster, node: NodeLayout) -> None:
        """Let it go on."""
        cluster.signal(node.name, signal.SIGCONT)


FAULTS: Final[dict[str, Fault]] = {fault.kind.name: fault for fault in (Kill(), Stop(), Pause())}
