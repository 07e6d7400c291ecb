"""Checks the bounds of servers' answers before they are used. Pure.

A name server passes on whatever was registered, and a broker may be foreign: an answer that the
codec can read may still name two thousand million queues. A value beyond its bound raises BadInput,
like an answer that can't be read.
"""

from __future__ import annotations

from dledger.errors import BadInput
from dledger.remoting.allocation import check_count, check_groups, checked_route
from dledger.remoting.bodies import ClusterInfo, ConsumerIdList, TopicRouteData, decode_body
from dledger.remoting.command import Command
from mqclient import limits


def route_in(answer: Command) -> TopicRouteData:
    """The route in a name server's answer. Raises BadInput."""
    return checked_route(decode_body(TopicRouteData, answer.payload))


def cluster_in(answer: Command) -> ClusterInfo:
    """The cluster in a name server's answer. Raises BadInput."""
    info = decode_body(ClusterInfo, answer.payload)
    check_groups(info.broker_addr_table.values())
    return info


def consumers_in(answer: Command) -> tuple[str, ...]:
    """The members of a consumer group, sorted. Raises BadInput."""
    members = decode_body(ConsumerIdList, answer.payload).consumer_id_list
    check_count("consumers of one group", len(members), limits.CONSUMERS_PER_GROUP_MAX)
    return tuple(sorted(members))


def checked_offset(offset: int, what: str) -> int:
    """An offset from a broker. Raises BadInput if no queue can have it."""
    if not 0 <= offset <= limits.OFFSET_MAX:
        raise BadInput(f"{what} is {offset:.6g}: no offset of a queue")
    return offset
