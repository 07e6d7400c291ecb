"""updateTopic, deleteTopic, topicList, topicRoute, topicStatus."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from dledger.program.whole import Whole
from dledger.remoting.names import PERM_INHERIT, PERM_READ, PERM_READ_WRITE, PERM_WRITE
from mqclient.admin import Admin
from mqclient.admin.results import TopicChange, TopicRoute
from mqclient.commands.terminal.options import (
    DEFAULTS,
    ChangedBroker,
    ChangedCluster,
    Cluster,
    Common,
    QueueCount,
    Topic,
)
from mqclient.commands.terminal.output import Table, joined, moment, plural

_PERMISSIONS = {
    PERM_WRITE: "write",
    PERM_READ: "read",
    PERM_READ_WRITE: "read, write",
    PERM_READ_WRITE | PERM_INHERIT: "read, write, inherit",
}


def update_topic(
    *,
    topic: Topic,
    cluster: ChangedCluster = None,
    broker: ChangedBroker = None,
    read_queues: Annotated[
        QueueCount | None, Parameter(name=["--read-queues", "-r", "--readQueueNums"])
    ] = None,
    write_queues: Annotated[
        QueueCount | None, Parameter(name=["--write-queues", "-w", "--writeQueueNums"])
    ] = None,
    perm: Annotated[
        Whole | None,
        Parameter(name=["--perm", "-p"], validator=Number(gte=0, lte=max(_PERMISSIONS))),
    ] = None,
    order: bool | None = None,
    attributes: Annotated[
        str | None, Parameter(name=["--attributes", "-a"], allow_leading_hyphen=True)
    ] = None,
    force: Annotated[bool, Parameter(negative=())] = False,
    common: Common = DEFAULTS,
) -> None:
    """Create a topic or change it; returns when every name server shows it.

    Settings that you don't name stay as they are. A new topic has 8 queues and both permissions.

    For example:

        mqadmin updateTopic -t Orders -r 8 -w 8 -c DefaultCluster -n 127.0.0.1:9876
        mqadmin updateTopic -t Orders -a +send.rate.messages=1000 -n 127.0.0.1:9876

    Parameters
    ----------
    read_queues
        Queues to read from, on each group.
    write_queues
        Queues to write to, on each group.
    perm
        Sum of 2 (write) and 4 (read).
    order
        Mark the topic as ordered: its routes name its queues also while a group is down.
    attributes
        Attributes to set or remove, such as +message.type=DELAY,-reserve.time.
    force
        Change it even if consumers can't get some messages then, and show which.
    """

    async def update(admin: Admin) -> tuple[TopicChange, TopicRoute]:
        change = await admin.topics.update(
            topic,
            cluster=cluster,
            broker=broker,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            order=order,
            attributes=attributes,
            force=force,
        )
        return change, await admin.topics.route(topic)

    change, route = common.ask(update)
    table = _groups(route, change.brokers)
    notes = [f"topic {topic} is on {joined(change.brokers)}", *change.unreachable]
    common.show("updateTopic", change, Table(table.headers, table.rows, notes))


def delete_topic(
    *, topic: Topic, cluster: ChangedCluster = None, common: Common = DEFAULTS
) -> None:
    """Delete a topic, its messages and its consumers' offsets; status 1 if it does not exist.

    For example:

        mqadmin deleteTopic -t Orders -c DefaultCluster -n 127.0.0.1:9876
    """
    names = common.ask(lambda admin: admin.topics.delete(topic, cluster))
    result = {"topic": topic, "brokers": names}
    common.say("deleteTopic", result, f"topic {topic} is deleted on {joined(names)}")


def topic_list(*, cluster: Cluster = None, common: Common = DEFAULTS) -> None:
    """List the topics and their purposes.

    For example:

        mqadmin topicList
        mqadmin topicList -c DefaultCluster
    """
    topics = common.ask(lambda admin: admin.topics.list(cluster))
    rows = [(info.topic, info.kind) for info in topics]
    table = Table(("TOPIC", "KIND"), rows, [] if rows else ["no topics"])
    common.show("topicList", topics, table)


def topic_route(*, topic: Topic, common: Common = DEFAULTS) -> None:
    """Show the brokers that serve a topic, their leaders, and the topic's queues and permissions.

    For example:

        mqadmin topicRoute -t Orders -n 127.0.0.1:9876
    """
    route = common.ask(lambda admin: admin.topics.route(topic))
    notes = [f"queue order: {route.order_config}"] if route.order_config else []
    table = _groups(route, [group.broker_name for group in route.groups])
    common.show("topicRoute", route, Table(table.headers, table.rows, notes))


def _groups(route: TopicRoute, broker_names: Collection[str]) -> Table:
    """The queues of a topic on these broker groups."""
    headers = ("BROKER", "CLUSTER", "READ QUEUES", "WRITE QUEUES", "PERM", "LEADER", "FOLLOWERS")
    rows = [
        (
            group.broker_name,
            group.cluster,
            group.read_queues,
            group.write_queues,
            _PERMISSIONS.get(group.perm, str(group.perm)),
            group.addresses.get(0, "none at the moment"),
            joined(address for number, address in sorted(group.addresses.items()) if number),
        )
        for group in route.groups
        if group.broker_name in broker_names
    ]
    return Table(headers, rows)


def topic_cluster_list(*, topic: Topic, common: Common = DEFAULTS) -> None:
    """List the clusters that serve a topic.

    For example:

        mqadmin topicClusterList -t Orders -n 127.0.0.1:9876
    """
    clusters = common.ask(lambda admin: admin.topics.clusters(topic))
    common.show("topicClusterList", clusters, Table(("CLUSTER",), [(name,) for name in clusters]))


def topic_status(*, topic: Topic, common: Common = DEFAULTS) -> None:
    """Show the offsets of each queue of a topic, and when its last message was stored.

    For example:

        mqadmin topicStatus -t Orders -n 127.0.0.1:9876
    """
    status = common.ask(lambda admin: admin.topics.status(topic))
    rows = [
        (
            queue.broker_name,
            queue.queue_id,
            queue.min_offset,
            queue.max_offset,
            queue.max_offset - queue.min_offset,
            moment(queue.last_update_ms),
        )
        for queue in status.queues
    ]
    headers = ("BROKER", "QUEUE", "MIN OFFSET", "MAX OFFSET", "MESSAGES", "LAST MESSAGE")
    total = f"{plural(status.messages, 'message')} in {plural(len(rows), 'queue')}"
    common.show("topicStatus", status, Table(headers, rows, [total]))
