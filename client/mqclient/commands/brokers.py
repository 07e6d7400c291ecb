"""Commands of mqadmin about brokers: clusterList and brokerStatus."""

from __future__ import annotations

from mqclient.commands.terminal.options import DEFAULTS, AskedBroker, AskedCluster, Cluster, Common
from mqclient.commands.terminal.output import Table, leaderless


def cluster_list(*, cluster: Cluster = None, common: Common = DEFAULTS) -> None:
    """Show every broker: its role, term, load and lag.

    The version is the broker's own, or the version that a RocketMQ broker reports.

    For example:

        mqadmin clusterList -n 127.0.0.1:9876
        mqadmin clusterList -n '10.0.0.1:9876;10.0.0.2:9876' -o json
    """
    brokers = common.ask(lambda admin: admin.brokers.list(cluster))
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
    notes = leaderless((b.broker_name, b.role) for b in brokers)
    common.show("clusterList", brokers, Table(headers, rows, notes))


def broker_status(
    *,
    broker: AskedBroker = None,
    cluster: AskedCluster = None,
    common: Common = DEFAULTS,
) -> None:
    """Show the figures that brokers report about themselves.

    For example:

        mqadmin brokerStatus -n 127.0.0.1:9876
    """
    found = common.ask(lambda admin: admin.brokers.status(broker, cluster))
    rows = [
        (status.broker_name, status.address, name, value)
        for status in found
        for name, value in sorted(status.figures.items())
    ]
    common.show("brokerStatus", found, Table(("BROKER", "ADDRESS", "FIGURE", "VALUE"), rows))
