"""clusterList and brokerStatus."""

from __future__ import annotations

from client.commands.common import DEFAULTS, Broker, Cluster, Common
from client.commands.output import Table


def cluster_list(*, cluster: Cluster = None, common: Common = DEFAULTS) -> None:
    """Show every broker: who leads, at which term, how busy, how far behind.

    Parameters
    ----------
    cluster
        Only this cluster.
    """
    brokers = common.ask(lambda admin: admin.cluster_list(cluster))
    headers = (
        *("CLUSTER", "BROKER", "ID", "ADDRESS", "ROLE", "TERM", "VERSION"),
        *("IN/S", "OUT/S", "LOG END", "BEHIND"),
    )
    rows = [
        (
            *(b.cluster, b.broker_name, b.broker_id, b.address, b.role, b.term, b.version),
            *(b.in_per_s, b.out_per_s, b.log_end_bytes, b.behind_entries),
        )
        for b in brokers
    ]
    led = {b.broker_name for b in brokers if b.role == "leader"}
    leaderless = sorted({b.broker_name for b in brokers} - led)
    notes = [f"no leader: {name} takes no writes at the moment" for name in leaderless]
    common.show("clusterList", brokers, Table(headers, rows, notes))


def broker_status(
    *,
    broker: Broker = None,
    cluster: Cluster = None,
    common: Common = DEFAULTS,
) -> None:
    """Show the figures that brokers report about themselves.

    Parameters
    ----------
    broker
        One broker by its address (host:port), or the leader of a broker name.
    cluster
        Instead, the leaders of this cluster; without either, of all clusters.
    """
    found = common.ask(lambda admin: admin.broker_status(broker, cluster))
    rows = [
        (status.broker_name, status.address, name, value)
        for status in found
        for name, value in sorted(status.figures.items())
    ]
    common.show("brokerStatus", found, Table(("BROKER", "ADDRESS", "FIGURE", "VALUE"), rows))
