"""Sends of stock clients, one by one and in batches.

The broker makes the records. The steps and error codes are the reference's (SendMessageProcessor);
there is one difference: a retry of a send whose answer can't have reached the client is answered
with the first copy's place (`mqbroker.leader.appending.resends`). Our own client, known by its
header encoding, gives each send its own key, so its repeats are recognised by the key alone, like
its batches.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Generator, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.limits import MESSAGE_BODY_BYTES_MAX, PROPERTIES_SENT_BYTES_MAX
from dledger.net import Connection
from dledger.net.turns import result_in_turns
from dledger.remoting import headers
from dledger.remoting import message as names
from dledger.remoting.bodies import TopicConfig
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.names import TIMER_TOPIC, UNSENDABLE, WAITING_TOPICS
from dledger.remoting.receipts import RecallHandle
from dledger.remoting.record import HOST_BITS, TRANSACTION_BITS
from dledger.slices import drained
from mqbroker import limits
from mqbroker.flow.control import Arriving
from mqbroker.leader.appending.drafts import NewRecord, RecordsDraft, new_unique_key
from mqbroker.leader.appending.in_flight import Stored
from mqbroker.leader.appending.resends import Asker, Send
from mqbroker.leader.transactions import half_message
from mqbroker.leader.waiting.delays import delay_level
from mqbroker.leader.waiting.repeats import check_repeat
from mqbroker.refusal import busy, illegal_message, no_permission, no_queue, of_broker, refusing
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_leader
from mqbroker.requests.sending.batch_properties import NOT_KEPT, batch_properties
from mqbroker.requests.sending.copies import properties_max
from mqbroker.requests.sending.keys import check_properties
from mqbroker.requests.sending.retries import retry_destination
from mqbroker.state.attributes import check_type, message_type
from mqbroker.state.decisions import GROUP
from mqbroker.state.dedup import dedup_key
from mqbroker.state.shares import owner_name

REGION = {names.MSG_REGION: "DefaultRegion", names.TRACE_ON: "true"}


class _Place(NamedTuple):
    """Where messages are stored, and the topic that was asked for, which they get after a delay."""

    topic: str
    queue_id: int
    asked_topic: str


class SendHandler:
    """Answers the codes for sends."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: Properties that each message gets.
        self._added = f"{names.CLUSTER}\x01{core.config.broker_cluster_name}\x02{_TRACED}"
        self._added_bytes = self._added.encode()

    @by_leader(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, rights=rights.SENT)
    def send(self, request: Command, connection: Connection) -> Later[Stored]:
        """Append the one message of a request, as a half message if it opens a transaction."""
        header = send_header(request)
        properties = self._properties(header.properties or "")
        transactional = (
            f"\x02{names.TRAN_MSG}\x01true" in "\x02" + properties and not header.reconsume_times
        )
        if not transactional:
            _refuse_transaction_bits(header)
        config, queue_id = self._destination(header)
        topic = asked_topic = config.topic_name
        self._check_type(topic, properties)
        if _PRIORITY in "\x02" + properties:
            queue_id, properties = _by_priority(config, queue_id, properties)
        delayed = _is_delayed(properties)
        if _REPEAT in properties:
            self._check_repeat(properties, request.payload, waits=delayed and not transactional)
        if transactional or delayed:
            detour = self._half if transactional else self._detour
            topic, queue_id, properties = detour(topic, queue_id, properties)
        encoded = properties.encode()
        message = names.BatchItem(request.payload, b"", header.flag)
        (record,) = self._records(header, [message], [encoded], connection)
        unique_key = ("\x02" + properties).partition(_UNIQ_KEY)[2].partition("\x02")[0]
        places: Sequence[str] = ()
        if unique_key and not record.reconsume_times:
            # A timed message may have become due since its first copy began to wait.
            places = (topic, TIMER_TOPIC, asked_topic) if delayed else (topic,)
        keys = [dedup_key(place.encode(), unique_key.encode()) for place in places]
        where = _Place(topic, queue_id, asked_topic)
        return self._append(request, connection, config, where, [record], keys)

    @by_leader(RequestCode.SEND_BATCH_MESSAGE, rights=rights.SENT)
    def send_batch(
        self, request: Command, connection: Connection
    ) -> Later[Stored] | Awaitable[Later[Stored]]:
        """Append several messages to one queue, with consecutive offsets."""
        items = names.batch_decode(request.payload, limits.MESSAGES_PER_BATCH_MAX + 1)
        steps = self._batch_steps(request, connection, items)
        is_large = len(items) > limits.BATCH_AT_ONCE_MAX
        return result_in_turns(steps) if is_large else drained(steps)

    def _batch_steps(
        self, request: Command, connection: Connection, items: Sequence[names.BatchItem]
    ) -> Generator[None, None, Later[Stored]]:
        """The steps of a batch, which return what is to be appended."""
        header = send_header(request)
        if header.topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
            raise illegal_message("a batch can't go to a retry topic")
        if not 0 < len(items) <= limits.MESSAGES_PER_BATCH_MAX:
            raise illegal_message(
                f"a batch of no message, or of too many: 1 to {limits.MESSAGES_PER_BATCH_MAX} fit"
            )
        topic = self._destination(header)[0].topic_name
        common = names.properties_decode((header.properties or "").encode())
        _refuse_transaction_bits(header)
        properties, first_key = list[bytes](), ""
        for begin in range(0, len(items), limits.BATCH_STEP):
            own = [item.properties for item in items[begin : begin + limits.BATCH_STEP]]
            some, key = batch_properties(common, own, self._added_bytes)
            first_key = first_key if properties else key
            properties += some
            if self._core.config.enable_topic_message_type_check:
                for each in some:
                    self._check_type(topic, each.decode())
            if len(items) > limits.BATCH_STEP:
                yield
        check_properties(properties)
        records = self._records(header, items, properties, connection)
        keys = [dedup_key(topic.encode(), first_key.encode())] if first_key else []
        if len(items) > limits.BATCH_AT_ONCE_MAX:
            yield
            self._core.role.check_serving()
        config, queue_id = self._destination(header)
        where = _Place(topic, queue_id, topic)
        return self._append(request, connection, config, where, records, keys)

    def _append(
        self,
        request: Command,
        connection: Connection,
        asked: TopicConfig,
        place: _Place,
        records: Sequence[NewRecord],
        keys: Sequence[bytes],
    ) -> Later[Stored]:
        """`keys`: the keys that identify the send, and those of an earlier try of it."""
        core = self._core
        runs = [(place.queue_id, len(records))]
        draft = RecordsDraft(records, place.topic, runs, core.assignments, core.store_host)

        def answer(stored: Stored) -> Command:
            response = self._answer(stored, place, records[0].properties)
            return request.reply(ext=response | REGION)

        topics = (place.asked_topic,)
        admit = partial(core.admit, Arriving(asked, len(records), draft.size))
        if request.encoding is HeaderEncoding.MSGPACK:
            known = (key for key in keys if core.appender.knows(key, place.asked_topic))
            key = next(known, keys[0] if keys else None)
            append = partial(core.appender.append, draft, key, admit=admit, topic=place.asked_topic)
            return Later(append, answer, topics)
        if request.is_oneway:
            keys = ()  # one-way: no client waits for an answer, so none tries again
        asker = Asker(connection.id, core.clock_s())
        send = Send(keys, records, asker, core.assignments.now_ms(), place.asked_topic)
        append = partial(core.appender.send, draft, send, admit=admit)
        return Later(append, answer, topics, partial(core.appender.answered, asker))

    def _answer(self, stored: Stored, place: _Place, properties: bytes) -> dict[str, ExtValue]:
        """The messages' place, in the form that the client expects: of this try of the send, with
        the first message's properties, or of an earlier try."""
        core = self._core
        topic, queue_id = place.topic, place.queue_id
        if stored.duplicate:
            first = core.record_at(stored.positions[0])
            topic, queue_id, properties = first.topic, first.queue_id, bytes(first.properties)
        recall_handle = None
        if topic in WAITING_TOPICS:
            waiting = names.properties_decode(properties)
            queue_id = int(waiting[names.REAL_QID])
            if topic == TIMER_TOPIC:
                due_ms, key = waiting[names.TIMER_OUT_MS], waiting.get(names.UNIQ_KEY, "")
                broker_name = core.config.broker_name
                handle = RecallHandle(waiting[names.REAL_TOPIC], broker_name, due_ms, key)
                recall_handle = handle.encode()
        answer = headers.SendMessageResponseHeader(
            msg_id=",".join(names.offset_message_ids(core.store_host, stored.positions)),
            queue_id=queue_id,
            queue_offset=stored.offsets[0][1],
            recall_handle=recall_handle,
        )
        return encode_header(answer)

    def _destination(self, header: headers.SendMessageHeader) -> tuple[TopicConfig, int]:
        """The topic, which may have to be made, and the queue that the message goes to."""
        if header.topic in UNSENDABLE:
            raise no_permission(of_broker(header.topic))
        name = header.topic
        if name.startswith(names.RETRY_PREFIX):
            name = self._retry_destination(header)
        topic = self._core.definitions.topic_for_send(name, header.default_topic_queue_nums)
        if name != header.topic:
            return topic, 0
        return topic, _queue(topic, header.queue_id)

    def _check_type(self, topic: str, properties: str) -> None:
        """Refuse a message that is not of its topic's type, if the operator wants that."""
        if self._core.config.enable_topic_message_type_check:
            wanted = self._core.definitions.topic_type(topic)
            if wanted is not None:
                check_type(topic, wanted, names.properties_decode(properties.encode()))

    def _check_repeat(self, properties: str, body: Buffer, *, waits: bool) -> None:
        """Refuse a message that can't come again and again as it says."""
        decoded = names.properties_decode(properties.encode())
        check_repeat(decoded, len(body), timed=waits and delay_level(decoded) <= 0)

    def _retry_destination(self, header: headers.SendMessageHeader) -> str:
        """The topic of a message that a consumer sends back by itself: the dead letters after too
        many tries."""
        group = self._core.definitions.group(header.topic.removeprefix(names.RETRY_PREFIX))
        times = header.reconsume_times or 0
        return retry_destination(group, times, header.max_reconsume_times)

    def _detour(self, topic: str, queue_id: int, properties: str) -> tuple[str, int, str]:
        """Where a message with a delay is stored first. Dead letters are stored at once."""
        decoded = names.properties_decode(properties.encode())
        if topic.startswith(names.DLQ_PREFIX):
            for name in names.DELAYS:
                decoded.pop(name, None)
        topic, queue_id, decoded = self._core.detour(topic, queue_id, decoded)
        return topic, queue_id, _text(decoded)

    def _half(self, topic: str, queue_id: int, properties: str) -> tuple[str, int, str]:
        """Where a transactional message waits for the end of its transaction."""
        decoded = names.properties_decode(properties.encode())
        if names.PGROUP not in decoded:
            raise illegal_message("a transactional message names no producer group")
        if decoded[names.PGROUP].startswith(GROUP):
            raise illegal_message(f"a producer group must not begin with {GROUP!r}")
        if len(decoded[names.PGROUP]) > limits.PRODUCER_GROUP_CHARACTERS_MAX:
            raise illegal_message(
                f"a producer group of {len(decoded[names.PGROUP])} characters; at most "
                f"{limits.PRODUCER_GROUP_CHARACTERS_MAX} are taken"
            )
        owner = (topic, owner_name(decoded[names.PGROUP].encode()))
        full = self._core.machine.halves.owners.full(owner)
        if full is not None:
            raise busy(full)
        topic, queue_id, decoded = half_message(topic, queue_id, decoded)
        return topic, queue_id, _text(decoded)

    def _records(
        self,
        header: headers.SendMessageHeader,
        messages: Sequence[names.BatchItem],
        properties: Sequence[bytes],
        connection: Connection,
    ) -> list[NewRecord]:
        """The records of messages with one header, with the properties that they are stored with.
        Refused if a body or its properties are too large."""
        size_max = self._core.config.max_message_size
        if header.topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
            size_max = MESSAGE_BODY_BYTES_MAX  # it was taken when maxMessageSize allowed for it
        body_max = max([len(body) for body, _, _ in messages], default=0)
        largest = max(properties, key=len, default=b"")
        if body_max > size_max or len(largest) > PROPERTIES_SENT_BYTES_MAX:
            room = properties_max(header.topic, largest)
            if body_max > size_max or len(largest) > room:
                raise illegal_message(
                    f"a body of {body_max} bytes, or {len(largest)} bytes of properties; at most "
                    f"{size_max} (maxMessageSize) and {room} are taken"
                )
        born_ms, host = header.born_timestamp, born_host(connection)
        sys_flag = header.sys_flag & ~(TRANSACTION_BITS | HOST_BITS)
        times = header.reconsume_times or 0
        return [
            NewRecord(body, each, born_ms, host, flag, sys_flag, times)
            for (body, _, flag), each in zip(messages, properties, strict=True)
        ]

    def _properties(self, properties: str) -> str:
        """The properties as stored: with unique key and cluster, without what is not kept."""
        if properties and not properties.endswith("\x02"):
            properties += "\x02"
        properties = _without(properties, _NOT_KEPT)
        if _UNIQ_KEY not in "\x02" + properties:
            properties += f"{names.UNIQ_KEY}\x01{new_unique_key()}\x02"
        return properties + self._added


_UNIQ_KEY = f"\x02{names.UNIQ_KEY}\x01"
# Consumers of 5.x trace only messages that carry a region.
_TRACED = names.properties_encode(REGION).decode()
_NOT_KEPT = tuple(f"{name}\x01" for name in (names.WAIT, *NOT_KEPT))


_PRIORITY = f"\x02{names.PRIORITY}\x01"
_REPEAT = "REPEAT"
"""The beginning of the names of all properties of repeats."""
_ANY_DELAY = re.compile("\x02(?:{})\x01".format("|".join(names.DELAYS)))


def _without(properties: str, not_kept: tuple[str, ...]) -> str:
    """Properties whose names do not start with any of these prefixes, as they were.

    Each message of a stock client has one of them, so nothing is decoded for it.
    """
    items = properties.split("\x02")
    return "\x02".join([item for item in items if not item.startswith(not_kept)])


def _text(properties: Mapping[str, str]) -> str:
    """The properties as a record holds them. Refused if they are too long."""
    with refusing(BadInput, illegal_message):
        return names.properties_encode(properties).decode()


def _refuse_transaction_bits(header: headers.SendMessageHeader) -> None:
    if header.sys_flag & TRANSACTION_BITS:
        raise illegal_message(
            f"the system flag {header.sys_flag} has transaction bits, but TRAN_MSG is not true"
        )


def _by_priority(topic: TopicConfig, queue_id: int, properties: str) -> tuple[int, str]:
    """The queue of a message with a priority, which is its number; others lose the property."""
    decoded = names.properties_decode(properties.encode())
    priority = names.priority_of(decoded)
    if priority >= 0 and message_type(decoded) == "PRIORITY":
        return min(priority, topic.write_queue_nums - 1), properties
    decoded.pop(names.PRIORITY, None)
    return queue_id, _text(decoded)


def _is_delayed(properties: str) -> bool:
    return _ANY_DELAY.search("\x02" + properties) is not None


def born_host(connection: Connection) -> bytes:
    """The client's address and port as records hold them."""
    return _host_bytes(*connection.peer)


_host_bytes = lru_cache(maxsize=4096)(names.host_bytes)


def send_header(request: Command) -> headers.SendMessageHeader:
    """The header of any of the codes, under its long names."""
    if request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        return decode_header(headers.SendMessageHeader, request)
    return decode_header(headers.SendMessageV2Header, request).to_v1()


def _queue(topic: TopicConfig, queue_id: int) -> int:
    queues = max(topic.read_queue_nums, topic.write_queue_nums)
    if queue_id >= queues:
        raise no_queue(topic.topic_name, queue_id, queues)
    return queue_id if queue_id >= 0 else random.randrange(topic.write_queue_nums)
