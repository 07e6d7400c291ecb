"""Commands of mqadmin about members of a broker group: raftStatus and transferLeader."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from mqclient.commands.terminal.options import DEFAULTS, Cluster, Common
from mqclient.commands.terminal.output import Table, leaderless

Broker = Annotated[str | None, Parameter(name=["--broker", "-b", "--brokerName"])]


def raft_status(
    *, broker: Broker = None, cluster: Cluster = None, common: Common = DEFAULTS
) -> None:
    """Show all members of each broker group: the leader, the term, and how far each log is.

    docs/explanation/dledger.md explains the roles and whose copies count. docs/reference/broker.md
    explains entries that were set aside, and faults.

    For example:

        mqadmin raftStatus -n 127.0.0.1:9876

    Parameters
    ----------
    broker
        Only this group: its broker name, or a member's address.
    cluster
        Only the groups of this cluster.
    """
    members = common.ask(lambda admin: admin.raft.status(cluster, broker))
    headers = (
        *("CLUSTER", "BROKER", "NODE", "ADDRESS", "ROLE", "TERM", "LEADER"),
        *("LAST", "COMMITTED", "APPLIED", "LAG", "COUNTED", "ASIDE", "FAULTS", "FENCED"),
    )
    rows = [
        (
            *(m.cluster, m.broker_name, m.node_id + ("*" if m.preferred else ""), m.address),
            *(m.role, m.term, m.leader_id, m.last_index, m.commit_index, m.applied_index),
            *(m.lag_entries, m.counted, m.set_aside, m.faults, m.fenced),
        )
        for m in members
    ]
    notes = leaderless((m.broker_name, m.role) for m in members)
    if any(m.preferred for m in members):
        notes.append("* the preferred leader")
    notes += [
        f"set aside on {m.node_id} of {m.broker_name}: entry {index}, {reason}"
        for m in members
        for index, reason in m.set_aside_last
    ]
    notes += [
        f"the leader can't connect to {m.node_id} of {m.broker_name}: {m.problem}"
        for m in members
        if m.problem
    ]
    common.show("raftStatus", members, Table(headers, rows, notes))


def transfer_leader(
    *,
    broker: Annotated[str, Parameter(name=["--broker", "-b", "--brokerName"])],
    to: str | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Hand leadership of a broker group to another member, and wait until the member serves.

    Appends are refused for a moment, and clients send them again. If the other member does not take
    over within a second, nothing changes.

    For example:

        mqadmin transferLeader -b broker-a --to n2 -n 127.0.0.1:9876

    Parameters
    ----------
    broker
        The group: its broker name, or a member's address.
    to
        The node id of the member that shall lead; by default the one that holds most of the log.
    """
    moved = common.ask(lambda admin: admin.raft.transfer_leader(broker, to))
    row = moved.broker_name, moved.leader_id, moved.address, round(moved.waited_s, 3)
    table = Table(("BROKER", "LEADER", "ADDRESS", "WAITED S"), [row])
    common.show("transferLeader", moved, table)
