"""Obstacles to a fault: servers that are away already, groups that would lose too much.

And whether it shows, once it was injected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.faults.targets import Victims
from mqchaos.limits import EFFECT_S, POLL_S


def not_serving(cluster: Cluster, victims: Victims) -> str | None:
    """Which of these servers does not run, or stands still; None if all serve."""
    gone = [victim.name for victim in victims if not cluster.serves(victim.name)]
    return f"{', '.join(gone)} does not serve" if gone or not victims else None


def majority_missing(cluster: Cluster, victims: Victims) -> str | None:
    """Which group would have no majority that serves without these nodes; None if all would."""
    for broker in dict.fromkeys(node.broker for node in victims if isinstance(node, NodeLayout)):
        group = cluster.layout.group(broker)
        others = [node for node in group if node not in victims and cluster.serves(node.name)]
        if 2 * len(others) <= len(group):
            return f"{broker} would lose its majority"
    return None


class OfFew:
    """A fault that takes nodes away: their group must be able to miss them."""

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """The obstacle: a victim does not serve, or its group has no majority without the
        victims."""
        return not_serving(cluster, victims) or majority_missing(cluster, victims)


class OfMany:
    """A fault that may take away more than a group can miss."""

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """The obstacle: a victim that does not serve; None if all do."""
        return not_serving(cluster, victims)


async def effect_of(shows: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a fault shows in other processes, for as long as one may take to."""
    with trio.move_on_after(EFFECT_S):
        while not await shows():  # noqa: ASYNC110 - a process's
            await trio.sleep(POLL_S)
