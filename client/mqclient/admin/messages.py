"""Reading messages without being a consumer, and finding them.

Reading commits no offsets. Messages are found by their place, by the senders' keys, or by their
unique key. A broker finds keys by hash, so its answer may hold other messages too: each one's key
is compared here. If a broker group is gone, the results of the others are returned; it is an error
only if they have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.addresses import join_address
from dledger.errors import BadInput, RecordError, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import BrokerData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    ListScheduledHeader,
    ListScheduledResponseHeader,
    PullMessageResponseHeader,
    QueryMessageHeader,
    QueryMessageResponseHeader,
    SearchOffsetByTimestampHeader,
    SearchOffsetByTimestampResponseHeader,
    ViewMessageByIdHeader,
    decode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import keys_of, offset_message_id_decode
from dledger.remoting.names import TOOLS_GROUP
from dledger.remoting.numbers import is_number
from mqclient import limits
from mqclient.admin.requests import expect_success
from mqclient.admin.results import ScheduledMessage
from mqclient.admin.session import AdminSession, Part, UnknownTarget, run_for_each
from mqclient.arguments import check_count
from mqclient.errors import NoLeader, Refused
from mqclient.lookup import look, unique_key_query
from mqclient.models import ReceivedMessage, messages_in

log = get_logger(__name__)

_NOTHING_THERE = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class Found(list[ReceivedMessage]):
    """Messages, and in sentences what is there beside them and was left out."""

    def __init__(self, messages: Sequence[ReceivedMessage], left_out: Sequence[str]) -> None:
        super().__init__(messages)
        self.left_out = left_out


class Messages(Part):
    """Part `admin.messages`: reads messages by place, time, key or id, without a consumer."""

    async def read(
        self, topic: str, broker_name: str, queue_id: int, offset: int, count: int
    ) -> list[ReceivedMessage]:
        """Up to `count` messages of one queue from `offset` on; fewer at the end of the queue.

        An offset before the queue's first message stands for that one.
        """
        check_count("count", count)
        (broker,) = await self._session.broker_groups(broker=broker_name)
        messages: list[ReceivedMessage] = []
        while len(messages) < count:
            wanted = min(limits.READ_RECORDS_MAX, count - len(messages))
            answer = await self._pull(broker, topic, queue_id, offset, wanted)
            next_offset = decode_header(PullMessageResponseHeader, answer).next_begin_offset
            if answer.code == ResponseCode.SUCCESS:
                messages += messages_in(answer.payload, broker_name)
            if next_offset <= offset:
                break
            offset = next_offset
        return messages[:count]

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after a time; if none was, the end."""
        (broker,) = await self._session.broker_groups(broker=queue.broker_name)
        return await offset_at(self._session, broker, queue, timestamp_ms)

    async def by_id(self, message_id: str) -> ReceivedMessage:
        """The message at an offset message id: the hex of a broker's address and a log position.

        The present leader of that broker's group is asked: positions are the same on all members.
        """
        host, port, position = offset_message_id_decode(message_id)
        address = join_address(host, port)
        header = ViewMessageByIdHeader(offset=position)
        known = [
            group
            for group in (await self._requests.cluster_info()).broker_addr_table.values()
            if address in group.broker_addrs.values()
        ]
        if known:
            answer = await self._requests.ask_leader(known[0], header)
            return _only_message(answer, known[0].broker_name)
        answer = expect_success(await self._requests.ask(address, header), header, address)
        return _only_message(answer, "")

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = limits.END_OF_TIME_MS,
        count: int = 64,
    ) -> Found:
        """Up to `count` messages of each broker group that carry a key, oldest first; they are the
        newest. The result's `left_out` says what is missing."""
        check_count("count", count)
        if not key or " " in key:
            raise BadInput(f"the key {key!r} is empty or holds a blank, which stands between keys")
        return await self._query(
            QueryMessageHeader(
                topic=topic,
                key=key,
                max_num=count,
                begin_timestamp=begin_ms,
                end_timestamp=end_ms,
            ),
            lambda message: key in keys_of(message.properties),
        )

    async def by_unique_key(self, topic: str, unique_key: str) -> Found:
        """The message that has this unique key. More than one if it was stored repeatedly."""
        return await self._query(
            unique_key_query(topic, unique_key),
            lambda message: message.message_id == unique_key,
        )

    async def scheduled(
        self, *, begin_ms: int = 0, count: int = limits.SCHEDULED_AT_ONCE
    ) -> tuple[ScheduledMessage, ...]:
        """The next delayed messages of all broker groups that are due at `begin_ms` or later, the
        earliest first; up to `count` (1024)."""
        check_count("count", count)

        async def ask(broker: BrokerData) -> list[ScheduledMessage]:
            header = ListScheduledHeader(begin_ms=begin_ms, count=count)
            answer = await self._requests.ask_leader(broker, header)
            due_ms = decode_header(ListScheduledResponseHeader, answer).due_ms.split()
            messages = messages_in(answer.payload, broker.broker_name)
            are_times = all(is_number(each, limits.TIME_DIGITS_MAX) for each in due_ms)
            if len(due_ms) != len(messages) or not are_times:
                raise RecordError(f"{len(messages)} messages came with {len(due_ms)} due times")
            return [*map(ScheduledMessage.due, messages, map(int, due_ms))]

        found = await run_for_each(ask, await self._session.broker_groups())
        coming = [message for part in found for message in part]
        return tuple(sorted(coming, key=lambda message: message.due_ms)[:count])

    async def _pull(
        self, broker: BrokerData, topic: str, queue_id: int, offset: int, count: int
    ) -> Command:
        header = look(TOOLS_GROUP, topic, queue_id, offset, count)
        answer = await self._requests.ask_whoever_leads(broker, header)
        if answer.code != ResponseCode.SUCCESS and answer.code not in _NOTHING_THERE:
            address = self._requests.leader(broker)
            raise Refused(f"reading {topic}", address, answer.code, answer.remark)
        return answer

    async def _query(
        self, header: QueryMessageHeader, is_wanted: Callable[[ReceivedMessage], bool]
    ) -> Found:
        absent: list[NoLeader | RemotingError] = []
        left_out: list[str] = []

        async def ask(broker: BrokerData) -> list[ReceivedMessage]:
            try:
                answer = await self._requests.ask_whoever_leads(broker, header)
            except (NoLeader, RemotingError) as error:
                log.warning("group not asked", broker=broker.broker_name, reason=str(error))
                absent.append(error)
                left_out.append(f"those of {broker.broker_name}, which does not answer: {error}")
                return []
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            expect_success(answer, header, self._requests.leader(broker))
            some = messages_in(answer.payload, broker.broker_name)
            if decode_header(QueryMessageResponseHeader, answer).more:
                left_out.append(
                    f"older ones of {broker.broker_name}: it gives the newest {len(some)} in one "
                    "answer; a higher count, or an earlier end, shows more"
                )
            return some

        found = await run_for_each(ask, (await self._session.route(header.topic)).broker_datas)
        messages = [message for one in found for message in one if is_wanted(message)]
        if absent and not messages:
            raise absent[0]
        if not messages:
            raise UnknownTarget(
                f"no message of topic {header.topic!r} has the key {header.key!r}, or none within "
                "the time asked for"
            )
        messages.sort(key=lambda message: message.store_timestamp_ms)
        return Found(messages, sorted(left_out))


async def offset_at(
    session: AdminSession, broker: BrokerData, queue: MessageQueue, timestamp_ms: int
) -> int:
    """The offset of the first message of a group's queue stored at or after a time."""
    header = SearchOffsetByTimestampHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
    )
    answer = await session.requests.ask_leader(broker, header)
    return decode_header(SearchOffsetByTimestampResponseHeader, answer).offset


def _only_message(answer: Command, broker_name: str) -> ReceivedMessage:
    """The message that was asked for. Raises RecordError if there is none in the answer."""
    messages = messages_in(answer.payload, broker_name)
    if len(messages) != 1:
        raise RecordError(f"{len(messages)} messages came in answer to a question for one")
    return messages[0]
