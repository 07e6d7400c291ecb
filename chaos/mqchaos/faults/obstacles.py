"""What speaks against a fault: servers that are away already, groups that would lose too much."""

from __future__ import annotations

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.faults.targets import Victims


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
