"""Replies to requests: SEND_REPLY_MESSAGE (324) and its one-letter twin (325).

A request is an ordinary message that names the client which waits (`REPLY_TO_CLIENT`) and
identifies the request (`CORRELATION_ID`). Its consumer sends the reply to a topic that every broker
has. The broker pushes it (326) over the connection of the waiting client's heartbeats, and answers
the replier when that client has taken it.

A reply is not stored: only the waiting client can use it, and only as long as it waits. RocketMQ
pushes in the same way, and keeps a copy in the reply topic that no client reads. A reply that can't
be pushed is refused with code 1. Then stock repliers try the next broker, to which the waiting
client may be connected. Source: ReplyMessageProcessor.
"""

from __future__ import annotations

from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting import message as names
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import encode_header
from dledger.remoting.names import PERM_READ_WRITE
from mqbroker.refusal import illegal_message, system_error
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.clients import ClientHandler
from mqbroker.requests.groups.relays import ask_client
from mqbroker.requests.needs import by_leader
from mqbroker.requests.permissions import check_writable
from mqbroker.requests.sending.send import REGION, send_header

_NOT_STORED = "0"
"""The id of a message that is not in the log, as in RocketMQ's stores that keep no replies."""


class ReplyHandler:
    """Passes replies on to the clients that wait for them."""

    def __init__(self, core: Core, clients: ClientHandler) -> None:
        self._core = core
        self._clients = clients

    @by_leader(
        RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, rights=rights.SENT
    )
    async def reply(self, request: Command, connection: Connection) -> Command:
        """Push a reply to the client that waits for it, and answer when that client has
        answered."""
        header = send_header(request)
        properties = names.properties_decode((header.properties or "").encode())
        size_max = self._core.config.max_message_size
        if len(request.payload) > size_max:
            raise illegal_message(
                f"a reply of {len(request.payload)} bytes; at most {size_max} (maxMessageSize) "
                "are taken"
            )
        topic = self._core.machine.topics.get(header.topic)
        if topic is not None:
            # A reply is not stored, so a broker group that takes no messages passes it on.
            check_writable(topic, PERM_READ_WRITE)
        requester = self._requester(properties)
        push = encode_header(self._push(header, properties, connection))
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        taken = await ask_client(requester, Command(code, push, request.payload))
        if taken.code != ResponseCode.SUCCESS:
            raise system_error(
                f"the client that asked did not take the reply: code {taken.code}, {taken.remark}"
            )
        answer = headers.SendMessageResponseHeader(_NOT_STORED, max(header.queue_id, 0), 0)
        return request.reply(ext=encode_header(answer) | REGION)

    def _requester(self, properties: dict[str, str]) -> Connection:
        client_id = properties.get(names.REPLY_TO_CLIENT)
        if client_id is None or names.CORRELATION_ID not in properties:
            raise illegal_message(
                f"a reply needs the properties {names.REPLY_TO_CLIENT} and "
                f"{names.CORRELATION_ID} of the request that it answers"
            )
        requester = self._clients.connection_of(client_id)
        if requester is None:
            raise system_error(
                f"the client {client_id!r} that asked is not connected to this broker; the reply "
                "is not kept"
            )
        return requester

    def _push(
        self, header: headers.SendMessageHeader, properties: dict[str, str], connection: Connection
    ) -> headers.PushReplyMessageToClientHeader:
        now_ms = self._core.clock_ms()
        config = self._core.config
        pushed = properties | {names.PUSH_REPLY_TIME: str(now_ms)}
        host, port = connection.peer
        return headers.PushReplyMessageToClientHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=max(header.queue_id, 0),
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=f"{host}:{port}",
            store_host=f"{config.broker_ip1}:{config.listen_port}",
            store_timestamp=now_ms,
            properties=names.properties_encode(pushed).decode(),
            reconsume_times=header.reconsume_times or 0,
            unit_mode=bool(header.unit_mode),
        )
