"""Passes questions that only a client can answer on to it.

A tool asks the broker about one consumer; the broker asks that consumer over the connection that
the consumer opened, and gives its answer to the tool unchanged. If the client does not answer
within `RELAY_S`, the tool gets CONSUME_MSG_TIMEOUT (207).
"""

from __future__ import annotations

from dledger.errors import RemotingError, RequestTimeout
from dledger.net import Connection
from dledger.remoting import bodies, headers
from dledger.remoting.bodies import decode_body, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.message import offset_message_id_decode
from dledger.trust.rights import GET, group, topic
from mqbroker import limits
from mqbroker.refusal import Refused, system_error
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.clients import ClientHandler
from mqbroker.requests.needs import by_leader, by_leader_to_admin


class RelayHandler:
    """Passes requests on to a connected consumer, and its answer back."""

    def __init__(self, core: Core, clients: ClientHandler) -> None:
        self._core = core
        self._clients = clients

    @by_leader(RequestCode.GET_CONSUMER_RUNNING_INFO, rights=group(GET, at="consumerGroup"))
    async def running_info(self, request: Command, _: Connection) -> Command:
        """The running info of one consumer."""
        header = decode_header(headers.GetConsumerRunningInfoHeader, request)
        connection = self._member(header.consumer_group, header.client_id)
        answer = await ask_client(connection, Command(request.code, dict(request.ext)))
        return request.reply(answer.code, body=answer.payload, remark=answer.remark)

    @by_leader_to_admin(RequestCode.CONSUME_MESSAGE_DIRECTLY, rights=rights.HANDLED)
    async def consume_directly(self, request: Command, _: Connection) -> Command:
        """Ask one consumer to handle one message now."""
        header = decode_header(headers.ConsumeMessageDirectlyHeader, request)
        connection = self._member(header.consumer_group, header.client_id)
        position = offset_message_id_decode(header.msg_id)[-1]
        record = self._core.asked_record(position)
        body = bytes(self._core.log.view(position, record.size))
        ext = dict(request.ext) | {"brokerName": self._core.config.broker_name}
        answer = await ask_client(connection, Command(request.code, ext, body))
        return request.reply(answer.code, body=answer.payload, remark=answer.remark)

    @by_leader(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, rights=group(GET) & topic(GET))
    async def consumer_status(self, request: Command, _: Connection) -> Command:
        """The progress of each consumer of a group."""
        header = decode_header(headers.InvokeBrokerToGetConsumerStatusHeader, request)
        asked = headers.GetConsumerStatusFromClientHeader(topic=header.topic, group=header.group)
        table = {}
        for client, connection in self._clients.members(header.group):
            if header.client_addr in (None, "", client.client_id):
                code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
                answer = await ask_client(connection, Command(code, encode_header(asked)))
                if answer.code == ResponseCode.SUCCESS:
                    status = decode_body(bodies.ConsumerStatusFromClientBody, answer.payload)
                    table[client.client_id] = status.message_queue_table
        if not table:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of {header.group!r} answers here"
            )
        return request.reply(
            body=encode_body(bodies.ConsumerStatusBody(table), bodies.Dialect.LOOSE)
        )

    def _member(self, group: str, client_id: str) -> Connection:
        for client, connection in self._clients.members(group):
            if client.client_id == client_id:
                return connection
        raise system_error(f"{client_id!r} is not a consumer of {group!r} connected here")


async def ask_client(connection: Connection, question: Command) -> Command:
    """A client's answer to a question, awaited for `limits.RELAY_S` at most. Refused if there is
    none: CONSUME_MSG_TIMEOUT if it was too slow."""
    try:
        return await connection.request(question, limits.RELAY_S)
    except RequestTimeout as error:
        raise Refused(ResponseCode.CONSUME_MSG_TIMEOUT, str(error)) from error
    except RemotingError as error:
        raise system_error(str(error)) from error
