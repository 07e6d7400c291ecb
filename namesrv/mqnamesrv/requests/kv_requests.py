"""Requests for the key-value config, and for the right to write to a broker group, kept in it.

A change is answered when it is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from dledger.errors import BadInput, DledgerError
from dledger.net import Connection
from dledger.net.serving import Right, serves
from dledger.observe import get_logger
from dledger.remoting import headers
from dledger.remoting.bodies import KVTable, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.trust.rights import GET, cluster
from mqnamesrv import limits
from mqnamesrv.requests.users import CHANGE
from mqnamesrv.routing.routes import RouteTable
from mqnamesrv.saved.kv import ORDER_TOPIC_CONFIG, WIPED_BROKERS
from mqnamesrv.saved.kv_file import KvStore

_log = get_logger("mqnamesrv.requests.dispatch")


class KvRequests:
    """Reads and changes the key-value config. `connections`: those that are open, by their ids."""

    def __init__(
        self, kv: KvStore, routes: RouteTable, connections: Mapping[int, Connection]
    ) -> None:
        self._kv = kv
        self._routes = routes
        self._connections = connections
        self._order_entries: Mapping[str, str] | None = None
        self._order_body = b""
        self._note_wiped()

    def orders(self) -> bytes:
        """ORDER_TOPIC_CONFIG as brokers get it, encoded once for each change. Nothing of one that
        is too large, as an earlier version may have taken it: brokers must be able to register."""
        entries = self._kv.table.entries(ORDER_TOPIC_CONFIG)
        if entries is not self._order_entries:
            body = encode_body(KVTable(table=dict(entries)))
            if len(body) > 2 * limits.KV_NAMESPACE_BYTES_MAX:
                reason = f"{len(body)} bytes; at most {limits.KV_NAMESPACE_BYTES_MAX} are kept"
                _log.error("ORDER_TOPIC_CONFIG not sent to brokers", reason=reason)
                body = encode_body(KVTable(table={}))
            self._order_entries, self._order_body = entries, body
        return self._order_body

    @serves(RequestCode.PUT_KV_CONFIG, needs=Right.ADMIN, rights=CHANGE)
    def _put_kv(self, request: Command, _: Connection) -> Awaitable[Command]:
        header = decode_header(headers.PutKvConfigHeader, request)
        change = self._kv.put(header.namespace, header.key, header.value)
        return self._when_durable(request, change)

    @serves(RequestCode.DELETE_KV_CONFIG, needs=Right.ADMIN, rights=CHANGE)
    def _delete_kv(self, request: Command, _: Connection) -> Awaitable[Command]:
        header = decode_header(headers.DeleteKvConfigHeader, request)
        return self._when_durable(request, self._kv.delete(header.namespace, header.key))

    @serves(RequestCode.GET_KV_CONFIG, needs=Right.ANYONE, rights=cluster(GET))
    def _get_kv(self, request: Command, _: Connection) -> Command:
        header = decode_header(headers.GetKvConfigHeader, request)
        value = self._kv.table.get(header.namespace, header.key)
        if value is None:
            remark = f"no {header.key} in namespace {header.namespace}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return request.reply(ext=encode_header(headers.GetKvConfigResponseHeader(value=value)))

    @serves(RequestCode.GET_KVLIST_BY_NAMESPACE, needs=Right.ANYONE, rights=cluster(GET))
    def _list_kv(self, request: Command, _: Connection) -> Command:
        header = decode_header(headers.GetKvlistByNamespaceHeader, request)
        entries = self._kv.table.entries(header.namespace)
        if not entries:
            remark = f"no key in namespace {header.namespace}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return request.reply(body=encode_body(KVTable(table=dict(entries))))

    @serves(RequestCode.WIPE_WRITE_PERM_OF_BROKER, needs=Right.ADMIN, rights=CHANGE)
    def _wipe_write_perm(self, request: Command, _: Connection) -> Awaitable[Command]:
        name = decode_header(headers.WipeWritePermOfBrokerHeader, request).broker_name
        if not self._routes.knows(name):
            raise BadInput(f"no broker group {name!r} is known here: nothing was changed")
        answer = headers.WipeWritePermOfBrokerResponseHeader(self._routes.topics.known(name))
        change = self._kv.put(WIPED_BROKERS, name, "true")
        return self._then_announced(name, self._when_durable(request, change, answer))

    @serves(RequestCode.ADD_WRITE_PERM_OF_BROKER, needs=Right.ADMIN, rights=CHANGE)
    def _add_write_perm(self, request: Command, _: Connection) -> Awaitable[Command]:
        name = decode_header(headers.AddWritePermOfBrokerHeader, request).broker_name
        answer = headers.AddWritePermOfBrokerResponseHeader(self._routes.topics.known(name))
        change = self._kv.delete(WIPED_BROKERS, name)
        return self._then_announced(name, self._when_durable(request, change, answer))

    async def _then_announced(self, broker_name: str, answer: Awaitable[Command]) -> Command:
        """Answer, and have the group's members ask at once what they may: else they would learn it
        with their next heartbeat."""
        answered = await answer
        for connection_id in self._routes.connections_of(broker_name):
            connection = self._connections.get(connection_id)
            if connection is not None:
                header = headers.WipeWritePermOfBrokerHeader(broker_name)
                code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
                connection.send_oneway_request(Command(code, encode_header(header)))
        return answered

    async def _when_durable(
        self, request: Command, change: Awaitable[str | None], answer: headers.Header | None = None
    ) -> Command:
        try:
            remark = await change
        except DledgerError as error:
            _log.error("config change failed", code=request.code, reason=str(error))
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        self._note_wiped()
        return request.reply(ext=encode_header(answer) if answer else None, remark=remark)

    def _note_wiped(self) -> None:
        self._routes.topics.wiped = frozenset(self._kv.table.entries(WIPED_BROKERS))
