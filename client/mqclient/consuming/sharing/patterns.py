"""Topics by a pattern of their names: `Consumer(subscriptions={re.compile("orders-.*"): "*"})`.

A pattern must match the whole name. The topics that there are, name servers tell; they are asked
again and again, for there may be new ones. The system's own topics match no pattern: retry topics,
dead letters and the like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dledger.errors import BadInput, RemotingError
from dledger.remoting.bodies import TopicList, decode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.message import REPLY_SUFFIX
from mqclient import limits
from mqclient.admin.topics import topic_kind
from mqclient.connection.session import Session
from mqclient.consuming.subscriptions import Sql


def matching(
    patterns: Mapping[re.Pattern[str], str | Sql], topics: list[str]
) -> dict[str, str | Sql]:
    """What is wanted of the topics that match; the first pattern that does counts."""
    wanted: dict[str, str | Sql] = {}
    for topic in sorted(topics):
        if topic_kind(topic) != "user" or topic.endswith(REPLY_SUFFIX):
            continue
        for pattern, expression in patterns.items():
            if pattern.fullmatch(topic):
                wanted[topic] = expression
                break
    return wanted


async def topics_there(session: Session) -> list[str] | None:
    """All topics, by the first name server that tells; None if none does."""
    for address in session.name_servers:
        command = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        try:
            answer = await session.pool.request(address, command, limits.REQUEST_TIMEOUT_S)
            if answer.code == ResponseCode.SUCCESS:
                return decode_body(TopicList, answer.payload).topic_list[: limits.TOPICS_MAX]
        except (RemotingError, BadInput):
            continue
    return None
