"""Topics by a pattern of their names: `Consumer(subscriptions={re.compile("orders-.*"): "*"})`.

A pattern must match the whole name. Name servers tell which topics there are; they are asked
again and again, for there may be new ones. Topics that are not a user's match no pattern: retry
topics, dead letters, and the topics of brokers and clusters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from dledger.errors import BadInput, RemotingError
from dledger.remoting.bodies import TopicList, decode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.names import topic_kind
from mqclient import limits
from mqclient.connection.session import Session
from mqclient.consuming.subscriptions import Sql


def matching(
    patterns: Mapping[re.Pattern[str], str | Sql], topics: list[str], owners: Collection[str] = ()
) -> dict[str, str | Sql]:
    """Subscriptions to the users' topics that match; the first pattern that matches counts.

    `owners` are the names of clusters and broker groups, whose topics are not a user's.
    """
    wanted: dict[str, str | Sql] = {}
    for topic in sorted(topics):
        if topic_kind(topic, owners) != "user":
            continue
        for pattern, expression in patterns.items():
            if pattern.fullmatch(topic):
                wanted[topic] = expression
                break
    return wanted


async def topics_there(session: Session) -> tuple[list[str], list[str]] | None:
    """All topics, and the names of clusters and broker groups; None if no name server tells."""
    for address in session.name_servers:
        try:
            topics = await _asked(session, address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            owners = await _asked(session, address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        except (RemotingError, BadInput):
            continue
        return topics, owners
    return None


async def _asked(session: Session, address: str, code: RequestCode) -> list[str]:
    """The names in a name server's answer. Raises BadInput if it lists none."""
    answer = await session.pool.request(address, Command(code, {}), limits.REQUEST_TIMEOUT_S)
    if answer.code != ResponseCode.SUCCESS:
        raise BadInput(f"name server {address} answered {code.name} with code {answer.code}")
    return decode_body(TopicList, answer.payload).topic_list[: limits.TOPICS_MAX]
