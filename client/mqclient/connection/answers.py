"""Checks the bounds of servers' answers before they are used. Pure.

A name server passes on whatever was registered, and a broker may be foreign: an answer that the
codec can read may still name two thousand million queues. A value beyond its bound raises BadInput,
like an answer that can't be read.
"""

from __future__ import annotations

from collections.abc import Iterable

from dledger.errors import BadInput
from dledger.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerIdList,
    TopicRouteData,
    decode_body,
)
from dledger.remoting.command import Command
from mqclient import limits


def route_in(answer: Command) -> TopicRouteData:
    """The route in a name server's answer. Raises BadInput."""
    route = decode_body(TopicRouteData, answer.payload)
    _check_groups(route.broker_datas)
    rows = [*route.queue_datas, *(route.absent_queue_datas or ())]
    _check_count("queue counts", len(rows), limits.GROUPS_MAX)
    queues = 0
    for entry in rows:
        least = min(entry.read_queue_nums, entry.write_queue_nums)
        most = max(entry.read_queue_nums, entry.write_queue_nums)
        queues += most
        if least < 0 or queues > limits.QUEUES_PER_TOPIC_MAX:
            raise BadInput(
                f"a route has {entry.read_queue_nums} queues to read and {entry.write_queue_nums} "
                f"to write on {entry.broker_name[:100]!r}: not within 0 to "
                f"{limits.QUEUES_PER_TOPIC_MAX} for a topic"
            )
    return route


def cluster_in(answer: Command) -> ClusterInfo:
    """The cluster in a name server's answer. Raises BadInput."""
    info = decode_body(ClusterInfo, answer.payload)
    _check_groups(info.broker_addr_table.values())
    return info


def consumers_in(answer: Command) -> tuple[str, ...]:
    """The members of a consumer group, sorted. Raises BadInput."""
    members = decode_body(ConsumerIdList, answer.payload).consumer_id_list
    _check_count("consumers of one group", len(members), limits.CONSUMERS_PER_GROUP_MAX)
    return tuple(sorted(members))


def checked_offset(offset: int, what: str) -> int:
    """An offset from a broker. Raises BadInput if no queue can have it."""
    if not 0 <= offset <= limits.OFFSET_MAX:
        raise BadInput(f"{what} is {offset:.6g}: no offset of a queue")
    return offset


def _check_groups(groups: Iterable[BrokerData]) -> None:
    known = list(groups)
    _check_count("broker groups", len(known), limits.GROUPS_MAX)
    for group in known:
        _check_count("members of a broker group", len(group.broker_addrs), limits.MEMBERS_MAX)


def _check_count(what: str, count: int, count_max: int) -> None:
    if count > count_max:
        raise BadInput(f"{count} {what} are above {count_max}")
