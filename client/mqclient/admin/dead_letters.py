"""The dead letters of a group: messages that it could not handle, and their way back.

They lie in the topic `%DLQ%` and the group's name, on every broker group, like any message. Sent
again to its topic, one is a new message, with the keys, tags, properties and body of the old one,
and no tries behind it. How far they were sent again is an offset of `TOOLS_REDRIVE` in that topic,
so nobody who repeats the call sends one twice. If the call ends between a message and its offset,
the next call sends that message under the same unique key: the broker knows it again, unless it has
taken 131,072 others meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final
from zlib import crc32

from dledger.errors import BadInput, RecordError
from dledger.remoting import message as names
from dledger.remoting.allocation import queues_of
from dledger.remoting.bodies import BrokerData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.headers import (
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    SendMessageResponseHeader,
    SendMessageV2Header,
    UpdateConsumerOffsetHeader,
    decode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import PERM_READ, PERM_WRITE
from dledger.remoting.record import COMPRESSED, COMPRESSION_TYPE
from mqclient import limits
from mqclient.admin.groups import Groups
from mqclient.admin.messages import Messages
from mqclient.admin.requests import expect_success
from mqclient.admin.results import DeadLetter
from mqclient.admin.session import Part, UnknownTarget
from mqclient.arguments import check_count
from mqclient.connection.answers import checked_offset
from mqclient.errors import NoRoute, Refused
from mqclient.models import ReceivedMessage

GROUP: Final = "TOOLS_REDRIVE"
#: Errors of a single letter, and not of the cluster.
_OF_ONE_LETTER: Final = (NoRoute, Refused, BadInput, RecordError)
_PRODUCER: Final = "TOOLS_PRODUCER"
#: Properties of the old message's way, which are not true of the new one.
_OF_THE_WAY: Final = (
    *names.DELAYS,
    names.TIMER_OUT_MS,
    names.EXPIRES_AT_MS,
    names.REPEAT_OF,
    names.REAL_TOPIC,
    names.REAL_QID,
    names.RETRY_TOPIC,
    names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES,
    names.POP_CK,
    names.TRAN_MSG,
    names.PGROUP,
    names.WAIT,
)


class DeadLetters(Part):
    """Part `admin.dead_letters`: lists dead letters, and sends them to their topics again."""

    async def list(
        self,
        group: str,
        *,
        redriven: bool = False,
        count: int = limits.DEAD_LETTERS_AT_ONCE,
    ) -> tuple[DeadLetter, ...]:
        """Up to `count` dead letters of a group, oldest first in each queue.

        Those that were sent again already are among them with `redriven`. Raises UnknownTarget if
        there is no such group.
        """
        check_count("count", count)
        found: list[DeadLetter] = []
        for queue in await self._queues(group):
            offset = 0 if redriven else await self._offset(queue)
            async with aclosing(self._from(queue, offset)) as messages:
                async for message in messages:
                    letter = DeadLetter.of(message)
                    if redriven or not await self._copy_of(letter):
                        found.append(letter)
                    if len(found) >= count:
                        return tuple(found)
        return tuple(found)

    async def redrive(
        self,
        group: str,
        *,
        message_id: str | None = None,
        dry_run: bool = False,
        count: int = limits.DEAD_LETTERS_AT_ONCE,
    ) -> tuple[DeadLetter, ...]:
        """Send up to `count` dead letters to their topics again; with `dry_run`, only tell which.

        They are those that were not sent again yet, or the one with an offset message id, whether
        it was or not. One that can't be sent is among the result with its `problem` (its topic is
        gone, or it does not say it); those behind it are sent all the same, and the next call tries
        it again. Of a single one the error is raised.
        """
        check_count("count", count)
        if message_id is not None:
            return (await self._redrive(group, await self._one(group, message_id), dry_run),)
        done: list[DeadLetter] = []
        for queue in await self._queues(group):
            offset = first = await self._offset(queue)
            is_through = True
            try:
                async with aclosing(self._from(queue, offset)) as messages:
                    async for message in messages:
                        if len(done) >= count:
                            break
                        letter = DeadLetter.of(message)
                        if not await self._copy_of(letter):
                            try:
                                letter = await self._redrive(group, message, dry_run)
                            except _OF_ONE_LETTER as error:
                                letter, is_through = letter.unsent(error), False
                            done.append(letter)
                        # Letters behind the first one that is kept are found by its copy.
                        offset = message.queue_offset + 1 if is_through else offset
            finally:
                if offset > first and not dry_run:
                    await self._commit(queue, offset)
        return tuple(done)

    async def _copy_of(self, letter: DeadLetter) -> bool:
        """Whether a letter was sent again already: its topic has its copy."""
        key = _key_of_copy(letter)
        try:
            copies = await Messages(self._session).by_unique_key(letter.origin_topic, key)
        except (NoRoute, UnknownTarget, Refused, BadInput):
            return False
        return bool(copies)

    async def _one(self, group: str, message_id: str) -> ReceivedMessage:
        message = await Messages(self._session).by_id(message_id)
        if message.record.topic != names.DLQ_PREFIX + group:
            raise UnknownTarget(
                f"message {message_id} lies in topic {message.record.topic!r}, not in the dead "
                f"letters of group {group!r}: mqadmin deadLetters -g {group} lists them"
            )
        return message

    async def _redrive(self, group: str, message: ReceivedMessage, dry_run: bool) -> DeadLetter:
        letter = DeadLetter.of(message)
        if not letter.origin_topic:
            raise BadInput(
                f"dead letter {letter.offset_message_id} of group {group!r} does not say which "
                f"topic it was sent to: it has no property {names.RETRY_TOPIC}"
            )
        broker, queue_id = await self._destination(letter)
        if dry_run:
            return letter
        if not message.record.check():
            raise RecordError(f"the body of {message!r} does not match its CRC")
        answer = await self._requests.ask_leader(
            broker,
            _copy(message, letter, queue_id),
            bytes(message.record.body),
        )
        return letter.sent(decode_header(SendMessageResponseHeader, answer).msg_id)

    async def _destination(self, letter: DeadLetter) -> tuple[BrokerData, int]:
        """A queue of its topic, the same at each try: on its own broker group if that has one."""
        topic = letter.origin_topic
        route = await self._session.route(topic)
        queues = queues_of(topic, route, PERM_WRITE)
        own = [queue for queue in queues if queue.broker_name == letter.broker_name]
        if not (own or queues):
            raise NoRoute(topic, "redrive to", "no broker lets producers write to it")
        queue = (own or queues)[crc32(letter.message_id.encode()) % len(own or queues)]
        (broker,) = [each for each in route.broker_datas if each.broker_name == queue.broker_name]
        return broker, queue.queue_id

    async def _queues(self, group: str) -> tuple[MessageQueue, ...]:
        topic = names.DLQ_PREFIX + group
        try:
            route = await self._session.route(topic)
        except NoRoute:
            await Groups(self._session).progress(group)
            return ()
        return queues_of(topic, route, PERM_READ)

    async def _from(
        self, queue: MessageQueue, offset: int
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages of a queue, from this offset on."""
        place = (queue.topic, queue.broker_name, queue.queue_id)
        while True:
            chunk = await Messages(self._session).read(*place, offset, limits.READ_RECORDS_MAX)
            for message in chunk:
                yield message
                offset = message.queue_offset + 1
            if not chunk:
                return

    async def _offset(self, queue: MessageQueue) -> int:
        header = QueryConsumerOffsetHeader(
            consumer_group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        (broker,) = await self._session.broker_groups(broker=queue.broker_name)
        answer = await self._requests.ask_whoever_leads(broker, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        expect_success(answer, header, self._requests.leader(broker))
        offset = decode_header(QueryConsumerOffsetResponseHeader, answer).offset
        return checked_offset(offset, f"how far {queue} was sent again")

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetHeader(
            consumer_group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        (broker,) = await self._session.broker_groups(broker=queue.broker_name)
        await self._requests.ask_leader(broker, header)


def _key_of_copy(letter: DeadLetter) -> str:
    """The unique key of a letter that is sent again."""
    return f"REDRIVEN-{letter.offset_message_id}"


def _copy(message: ReceivedMessage, letter: DeadLetter, queue_id: int) -> SendMessageV2Header:
    """The send of a new message like the old one, under a key that is the same at each try."""
    record = message.record
    kept = names.properties_without(record.properties, (*_OF_THE_WAY, names.UNIQ_KEY))
    added = {names.UNIQ_KEY: _key_of_copy(letter)}
    if not names.has_property(kept, names.ORIGIN_MESSAGE_ID):
        added[names.ORIGIN_MESSAGE_ID] = letter.offset_message_id
    return SendMessageV2Header(
        a=_PRODUCER,
        b=letter.origin_topic,
        c=names.DEFAULT_TOPIC,
        d=limits.QUEUES_WANTED_MAX,
        e=queue_id,
        f=record.sys_flag & (COMPRESSED | COMPRESSION_TYPE),
        g=record.born_timestamp_ms,
        h=record.flag,
        i=(kept + names.properties_encode(added)).decode(),
    )
