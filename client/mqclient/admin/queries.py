"""Finding messages: by where they lie, by the keys of their senders, or by their unique key.

A broker finds keys by hash, so what it answers may hold others too: each is looked at again here.
A group that is gone does not hide what the others have; it is an error only if they have nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from dledger.errors import RecordError, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import BrokerData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import QueryMessageHeader, ViewMessageByIdHeader
from dledger.remoting.message import offset_message_id_decode
from mqclient.admin.messages import MessageAdmin
from mqclient.admin.requests import expect_success
from mqclient.admin.session import UnknownTarget, run_for_each
from mqclient.admin.topics import TopicAdmin
from mqclient.connection.addresses import join_address
from mqclient.errors import NoLeader
from mqclient.lookup import END_OF_TIME_MS, unique_key_query
from mqclient.models import ReceivedMessage, messages_in

log = get_logger(__name__)


class QueryAdmin(TopicAdmin, MessageAdmin):
    """The calls that find messages."""

    async def message_by_id(self, message_id: str) -> ReceivedMessage:
        """The message at an offset message id: the hex of a broker's address and a log position.

        Whoever leads the group of that broker now is asked: positions are the same on all members.
        """
        host, port, position = offset_message_id_decode(message_id)
        address = join_address(host, port)
        header = ViewMessageByIdHeader(offset=position)
        code = RequestCode.VIEW_MESSAGE_BY_ID
        known = [group for group in await self.groups() if address in group.broker_addrs.values()]
        if known:
            answer = await self.requests.ask_leader(known[0], code, header)
            return _only_message(answer, known[0].broker_name)
        answer = expect_success(await self.requests.ask(address, code, header), code.name, address)
        return _only_message(answer, "")

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
        count: int = 64,
    ) -> list[ReceivedMessage]:
        """Up to `count` messages of each broker group that carry a key, oldest first."""
        return await self._query(
            QueryMessageHeader(
                topic=topic,
                key=key,
                max_num=count,
                begin_timestamp=begin_ms,
                end_timestamp=end_ms,
            ),
            lambda message: key in message.keys.split(),
        )

    async def messages_by_unique_key(self, topic: str, unique_key: str) -> list[ReceivedMessage]:
        """The message that has this unique key. More than one if it was stored repeatedly."""
        return await self._query(
            unique_key_query(topic, unique_key),
            lambda message: message.message_id == unique_key,
        )

    async def _query(
        self, header: QueryMessageHeader, is_wanted: Callable[[ReceivedMessage], bool]
    ) -> list[ReceivedMessage]:
        absent: list[NoLeader | RemotingError] = []

        async def ask(broker: BrokerData) -> list[ReceivedMessage]:
            code = RequestCode.QUERY_MESSAGE
            try:
                answer = await self.requests.ask_whoever_leads(broker, code, header)
            except (NoLeader, RemotingError) as error:
                log.warning("group not asked", broker=broker.broker_name, reason=str(error))
                absent.append(error)
                return []
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            expect_success(answer, code.name, self.requests.leader(broker))
            return messages_in(answer.payload, broker.broker_name)

        found = await run_for_each(ask, (await self._route(header.topic)).broker_datas)
        messages = [message for one in found for message in one if is_wanted(message)]
        if absent and not messages:
            raise absent[0]
        if not messages:
            raise UnknownTarget(
                f"no message of topic {header.topic!r} has the key {header.key!r}, or none has in "
                "the time asked for"
            )
        return sorted(messages, key=lambda message: message.store_timestamp_ms)


def _only_message(answer: Command, broker_name: str) -> ReceivedMessage:
    """The message that was asked for. Raises RecordError if there is none in the answer."""
    messages = messages_in(answer.payload, broker_name)
    if len(messages) != 1:
        raise RecordError(f"{len(messages)} messages came for one")
    return messages[0]
