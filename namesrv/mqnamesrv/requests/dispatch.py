"""Requests to a name server, one small method per code.

The dispatcher holds the route table. It and its parts alone change that and the key-value config.
It runs in one task of one loop, so a request is a transaction. A request that a broker may not make
is answered with an error code and text, and logged; the connection stays open.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from functools import partial

from msgspec import Struct

from dledger.errors import BadInput, ConfigError, DledgerError, FrameError
from dledger.metrics.history import History, history_answer
from dledger.net import Connection
from dledger.net.lanes import Lanes
from dledger.net.serving import Answer, Right, Served, serves, table_of
from dledger.net.turns import at_once_or_in_turns, encoding
from dledger.observe import get_logger
from dledger.program.settings import (
    FixedKey,
    changed,
    check_keys,
    parse_properties,
    write_properties,
)
from dledger.remoting import bodies, headers
from dledger.remoting.bodies import decode_body, encode_body
from dledger.remoting.codes import VERSION_STANDARD_JSON, RequestCode, ResponseCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.remoting.headers import decode_header, encode_header
from dledger.tls.keys import TLS_SECRET_KEYS
from dledger.trust.accepting import NotLetIn
from dledger.trust.rights import BY_SECRET, GET, OPEN, cluster
from dledger.world import unix_ms, world
from mqnamesrv import limits
from mqnamesrv.config import RUNTIME_KEYS, NamesrvConfig
from mqnamesrv.door import Door, Trust
from mqnamesrv.requests.kv_requests import KvRequests
from mqnamesrv.requests.users import CHANGE, SETTINGS, Lists, UserDoor
from mqnamesrv.routing.groups import Departure, NotWhole, RegistrationRefused, UnknownBroker
from mqnamesrv.routing.registration import read_registration
from mqnamesrv.routing.routes import RouteTable
from mqnamesrv.routing.topics import Steps
from mqnamesrv.saved.kv import ORDER_TOPIC_CONFIG
from mqnamesrv.saved.kv_file import KvStore

NOT_SERVED: Mapping[int, str] = {
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: "a name server takes topics from the brokers that have "
    "them, and from nobody else: create the topic at a broker (mqadmin updateTopic)"
}
_log = get_logger(__name__)


class Dispatcher:
    """Answers the requests of brokers, clients and admin tools."""

    def __init__(
        self,
        config: NamesrvConfig,
        kv: KvStore,
        clock: Callable[[], float],
        door: Door,
        groups: Collection[str] = (),
    ) -> None:
        self.routes = RouteTable()
        self._door = door
        self._config = config
        self._kv = kv
        self._clock = clock
        self._connections: dict[int, Connection] = {}
        self._settles_s = clock() + world().seldom_s(limits.SETTLES_S)
        self._groups = groups
        self.users = UserDoor(door, self.routes, unix_ms, self._trust, config)
        self.history = History()
        self._lanes = Lanes()
        self._kv_requests = KvRequests(kv, self.routes, self._connections)
        lists = Lists(self.routes, self.users.guard)
        handlers = [self, self.users, lists, self._kv_requests]
        self.table = self.users.auditor.wrapped(table_of(handlers, Right), self.users.who)

    def __call__(self, request: Command, connection: Connection) -> Answer:
        """The answer, or an awaitable of it if something must become durable first."""
        served = self.table.get(request.code)
        if served is None:
            reason = NOT_SERVED.get(request.code, "")
            remark = f"request code {request.code} is not supported here{reason and ': '}{reason}"
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        if served.right is not Right.BROKER:
            return self._answer(request, connection, served)
        if self._lanes.is_busy(connection.id):
            later = partial(self._answer, request, connection, served)
            return self._lanes.follow(connection.id, later)
        answer = self._answer(request, connection, served)
        if isinstance(answer, Awaitable):
            return self._lanes.follow(connection.id, lambda: answer)
        return answer

    def _answer(self, request: Command, connection: Connection, served: Served[Right]) -> Answer:
        try:
            self.users.admit(request, connection, served)
            answer = served.method(request, connection)
            if isinstance(answer, Generator):
                answer = at_once_or_in_turns(answer)
            if isinstance(answer, Awaitable):
                return self._awaited(request, connection, answer)
            return _bounded(request, answer)
        except DledgerError as error:
            return self._refusal(request, connection, error)

    async def _awaited(
        self, request: Command, connection: Connection, answer: Awaitable[Command]
    ) -> Command:
        try:
            return _bounded(request, await answer)
        except DledgerError as error:
            return self._refusal(request, connection, error)

    def _refusal(self, request: Command, connection: Connection, error: DledgerError) -> Command:
        """The answer to a request that was refused; what is no refusal is raised again."""
        code, peer = ResponseCode.SYSTEM_ERROR, connection.peer
        if isinstance(error, NotLetIn):
            code = ResponseCode.NO_PERMISSION
            self.users.refused(request, connection, str(error), self.table[request.code].rights)
        elif isinstance(error, RegistrationRefused):
            write = _log.debug if isinstance(error, NotWhole) else _log.warning
            write("registration refused", reason=str(error), peer=peer)
        elif isinstance(error, BadInput):
            _log.warning("request refused", code=request.code, reason=str(error), peer=peer)
        else:
            raise error
        return request.reply(code, remark=str(error))

    def connected(self, connection: Connection) -> None:
        """A client, a tool or a broker has connected."""
        self._connections[connection.id] = connection

    def disconnected(self, connection: Connection) -> None:
        """The connection is gone: remove the brokers that registered over it."""
        self._connections.pop(connection.id, None)
        self._door.proofs.forget(connection.id)
        self.users.guard.forget(connection.id)
        self._lanes.forget(connection.id)
        gone = self.routes.connection_lost(connection.id, self._clock())
        _log_departures(gone, "connection closed")

    def expire(self) -> None:
        """Drop silent brokers, and close their connections so that those that live notice it."""
        gone = self.routes.expire(self._clock())
        _log_departures(gone, "silent")
        for departure in gone:
            connection = self._connections.get(departure.connection_id)
            if connection is not None:
                connection.close(f"broker {departure.address} was silent for too long")

    # Brokers.

    @serves(RequestCode.PROVE, needs=Right.BROKER, rights=OPEN)
    def _prove(self, request: Command, connection: Connection) -> Command:
        try:
            return self._door.proofs.prove(request, connection.id)
        except FrameError as error:
            raise NotLetIn(str(error)) from error

    def _trust(self, request: Command, connection: Connection) -> Trust:
        """How far a broker is trusted; a connection with a wrong tag is closed."""
        try:
            return self._door.trust_in(request, connection.id)
        except FrameError as error:
            connection.close(str(error))
            raise NotLetIn(str(error)) from error

    @serves(RequestCode.REGISTER_BROKER, needs=Right.BROKER, rights=BY_SECRET)
    def _register(self, request: Command, connection: Connection) -> Steps[Command]:
        trust = self._trust(request, connection)
        header = decode_header(headers.RegisterBrokerHeader, request)
        new = yield from read_registration(header, request.payload, trust)
        yield from self.routes.check_names(new)
        done = self.routes.register(new, connection.id, self._clock())
        if done.changed:
            _log.info(
                "registered",
                cluster=new.cluster,
                broker_name=new.broker_name,
                broker_id=new.broker_id,
                address=new.address,
                term=new.term,
                trust=trust.value,
                displaced=done.displaced,
            )
        if new.left_out:
            _log.warning(
                "topics left out",
                broker_name=new.broker_name,
                count=len(new.left_out),
                topics=[name[:80] for name in new.left_out[: limits.TOPICS_LEFT_OUT_LOGGED_MAX]],
                reason="their names, permissions or numbers of queues can't be",
            )
        follows = new.broker_id != 0
        answer = headers.RegisterBrokerResponseHeader(
            master_addr=done.leader_address if follows else None,
            ha_server_addr=done.leader_ha_address if follows else None,
            takes_changes=None if new.term is None else True,
            wiped=None if new.term is None else new.broker_name in self.routes.topics.wiped,
        )
        body = b""
        if self._config.return_order_topic_config_to_broker:
            body = self._kv_requests.orders()
        return request.reply(ext=encode_header(answer), body=body)

    @serves(RequestCode.UNREGISTER_BROKER, needs=Right.BROKER, rights=BY_SECRET)
    def _unregister(self, request: Command, connection: Connection) -> Command:
        proven = self._trust(request, connection) is Trust.PROVEN
        header = decode_header(headers.UnregisterBrokerHeader, request)
        place = header.cluster_name, header.broker_name, header.broker_addr
        gone = self.routes.unregister(*place, self._clock(), proven=proven)
        _log_departures(gone, "unregistered")
        return request.reply()

    @serves(RequestCode.BROKER_HEARTBEAT, needs=Right.BROKER, rights=BY_SECRET)
    def _heartbeat(self, request: Command, connection: Connection) -> Command:
        trust = self._trust(request, connection)
        header = decode_header(headers.BrokerHeartbeatHeader, request)
        place = header.cluster_name, header.broker_name, header.broker_addr
        term, proven = None if trust is Trust.UNSIGNED else header.epoch, trust is Trust.PROVEN
        try:
            self.routes.heartbeat(*place, term, self._clock(), proven=proven)
        except UnknownBroker as error:
            return request.reply(ResponseCode.BROKER_NOT_EXIST, remark=f"{error}: register again")
        answer = headers.BrokerHeartbeatResponseHeader(
            header.broker_name in self.routes.topics.wiped
        )
        return request.reply(ext=encode_header(answer))

    @serves(RequestCode.QUERY_DATA_VERSION, needs=Right.BROKER, rights=BY_SECRET)
    def _query_data_version(self, request: Command, connection: Connection) -> Command:
        proven = self._trust(request, connection) is Trust.PROVEN
        header = decode_header(headers.QueryDataVersionHeader, request)
        asked = decode_body(bodies.DataVersion, request.payload)
        place = header.cluster_name, header.broker_name, header.broker_addr
        try:
            self.routes.heartbeat(*place, None, self._clock(), proven=proven)
        except UnknownBroker:
            known = None
        else:
            known = self.routes.data_version(*place[1:])
        answer = headers.QueryDataVersionResponseHeader(changed=known != asked)
        body = b"" if known is None else encode_body(known)
        return request.reply(ext=encode_header(answer), body=body)

    # Routes.

    @serves(RequestCode.GET_ROUTEINFO_BY_TOPIC, needs=Right.ANYONE, rights=OPEN)
    def _route(self, request: Command, _: Connection) -> Steps[Command]:
        header = decode_header(headers.GetRouteinfoByTopicHeader, request)
        route = self.routes.route_of(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        route.order_topic_conf = self._kv.table.get(ORDER_TOPIC_CONFIG, header.topic)
        if request.encoding is HeaderEncoding.MSGPACK:
            route.absent_queue_datas = self.routes.topics.absent(header.topic)
            known = header.known or []
            route.without = [name for name in known if self.routes.topics.lacks(name, header.topic)]
            rows = (*route.queue_datas, *route.absent_queue_datas)
            route.withdrawn = self.routes.topics.withdrawn(row.broker_name for row in rows)
            route.settles_in_ms = self.settles_in_ms()
        is_standard = header.accept_standard_json_only or request.version >= VERSION_STANDARD_JSON
        dialect = bodies.Dialect.STANDARD if is_standard else bodies.Dialect.LOOSE
        parts = len(route.queue_datas) + len(route.absent_queue_datas or ())
        return (yield from _answered(request, route, parts, dialect))

    def settles_in_ms(self) -> int | None:
        """Milliseconds until this name server will know all groups that serve; None if it does."""
        left_s = self._settles_s - self._clock()
        if left_s <= 0 or (self._groups and self.routes.are_led(self._groups)):
            self._settles_s = -math.inf
            return None
        return math.ceil(1000 * left_s)

    @serves(RequestCode.GET_BROKER_CLUSTER_INFO, needs=Right.ANYONE, rights=OPEN)
    def _cluster_info(self, request: Command, _: Connection) -> Steps[Command]:
        ours = request.encoding is HeaderEncoding.MSGPACK
        info = yield from self.routes.cluster_info(with_absent=ours)
        # Always loose in the reference, whatever the client's version; see Dialect.
        return (
            yield from _answered(request, info, len(info.broker_addr_table), bodies.Dialect.LOOSE)
        )

    @serves(RequestCode.GET_BROKER_MEMBER_GROUP, needs=Right.ANYONE, rights=cluster(GET))
    def _members(self, request: Command, _: Connection) -> Command:
        """The members of a group. An unknown group has none, as in the reference."""
        header = decode_header(headers.GetBrokerMemberGroupHeader, request)
        cluster, name = header.cluster_name, header.broker_name
        members = bodies.BrokerMemberGroup(cluster, name, self.routes.members_of(cluster, name))
        return request.reply(body=encode_body(bodies.BrokerMemberGroupBody(members)))

    @serves(RequestCode.DELETE_TOPIC_IN_NAMESRV, needs=Right.ADMIN, rights=CHANGE)
    def _delete_topic(self, request: Command, _: Connection) -> Command:
        header = decode_header(headers.DeleteTopicInNamesrvHeader, request)
        cluster = header.cluster_name
        self.routes.topics.remove_topic(
            header.topic, self.routes.broker_names(cluster) if cluster else None
        )
        return request.reply()

    # The name server's own config.

    @serves(RequestCode.UPDATE_NAMESRV_CONFIG, needs=Right.ADMIN, rights=SETTINGS)
    def _update_config(self, request: Command, _: Connection) -> Command:
        changes = parse_properties(request.payload)
        try:
            check_keys(self._config, changes, RUNTIME_KEYS)
            new = changed(self._config, changes)
            self.users.change_mode(new.authorization_mode)
            self._config = new
        except FixedKey as error:
            return request.reply(ResponseCode.NO_PERMISSION, remark=str(error))
        except ConfigError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        _log.info("config updated", changes=changes)
        return request.reply()

    @serves(RequestCode.VIEW_HISTORY, needs=Right.ANYONE, rights=cluster(GET))
    def _history(self, request: Command, _: Connection) -> Command:
        return history_answer(self.history, request)

    @serves(RequestCode.GET_NAMESRV_CONFIG, needs=Right.ANYONE, rights=cluster(GET))
    def _get_config(self, request: Command, _: Connection) -> Command:
        return request.reply(body=write_properties(self._config, TLS_SECRET_KEYS).encode())


def _bounded(request: Command, answer: Command) -> Command:
    """The answer, unless it is one that no client takes."""
    if len(answer.payload) > limits.ANSWER_BYTES_MAX:
        raise BadInput(
            f"the answer to request {request.code} has {len(answer.payload)} bytes; at most "
            f"{limits.ANSWER_BYTES_MAX} can be sent: ask for less at a time"
        )
    return answer


def _answered(
    request: Command, body: Struct, parts: int, dialect: bodies.Dialect
) -> Steps[Command]:
    """An answer of so many parts: at once, or in steps."""
    is_long = parts > limits.PARTS_AT_ONCE_MAX
    written = (yield from encoding(body, dialect)) if is_long else encode_body(body, dialect)
    return request.reply(body=written)


def _log_departures(departures: list[Departure], reason: str) -> None:
    for gone in departures[: limits.DEPARTURES_LOGGED_MAX]:
        _log.info(
            "broker left",
            reason=reason,
            cluster=gone.cluster,
            broker_name=gone.broker_name,
            broker_id=gone.broker_id,
            address=gone.address,
        )
    if (more := len(departures) - limits.DEPARTURES_LOGGED_MAX) > 0:
        _log.info("more brokers left", reason=reason, count=more)
