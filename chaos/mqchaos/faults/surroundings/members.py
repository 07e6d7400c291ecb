"""Nodes that come to a group and go, while it serves: as an operator does it, by `mqadmin`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from dledger.errors import BadInput, DledgerError
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.probe import Probe
from mqchaos.cluster.processes import ClusterError
from mqchaos.cluster.resizing import add_node, make_member, remove_node
from mqchaos.faults.kinds import DISMISS, JOIN
from mqchaos.faults.obstacles import OfFew, OfMany
from mqchaos.faults.targets import Victims
from mqchaos.limits import CHANGE_AGAIN_S, CHANGE_TIMEOUT_S


class Join(OfMany):
    """A new node comes to the group of these, and goes again."""

    kind = JOIN

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """While they serve, and the links are those of a group that may change."""
        return _proxied(cluster) or super().why_not(cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Start one more node, and return when it votes. Raises ClusterError."""
        try:
            await add_node(cluster, _nodes(victims)[0].broker)
        except (DledgerError, BadInput) as error:
            raise ClusterError(f"no node was added: {error}") from error

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """There is a node that has come later than these."""
        return _newest(cluster, victims) is not None

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Remove the newest node, and end it. Raises ClusterError.

        Nobody may know whether it was added, as where no name server answered: so it is first.
        """
        node = _newest(cluster, victims)
        if node is not None:
            await _persist(partial(make_member, cluster, node))
            await _persist(partial(remove_node, cluster, node))


class Dismiss(OfFew):
    """A node is removed from its group, goes on running, and is added again with all it has."""

    kind = DISMISS

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """While they serve, a majority without them, and the links may change."""
        return _proxied(cluster) or super().why_not(cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Remove the nodes from their groups. Raises ClusterError."""
        async with cluster.admin() as admin:
            for node in _nodes(victims):
                await _persist(partial(admin.members.remove, node.broker, node.node))

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """The group's leader does not name them."""
        return not await _are_members(cluster, victims)

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Add the nodes to their groups again. Raises ClusterError."""
        for node in _nodes(victims):
            await _persist(partial(make_member, cluster, node))


MEMBER_FAULTS: Final = (Join(), Dismiss())


def _proxied(cluster: Cluster) -> str | None:
    """A network knows the links of the nodes that it was made for, and no others."""
    return "the network of this cluster has no new links" if cluster.layout.breakable else None


def _nodes(victims: Victims) -> list[NodeLayout]:
    return [victim for victim in victims if isinstance(victim, NodeLayout)]


def _newest(cluster: Cluster, victims: Victims) -> NodeLayout | None:
    """The last node of the group of these, if it is none of those that it began with."""
    group = cluster.layout.group(_nodes(victims)[0].broker)
    return None if group[-1].name in cluster.nodes_at_first else group[-1]


async def _are_members(cluster: Cluster, victims: Victims) -> bool:
    """Whether the leader names one of these."""
    names = {node.node for node in _nodes(victims)}
    async with cluster.pool() as pool:
        leader = await Probe(cluster, pool).leader(_nodes(victims)[0].broker)
    return leader is None or leader.info is None or bool(names & {*dict(leader.info.members)})


async def _persist(change: Callable[[], Awaitable[object]]) -> None:
    """Ask for a change until it is made. Raises ClusterError with the last reason if it is not."""
    reason = "nobody answered"
    with trio.move_on_after(CHANGE_TIMEOUT_S):
        while True:
            try:
                await change()
            except (DledgerError, BadInput) as error:
                reason = str(error)
            else:
                return
            await trio.sleep(CHANGE_AGAIN_S)
    raise ClusterError(f"the members did not change within {CHANGE_TIMEOUT_S:.0f} s: {reason}")
