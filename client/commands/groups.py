"""consumerProgress: how far each group has read."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from client.admin.results import GroupProgress
from client.commands.common import DEFAULTS, Common
from client.commands.output import Table, moment, plural


def consumer_progress(
    *,
    group: Annotated[str | None, Parameter(name=["--group", "-g", "--groupName"])] = None,
    topic: Annotated[str | None, Parameter(name=["--topic", "-t"])] = None,
    common: Common = DEFAULTS,
) -> None:
    """Show how far a consumer group is in each queue; without -g, list all groups.

    Parameters
    ----------
    group
        Name of the consumer group.
    topic
        Only this topic.
    """
    if group is None:
        groups = common.ask(lambda admin: admin.consumer_groups())
        common.show("consumerProgress", groups, _summary(groups))
    else:
        progress = common.ask(lambda admin: admin.consumer_progress(group, topic))
        common.show("consumerProgress", progress, _queues(progress))


def _summary(groups: tuple[GroupProgress, ...]) -> Table:
    headers = ("GROUP", "MEMBERS", "TYPE", "MODEL", "CONSUMED/S", "LAG")
    rows = [
        (g.group, g.members, g.consume_type, g.message_model, g.consumed_per_s, g.lag)
        for g in groups
    ]
    return Table(headers, rows, [] if rows else ["no consumer groups"])


def _queues(progress: GroupProgress) -> Table:
    headers = (
        *("TOPIC", "BROKER", "QUEUE", "BROKER OFFSET", "CONSUMER OFFSET", "LAG"),
        "LAST CONSUMED",
    )
    rows = [
        (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            queue.broker_offset,
            queue.consumer_offset,
            queue.lag,
            moment(queue.last_consumed_ms),
        )
        for queue in progress.queues
    ]
    note = (
        f"group {progress.group}: {plural(progress.members, 'member')} connected, "
        f"lag {progress.lag}, {progress.consumed_per_s:.2f} messages/s"
    )
    return Table(headers, rows, [note])
