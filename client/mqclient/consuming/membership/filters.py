"""Having a broker look at the filters that only brokers can read, before anybody relies on them.

A consumer that filters by a `Sql` with a mistake would get nothing, and hear why only in the log.
Stock Java clients ask at their start (CHECK_CLIENT_CONFIG), and so does ours. Where no broker can
be asked yet, for the topic is not there or nobody leads, the consumer starts and asks by its pulls.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from dledger.errors import BadInput, RemotingError
from dledger.remoting.bodies import CheckClientConfigBody, SubscriptionData, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from mqclient import limits
from mqclient.connection.session import Session
from mqclient.errors import NoLeader, NoRoute

TAG = "TAG"


async def check_filters(
    session: Session, group: str, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Raises BadInput if a broker says that it can't read one of them."""
    for subscription in subscriptions:
        if subscription.expression_type == TAG:
            continue
        with suppress(NoRoute, NoLeader, RemotingError):
            route = await session.route(subscription.topic, "subscribe to")
            body = encode_body(CheckClientConfigBody(session.client_id, group, subscription))
            command = Command(RequestCode.CHECK_CLIENT_CONFIG, {}, body)
            answer = await session.finder.ask(
                route.broker_names[0], command, limits.REQUEST_TIMEOUT_S, subscription.topic
            )
            if answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
                raise BadInput(
                    f"the filter of group {group!r} for topic {subscription.topic!r}: "
                    f"{answer.remark}"
                )
