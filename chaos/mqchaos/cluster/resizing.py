"""A running local cluster gets a node more, or one less: a process, and a change of the members.

The order keeps a node from being counted before it can vote, or after it is gone. A new one is
started first, and added then; it is in the cluster's file from its start, so whatever goes wrong
between, `mqcluster status` shows it and `down` ends it. One that goes is removed first, and then
ended; its folder stays, for it holds messages.
"""

from __future__ import annotations

from dledger.errors import ConfigError
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.processes import free_ports
from mqchaos.limits import NODES_MAX
from mqclient.admin.results import MemberChange
from mqclient.errors import Refused


def next_node(cluster: Cluster, broker: str) -> NodeLayout:
    """A node for a group: its number was never another's, for the name says whose files are whose.

    Raises ConfigError for an unknown group or a full one.
    """
    group = cluster.layout.group(broker)
    if not group:
        raise ConfigError(
            f"there is no broker group {broker!r} in {cluster.directory}; there are "
            f"{', '.join(cluster.layout.brokers)}"
        )
    if len(group) >= NODES_MAX:
        raise ConfigError(f"{broker} has {len(group)} nodes; {NODES_MAX} are the most")
    number = len(group)
    while cluster.folder(f"{broker}-n{number}").exists():
        number += 1
    port, raft_port = free_ports(2)
    return NodeLayout(broker, f"n{number}", port, raft_port)


async def add_node(cluster: Cluster, broker: str) -> tuple[NodeLayout, MemberChange]:
    """Start one node more of a group and return when it votes. Raises as `Admin.add_node`."""
    node = next_node(cluster, broker)
    cluster.add(node)
    cluster.start([node.name])
    try:
        return node, await make_member(cluster, node)
    except Refused:
        _end(cluster, node)
        raise


async def make_member(cluster: Cluster, node: NodeLayout) -> MemberChange:
    """Add a node that runs, or wait until it votes if it was added. Raises as `Admin.add_node`."""
    async with cluster.admin() as admin:
        peer = f"{node.host}:{node.raft_port}"
        return await admin.members.add(node.broker, node.node, peer, node.address)


async def remove_node(cluster: Cluster, node: NodeLayout) -> MemberChange:
    """Remove a node from its group, and end it. Raises as `Admin.remove_node`."""
    async with cluster.admin() as admin:
        change = await admin.members.remove(node.broker, node.node)
    _end(cluster, node)
    return change


def _end(cluster: Cluster, node: NodeLayout) -> None:
    cluster.stop([node.name])
    cluster.forget(node)
