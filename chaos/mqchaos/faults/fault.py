"""Faults: what can be done to servers, whether it can be done now, and how it is undone.

Each fault offers `why_not`, `inject` and `heal`, etcd's robustness tests' shape, and
`took_effect`, which looks whether it really happened. A fault is injected only where nothing speaks
against it. What takes one node away needs a majority without that node, so that a plan never takes
more from a group than the group is built to survive. What takes a majority away says so by its
name, and a plan that wants it asks for it.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import trio

from dledger.errors import DledgerError
from dledger.remoting.codes import ResponseCode
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.probe import Probe, transfer_leader
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults import kinds
from mqchaos.faults.disk import DISK_FAULTS
from mqchaos.faults.failpoints.clocks import CLOCK_FAULTS
from mqchaos.faults.failpoints.disks import ORDERED_DISKS
from mqchaos.faults.failpoints.places import PLACE_FAULTS, AtPlace
from mqchaos.faults.killing import Killing
from mqchaos.faults.kinds import Kind
from mqchaos.faults.network import NETWORK_FAULTS
from mqchaos.faults.obstacles import OfFew, OfMany, effect_of, not_serving
from mqchaos.faults.surroundings.members import MEMBER_FAULTS
from mqchaos.faults.surroundings.renewing import RENEWING_FAULTS
from mqchaos.faults.surroundings.resources import RESOURCE_FAULTS
from mqchaos.faults.surroundings.strangers import STRANGER_FAULTS
from mqchaos.faults.targets import Server, Victims
from mqchaos.faults.wrecking import WRECKED_DISKS
from mqchaos.limits import STORM_KILLED_AFTER_S


class Fault(Protocol):
    """A kind of fault: its obstacles, and how it is injected, seen and healed."""

    @property
    def kind(self) -> Kind:
        """The fault's names, and what a node is meanwhile."""

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """Why it may not be injected now, in a few words; None if it may."""

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Hurt the victims; the fault has happened when this returns."""

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Whether the fault has happened: looked up, not remembered."""

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Undo the fault; a node may need time to catch up afterwards."""


class Kill(OfFew, Killing):
    """SIGKILL of nodes that their group can miss."""

    kind = kinds.KILL


@dataclass(frozen=True, slots=True)
class KillMany(OfMany, Killing):
    """SIGKILL of more than a group can miss, at once: a majority, all of it, or name servers, which
    know no route once they are started again, until brokers register."""

    kind: Kind


class Stop(Kill):
    """SIGTERM: the node hands over what it leads, and ends in order, as for a new version."""

    kind = kinds.STOP

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Tell them to end, and wait until they have."""
        await trio.to_thread.run_sync(cluster.stop, [victim.name for victim in victims])


class Storm(OfMany, Killing):
    """SIGKILL, and SIGKILL again while it starts: in its imports, in its recovery, as it joins."""

    kind = kinds.STORM

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Kill them, and kill them at every one of a few moments of a start."""
        await super().inject(cluster, victims)
        for seconds in STORM_KILLED_AFTER_S:
            cluster.start([victim.name for victim in victims])
            await trio.sleep(seconds)
            await super().inject(cluster, victims)


class Pause(OfFew):
    """SIGSTOP: the process stands still, its connections open, and does not know that it did."""

    kind = kinds.PAUSE

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Tell them to stop, and wait until the last of their threads has."""
        for victim in victims:
            cluster.signal(victim.name, signal.SIGSTOP)
        await effect_of(partial(self.took_effect, cluster, victims))

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """The kernel says that they are stopped."""
        return all(cluster.stopped(victim.name) for victim in victims)

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Send SIGCONT to the paused processes."""
        for victim in victims:
            cluster.signal(victim.name, signal.SIGCONT)


class Transfer:
    """The leader is told to hand over: no process ends, and nobody misses anybody."""

    kind = kinds.TRANSFER

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """While it serves, and another of its group."""
        others = [
            node
            for victim in victims
            if isinstance(victim, NodeLayout)
            for node in cluster.layout.group(victim.broker)
            if node != victim and cluster.serves(node.name)
        ]
        return not_serving(cluster, victims) or (None if others else "there is nobody to lead")

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Transfer leadership as `mqadmin transferLeader` does, but past name servers.

        Raises ClusterError if the leader refuses.
        """
        async with cluster.pool() as pool:
            for victim in victims:
                try:
                    answer = await transfer_leader(pool, victim.address)
                except DledgerError as error:
                    raise ClusterError(f"{victim.name} did not hand over: {error}") from error
                if answer.code != ResponseCode.SUCCESS:
                    raise ClusterError(f"{victim.name} did not hand over: {answer.remark}")

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Check that the nodes say that they don't lead."""
        return not any([await _leads(cluster, victim) for victim in victims])

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Nothing is to be undone."""


async def _leads(cluster: Cluster, server: Server) -> bool:
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)
        return isinstance(server, NodeLayout) and (await probe.node(server)).leads


FAULTS: dict[str, Fault] = {
    fault.kind.name: fault
    for fault in (
        Kill(),
        Stop(),
        Pause(),
        KillMany(kinds.KILL_MAJORITY),
        KillMany(kinds.KILL_ALL),
        Storm(),
        Transfer(),
        KillMany(kinds.KILL_NAMESRV),
        *NETWORK_FAULTS,
        *DISK_FAULTS,
        *PLACE_FAULTS,
        *ORDERED_DISKS,
        *WRECKED_DISKS,
        *CLOCK_FAULTS,
        *RESOURCE_FAULTS,
        *MEMBER_FAULTS,
        *STRANGER_FAULTS,
        *RENEWING_FAULTS,
    )
}


def fault_of(kind: str, place: str = "") -> Fault:
    """A kind of fault; at a place of our code, if the kind has one."""
    fault = FAULTS[kind]
    return fault.at(place) if isinstance(fault, AtPlace) else fault
