"""A message to send, the result of a send, a received message.

A received message is a view of the raw record in the pull's answer. A field is decoded when it is
read; the first body that is read decodes the bodies of all messages of a large answer. The message
keeps that answer's bytes (up to `limits.PULL_BYTES_MAX`) and bodies in memory. To keep data for a
long time, keep `bytes` and `str` values rather than messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from dledger.buffers import Buffer
from dledger.errors import BadInput, RecordError
from dledger.remoting import message as wire
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.numbers import is_number
from dledger.remoting.record import COMPRESSED, Record, has_body, plain_body, queue_offset, walk
from mqclient import limits
from mqclient.compression import inflate
from mqclient.errors import Undecodable
from mqclient.habits import Hinting

if TYPE_CHECKING:
    from dledger.remoting.record.table import RecordTable


@dataclass(slots=True)
class Message:
    """A message to send. Its `keys`, one text or several, are indexed; `tags` is one tag to filter
    by.

    `unique_key` names the message for ever; by default the producer makes one. Never give one key
    to two different messages: brokers recognise a repeated batch by its first key.
    `properties` are the sender's own; names that have a field here are refused.

    The message is delivered at once, unless one of these is set: `delay_level` (1 is the first of
    the broker's `messageDelayLevel`; a level above the last means the last), `delay_s` by the
    broker's clock, or `deliver_at`, a time with a time zone. A message with one of the last two can
    be taken back (`Producer.recall`); brokers keep it for 40 days at most.

    With `repeat_s` the message is delivered again and again at this interval, first at `deliver_at`
    or after `delay_s` (without these, after one interval): `repeats` times in all, or without end
    until it is taken back. With `repeat_cron` it is delivered by the calendar: five fields as in
    "0 9 * * MON-FRI", by the local time of `repeat_zone`, an IANA name; not before `deliver_at` or
    `delay_s`.

    In a topic for priorities, a message with a higher `priority`, from 0 on, is popped before
    others.

    A message with `ttl_s` expires that many seconds after its send, by the producer's clock.

    With `value` instead of a body, the producer's `encode` makes the body.
    """

    topic: str
    body: bytes = b""
    keys: str | Sequence[str] = ""
    tags: str = ""
    properties: Mapping[str, str] | None = None
    unique_key: str = ""
    flag: int = 0
    delay_level: int = 0
    delay_s: float = 0.0
    deliver_at: datetime | None = None
    repeat_s: float = 0.0
    repeats: int | None = None
    repeat_cron: str = ""
    repeat_zone: str = "UTC"
    ttl_s: float = 0.0
    priority: int | None = None
    value: object = None

    @property
    def delayed(self) -> bool:
        """Whether the message is to be delivered later."""
        later = self.delay_level or self.delay_s or self.repeat_s or self.repeat_cron
        return bool(later) or self.deliver_at is not None


#: Chooses one of a topic's writable queues, given in RocketMQ's order.
Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class SendResult(msgspec.Struct, frozen=True):
    """The place of an acknowledged message. `position` is its byte position in the group's log.

    For a delayed or half message, `queue_offset` and `position` name the place where it waits. With
    `recall_handle` a message with a timer can be taken back (`Producer.recall`).
    """

    message_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    position: int
    leader: str = ""
    recall_handle: str = ""

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offsetMsgId: the acknowledging broker's address and the position, in hex."""
        host, _, port = self.leader.rpartition(":")
        return wire.offset_message_id(wire.host_bytes(host.strip("[]"), int(port)), self.position)


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request, with its sender's properties."""

    body: bytes
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A change of the queues that a consumer reads, and what caused it."""

    cause: str
    assigned: tuple[MessageQueue, ...]
    revoked: tuple[MessageQueue, ...]
    queues: tuple[MessageQueue, ...] = field(default=())


class ReceivedMessage(msgspec.Struct, eq=False, gc=False):
    """A message as stored in the log; fields are decoded when they are read.

    The message has a record of its own (`data`), or is a row of a table. A program may hold
    hundreds of thousands of messages, so the garbage collector does not track them: no field may
    refer back to the message.
    """

    _data: memoryview | None
    broker_name: str
    _table: RecordTable | None = None
    _number: int = 0
    _record: Record | None = None
    _properties: dict[str, str] | None = None
    _large_bytes: int = -1
    _whole: bytes | None = None
    _lost: str = ""
    #: How often its handler had it again in its place (`on_error="suspend"`).
    handled_again: int = 0
    #: Makes a value of the body: the consumer's.
    decode: Callable[[bytes], Any] | None = None
    _value: object = None

    if not TYPE_CHECKING:
        __getattr__ = Hinting.__getattr__

    def __repr__(self) -> str:
        return (
            f"<ReceivedMessage {self.topic}/{self.broker_name}/{self.queue_id} "
            f"offset {self.queue_offset} id {self.message_id}>"
        )

    @property
    def data(self) -> memoryview:
        """The bytes of the raw record."""
        if self._data is None:
            assert self._table is not None
            self._data = self._table.record(self._number)
        return self._data

    @property
    def record(self) -> Record:
        """The stored record, with all of its fields."""
        if self._record is None:
            self._record = Record(self.data)
        return self._record

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, including those that clients and brokers add."""
        if self._properties is None:
            self._properties = wire.properties_decode(self.record.properties)
        return self._properties

    @property
    def topic(self) -> str:
        """The topic to which the message was sent, even if it was read from a retry topic."""
        topic = self.record.topic
        if topic.startswith(wire.RETRY_PREFIX):
            return self.properties.get(wire.RETRY_TOPIC, topic)
        return topic

    @property
    def key(self) -> str:
        """The key with which the message was sent, by `send(message, key=...)` or by RocketMQ's
        clients; "" without a key."""
        return self.properties.get(wire.SHARDING_KEY, "")

    @property
    def queue(self) -> MessageQueue:
        """The queue from which the message was read."""
        return MessageQueue(self.record.topic, self.broker_name, self.queue_id)

    @property
    def body(self) -> bytes:
        """The body, checked against its CRC and inflated. Raises RecordError if it is damaged.

        A large body is empty until its parts are fetched; the error says why they can't be fetched.
        """
        if self._whole is not None:
            return self._whole
        if self._lost:
            raise RecordError(self._lost)
        table = self._table
        plain = plain_body(self.data) if table is None else table.bodies[self._number]
        if plain is not None:
            return plain
        record = self.record
        if not record.check():
            raise RecordError(
                f"the body of {self!r} does not match its CRC: it was damaged on the way here, or "
                "on the broker's disk"
            )
        if record.sys_flag & COMPRESSED:
            return inflate(
                record.body, record.sys_flag, f"the body at position {record.physical_offset}"
            )
        return bytes(record.body)

    @property
    def manifest(self) -> str:
        """The places of the body's parts, if the message was sent by `Producer.send_large`; else
        ""."""
        return "" if has_body(self.data) else self._property(wire.LARGE_BODY)

    def _property(self, name: str) -> str:
        """A property that the client acts upon; "" without it, and of a malformed record, which its
        reader is to see as it is."""
        try:
            return self.properties.get(name, "")
        except BadInput:
            return ""

    @property
    def value(self) -> Any:
        """The body as the consumer's `decode` reads it. Raises Undecodable, the errors of `body`,
        and BadInput if the consumer was made without `decode`."""
        if self._value is None:
            if self.decode is None:
                raise BadInput("a value is asked for, and the consumer was made without `decode`")
            body = self.body
            try:
                self._value = self.decode(body)
            except Exception as error:
                raise Undecodable(self.queue, self.queue_offset, error) from error
        return self._value

    @property
    def large_bytes(self) -> int:
        """Bytes of a body that was sent in parts; 0 for any other body."""
        if self._large_bytes < 0:
            table = self._table
            has_body = table is not None and self._number not in table.bodiless
            self._large_bytes = 0 if has_body else _size_in(self.manifest)
        return self._large_bytes

    @property
    def is_whole(self) -> bool:
        """Whether the message's large body was fetched."""
        return self._whole is not None

    def take_body(self, whole: bytes | Exception) -> None:
        """Take the large body that was fetched, or the reason why it can't be."""
        if isinstance(whole, bytes):
            self._whole = whole
        else:
            self._lost = str(whole) or repr(whole)

    @property
    def held_bytes(self) -> int:
        """Bytes that the message takes in memory, including its large body."""
        return self.size_bytes + self.large_bytes

    @property
    def message_id(self) -> str:
        """The unique key that the producer gave the message; without it, the offset message id."""
        return self.properties.get(wire.UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offsetMsgId: the storing broker's address, and the position in its log."""
        return wire.offset_message_id(self.record.store_host, self.position)

    @property
    def keys(self) -> str:
        """The sender's keys, separated by blanks, or ""."""
        return self.properties.get(wire.KEYS, "")

    @property
    def tags(self) -> str:
        """The message's tag, or "" without one."""
        return self.properties.get(wire.TAGS, "")

    @property
    def expires_ms(self) -> int | None:
        """The time at which the message expires, in ms since 1970; None if it does not expire."""
        text = self._property(wire.EXPIRES_AT_MS)
        return int(text) if is_number(text, limits.TIME_DIGITS_MAX) else None

    @property
    def priority(self) -> int:
        """The message's priority, or -1 if it has none."""
        return wire.priority_of({wire.PRIORITY: self._property(wire.PRIORITY)})

    @property
    def queue_id(self) -> int:
        """The queue within the topic and broker group."""
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        """The message's place in the queue, from 0."""
        table = self._table
        return queue_offset(self.data) if table is None else table.offsets[self._number]

    @property
    def position(self) -> int:
        """The message's byte position in the broker group's log."""
        return self.record.physical_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the message in the log: body, properties and everything else."""
        table = self._table
        return len(self.data) if table is None else table.size_of(self._number)

    @property
    def flag(self) -> int:
        """The flag that the sender set."""
        return self.record.flag

    @property
    def reconsume_times(self) -> int:
        """The number of times that consumers have sent the message back."""
        return self.record.reconsume_times

    @property
    def born_timestamp_ms(self) -> int:
        """The time at which the producer made the message, in ms, by the producer's clock."""
        return self.record.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int:
        """The time at which the broker stored the message, in ms, by the broker's clock."""
        return self.record.store_timestamp_ms


def _size_in(manifest: str) -> int:
    """The size in a manifest, or 1 if it is not a number; 0 without a manifest."""
    if not manifest:
        return 0
    _, _, rest = manifest.partition(" ")
    size, _, _ = rest.partition(" ")
    return max(int(size), 1) if is_number(size, limits.TIME_DIGITS_MAX) else 1


def messages_in(records: Buffer, broker_name: str) -> list[ReceivedMessage]:
    """The messages in a broker's answer of raw records. Raises RecordError."""
    view = memoryview(records)
    starts = walk(view)
    if not starts:
        return []
    return [
        ReceivedMessage(view[start:end], broker_name)
        for start, end in zip(starts, [*starts[1:], len(view)], strict=True)
    ]
