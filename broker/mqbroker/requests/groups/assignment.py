"""QUERY_ASSIGNMENT (400): a consumer asks the broker which queues it should read.

Java clients from 5.0 on do so with `clientRebalance=false`; those from 5.3.3 on do nothing until
they are answered. The answer covers the topic's queues in all broker groups, as a name server knows
them, and the members that this replica knows by their heartbeats. A partial answer would make the
client give up the other queues. So if anything is missing the answer is None, and the client keeps
its queues and asks again.

The queues are to be pulled, each by one member; or popped, if the group's request mode for the
topic says so: then each member pops all queues, or its own and those of the next few members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import trio

from dledger.errors import BadInput, RemotingError
from dledger.net import Connection, connect_peer
from dledger.remoting import bodies
from dledger.remoting.allocation import (
    allocate_averagely,
    allocate_by_circle,
    checked_route,
    queues_of,
)
from dledger.remoting.bodies import decode_body, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import GetRouteinfoByTopicHeader, encode_header
from dledger.remoting.headers.pop import ANY_QUEUE
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import PERM_READ
from mqbroker import limits
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.membership import Membership
from mqbroker.requests.needs import by_all
from mqbroker.state.groups.modes import RequestMode

_Queues: TypeAlias = tuple[MessageQueue, ...]
_STRATEGIES: Final[
    Mapping[str, Callable[[str, Sequence[str], Sequence[MessageQueue]], _Queues]]
] = {"AVG": allocate_averagely, "AVG_BY_CIRCLE": allocate_by_circle}


class AssignmentHandler:
    """Answers on every replica, since each knows the members."""

    def __init__(self, core: Core, membership: Membership) -> None:
        self._core = core
        self._membership = membership
        self._routes: dict[str, tuple[float, _Queues]] = {}
        self._asking = trio.CapacityLimiter(limits.ROUTES_ASKED_MAX)

    @by_all(RequestCode.QUERY_ASSIGNMENT, rights=rights.ASSIGNMENT)
    async def query(self, request: Command, _: Connection) -> Command:
        """The member's queues of a topic."""
        body = decode_body(bodies.QueryAssignmentBody, request.payload)
        readable = await self._readable(body.topic)
        mode = self._core.machine.modes.get(body.topic, body.consumer_group) or RequestMode()
        queues = self._share(body, readable, mode)
        answer = bodies.QueryAssignmentResponseBody(
            None
            if queues is None
            else [bodies.QueueAssignment(queue, mode.mode) for queue in queues]
        )
        return request.reply(body=encode_body(answer))

    def _share(
        self, body: bodies.QueryAssignmentBody, queues: _Queues | None, mode: RequestMode
    ) -> _Queues | None:
        if queues is None or body.message_model == "BROADCASTING":
            return queues
        group = self._membership.consumers(body.consumer_group)
        strategy = _STRATEGIES.get(body.strategy_name)
        if group is None or strategy is None:
            return None
        members = sorted({client.client_id for client in group.members.values()})
        if mode.mode == "PULL":
            return strategy(body.client_id, members, queues)
        if not 0 < mode.share < len(members) - 1:
            brokers = dict.fromkeys(queue.broker_name for queue in queues)
            return tuple(MessageQueue(body.topic, name, ANY_QUEUE) for name in brokers)
        if body.client_id not in members:
            return ()
        number = members.index(body.client_id)
        if len(members) > len(queues):
            return (queues[number % len(queues)],) if queues else ()
        sharers = [members[(number + n) % len(members)] for n in range(mode.share + 1)]
        return tuple(queue for each in sharers for queue in strategy(each, members, queues))

    async def _readable(self, topic: str) -> _Queues | None:
        """The topic's queues to read in all broker groups; None if no name server answers."""
        now_s = self._core.clock_s()
        until_s, queues = self._routes.get(topic, (now_s, ()))
        if until_s > now_s:
            return queues
        for host, port in self._core.config.name_servers():
            try:
                asking = connect_peer(host, port, limits.ROUTE_S, tls=self._core.dialler)
                async with self._asking, asking as peer:
                    header = GetRouteinfoByTopicHeader(topic=topic, accept_standard_json_only=True)
                    ask = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, encode_header(header))
                    answer = await peer.request(ask, limits.ROUTE_S)
                if answer.code == ResponseCode.SUCCESS:
                    route = checked_route(decode_body(bodies.TopicRouteData, answer.payload))
                    return self._keep(topic, queues_of(topic, route, PERM_READ))
            except (RemotingError, BadInput):
                continue
        return None

    def _keep(self, topic: str, queues: _Queues) -> _Queues:
        """Keep a route for a moment, since all members of a group ask at once."""
        now_s = self._core.clock_s()
        if not self._has_room(len(queues)):
            self._routes = {name: kept for name, kept in self._routes.items() if kept[0] > now_s}
        if self._has_room(len(queues)):
            self._routes[topic] = (now_s + limits.ROUTE_KEPT_S, queues)
        return queues

    def _has_room(self, queues: int) -> bool:
        kept = sum(len(each) for _, each in self._routes.values())
        return (
            len(self._routes) < limits.ROUTES_KEPT_MAX
            and kept + queues <= limits.ROUTE_QUEUES_KEPT_MAX
        )
