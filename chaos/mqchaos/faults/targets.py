"""Which servers a step is about, at its moment: a role, and a draw among those that have it. Pure.

Who leads is known only when a step is due, so a plan names roles. The same plan and the same draws
then hit the same roles again, which is all that a replay of real processes can promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from mqchaos.cluster.layout import Layout, NameServerLayout, NodeLayout

Server: TypeAlias = NodeLayout | NameServerLayout
Victims: TypeAlias = tuple[Server, ...]


class Target(Enum):
    """Which servers a step is about, at the moment of the step."""

    LEADER = "leader"
    FOLLOWER = "follower"
    NODE = "node"
    """The one of all nodes, in their order, that `pick` says."""
    MAJORITY = "majority"
    """The leader, and as many others as make a majority with it; `pick` says which."""
    MINORITY = "minority"
    """The leader, and as many others as leave a majority without it; `pick` says which."""
    ALL = "all"
    """Every node of the group."""
    NAMESRV = "namesrv"
    """The one name server that `pick` says."""
    NAMESRVS = "namesrvs"
    """All name servers."""
    HURT = "hurt"
    """Nodes whose fault was injected longest ago and is not healed."""
    GROUP = "group"


NEED_LEADER = frozenset({Target.LEADER, Target.FOLLOWER, Target.MAJORITY, Target.MINORITY})
"""Targets that are known only once somebody leads."""


def victims(
    target: Target, pick: float, layout: Layout, broker: str, leader: NodeLayout | None
) -> Victims:
    """The servers of a role. `leader` must be given for roles that need one."""
    nodes = layout.group(broker)
    if target is Target.NODE:
        return (_picked(nodes, pick),)
    if target is Target.ALL:
        return nodes
    if target is Target.NAMESRV:
        return (_picked(layout.namesrvs, pick),)
    if target is Target.NAMESRVS:
        return layout.namesrvs
    if leader is None or target not in NEED_LEADER:
        raise ValueError(f"{target.value} names no servers here")
    if target is Target.LEADER:
        return (leader,)
    followers = [node for node in nodes if node != leader]
    if target is Target.FOLLOWER:
        return (_picked(followers, pick),) if followers else ()
    first = _index(followers, pick) if followers else 0
    many = len(nodes) // 2 if target is Target.MAJORITY else (len(nodes) - 1) // 2 - 1
    return (leader, *[*followers[first:], *followers[:first]][: max(0, many)])


def short_name(server: Server) -> str:
    """A node's name within the group, or a name server's."""
    return server.node if isinstance(server, NodeLayout) else server.name


def names_of(servers: Victims) -> str:
    """The targets' short names, for people."""
    return ", ".join(map(short_name, servers))


def _index(among: Sequence[object], pick: float) -> int:
    return int(pick * len(among)) % len(among)


def _picked(among: Sequence[Server], pick: float) -> Server:
    return among[_index(among, pick)]
