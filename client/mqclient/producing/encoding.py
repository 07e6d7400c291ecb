"""Turns a message into the record that will lie in the log.

The producer encodes finished records, so that a broker only fills in their places: the client works
per message, the broker per batch. This runs once for each message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import accumulate, repeat
from operator import attrgetter
from typing import NamedTuple, get_type_hints

from dledger.errors import BadInput
from dledger.limits import MESSAGE_BODY_BYTES_MAX, PROPERTIES_SENT_BYTES_MAX
from dledger.remoting.message import (
    KEYS,
    PGROUP,
    SHARDING_KEY,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    host_bytes,
    properties_encode,
)
from dledger.remoting.names import check_topic_name
from dledger.remoting.record import encode_like, encode_record
from dledger.world import unix_ms
from mqclient import limits, tables
from mqclient.compression import Compressor
from mqclient.connection.identity import (
    NUMBER_DIGITS,
    UniqueKeys,
    numbered_key,
)
from mqclient.errors import BadMessage
from mqclient.models import Message
from mqclient.producing.waiting.delays import (
    delay_properties,
    expiry_properties,
    priority_properties,
)
from mqclient.signatures import accepts, wrong
from mqclient.user_properties import check_properties, encode_properties, keys_text, with_property

PREPARED = 0x4
"""The transaction bits of a half message (RocketMQ's MessageSysFlag)."""
# A generated key needs no checks, so everything but the key itself is encoded once.
_PLACE = "0"
_KEY_BEFORE, _KEY_AFTER = properties_encode({UNIQ_KEY: _PLACE}).split(_PLACE.encode())


_fields_of = attrgetter(*(each.name for each in fields(Message)))
_right_types: set[tuple[type, ...]] = set()
"""The types of the fields of messages that were found right."""


@lru_cache(maxsize=4096)
def topic_bytes(topic: str) -> bytes:
    """The topic as records hold it. Raises BadInput if it can't be one."""
    check_topic_name(topic)
    return topic.encode()


def _check_types(message: Message) -> None:
    """Raises BadInput for a field of another type than it is to have.

    Most messages of a program have the same types, which are looked up together.
    """
    types = tuple(map(type, _fields_of(message)))
    if types in _right_types:
        return
    for each, hint in get_type_hints(Message).items():
        value = getattr(message, each)
        if not accepts(hint, value):
            raise wrong(each, value, hint)
    if message.value is not None:
        raise BadInput("it has a value, which only a producer that was made with `encode` sends")
    if len(_right_types) < limits.MESSAGE_TYPES_MAX:
        _right_types.add(types)


def with_key(properties: Mapping[str, str], order_key: str | None) -> dict[str, str]:
    """Properties with the key whose order is kept, if there is one. Raises BadInput for two."""
    if order_key is None:
        return dict(properties)
    own = properties.get(SHARDING_KEY, order_key)
    if own != order_key:
        raise BadInput(
            f"key={order_key!r} and the property {SHARDING_KEY}={own!r}: both are the key "
            "whose order is kept. Give one of them"
        )
    return with_property(properties, SHARDING_KEY, order_key)


def _properties(
    message: Message, half_of: str, now_ms: int, order_key: str | None
) -> dict[str, str]:
    """All properties but the unique key. `half_of` is the producer group of a transactional
    message; the `order_key`, by which its queue was chosen, is stored for those who handle it."""
    check_properties(message.properties or {})
    properties = with_key(message.properties or {}, order_key)
    if message.delayed:
        if half_of:
            raise BadInput(
                "a transactional message can't be delayed: it is seen once it is committed"
            )
        properties |= delay_properties(message)
    if message.priority is not None:
        properties |= priority_properties(message, half_of)
    if message.ttl_s:
        properties |= expiry_properties(message, now_ms)
    if half_of:
        properties |= {TRAN_MSG: "true", PGROUP: half_of}
    if message.keys:
        properties[KEYS] = keys_text(message.keys)
    if message.tags:
        properties[TAGS] = message.tags
    return properties


def _has_properties(message: Message) -> bool:
    """Whether it has any but the unique key."""
    return (
        bool(message.keys or message.tags or message.properties or message.ttl_s)
        or message.priority is not None
        or message.delayed
    )


class Pattern(NamedTuple):
    """The record of an empty body, and whose key's number its digits become."""

    key_front: str
    numbers: range
    record: bytes
    digits_at: int

    @property
    def size_bytes(self) -> int:
        """Bytes of a record besides its body."""
        return len(self.record)


class Many(NamedTuple):
    """Encoded messages: their keys' front and numbers, their records, and where each ends."""

    key_front: str
    numbers: range
    records: bytes
    ends: Sequence[int]


def _fill_few(
    pattern: Pattern, bodies: Sequence[bytes], sys_flags: Sequence[int] | None
) -> tuple[bytes, Sequence[int]]:
    """The records, encoded one by one: a table would cost more than a few records do."""
    records = []
    for number, body, flag in zip(pattern.numbers, bodies, sys_flags or repeat(0)):  # noqa: B905
        digits = f"{number:0{NUMBER_DIGITS}X}".encode()
        records.append(encode_like(pattern.record, body, pattern.digits_at, digits, flag))
    return b"".join(records), [*accumulate(map(len, records))]


class Encoder:
    """Encodes the messages of one producer, whose address is `host`."""

    def __init__(self, keys: UniqueKeys, host: str, compressor: Compressor | None = None) -> None:
        self._keys = keys
        self._compressor = compressor
        self._born_host = host_bytes(host, 0)
        self._refreshed_ms = 0

    def encode(
        self, message: Message, queue_id: int, half_of: str = "", order_key: str | None = None
    ) -> tuple[str, bytes]:
        """(unique key, record) of a message. Raises BadMessage naming the field and the bound.

        With a producer group `half_of`, it is the half message of a transaction of that group. The
        `order_key` is the key by which its queue was chosen, if one was given.
        """
        now_ms = self._now_ms()
        unique_key = message.unique_key or self._keys.next()
        try:
            _check_types(message)
            body = message.body
            if len(body) > MESSAGE_BODY_BYTES_MAX:
                raise BadInput(
                    f"a body of {len(body)} bytes; at most {MESSAGE_BODY_BYTES_MAX} are allowed"
                )
            sys_flag = PREPARED if half_of else 0
            if self._compressor is not None:
                body, how = self._compressor.deflate(body)
                sys_flag |= how
            if message.unique_key:
                properties = encode_properties({UNIQ_KEY: unique_key})
            else:
                properties = _KEY_BEFORE + unique_key.encode() + _KEY_AFTER
            if order_key is not None or _has_properties(message) or half_of:
                own = _properties(message, half_of, now_ms, order_key)
                properties += encode_properties(own)
                if len(properties) > PROPERTIES_SENT_BYTES_MAX:
                    raise BadInput(
                        f"properties of {len(properties)} bytes, the added ones included; at "
                        f"most {PROPERTIES_SENT_BYTES_MAX} are allowed"
                    )
            record = encode_record(
                topic=topic_bytes(message.topic),
                queue_id=queue_id,
                body=body,
                properties=properties,
                flag=message.flag,
                sys_flag=sys_flag,
                born_timestamp_ms=now_ms,
                born_host=self._born_host,
            )
        except TypeError as error:
            raise BadMessage(
                f"message {unique_key} to topic {message.topic!r}: {error}; a body must be bytes, "
                "all other fields text"
            ) from error
        except BadInput as error:
            raise BadMessage(f"message {unique_key} to topic {message.topic!r}: {error}") from error
        return unique_key, record

    def encode_many(
        self, like: Message, queue_id: int, bodies: Sequence[bytes], order_key: str | None = None
    ) -> Many:
        """The records of `bodies`, each in a message that is otherwise `like` this one.

        Raises BadMessage naming the field and the bound.
        """
        pattern = self.pattern(like, queue_id, len(bodies), order_key)
        return Many(pattern.key_front, pattern.numbers, *self.fill(pattern, bodies))

    def pattern(
        self, like: Message, queue_id: int, count: int, order_key: str | None = None
    ) -> Pattern:
        """The pattern of `count` messages like this one; their keys are taken."""
        self._now_ms()
        front, numbers = self._keys.take(count)
        key = numbered_key(front, numbers.start)
        like = replace(like, body=b"", unique_key=key)
        _, record = self.encode(like, queue_id, order_key=order_key)
        return Pattern(front, numbers, record, record.rindex(key.encode()) + len(front))

    def fill(self, pattern: Pattern, bodies: Sequence[bytes]) -> tuple[bytes, Sequence[int]]:
        """The records of `bodies`, and where each ends."""
        sys_flags = None
        if self._compressor is not None:
            deflated = [self._compressor.deflate(body) for body in bodies]
            bodies = [bytes(body) for body, _ in deflated]
            sys_flags = [how for _, how in deflated]
        if len(bodies) < limits.ENCODED_TOGETHER_MIN or not tables.at_hand():
            return _fill_few(pattern, bodies, sys_flags)
        from dledger.remoting.record.many import encode_many  # noqa: PLC0415 - see `tables`

        numbers = pattern.numbers[: len(bodies)]
        record, digits_at = pattern.record, pattern.digits_at
        records, ends = encode_many(record, bodies, sys_flags, digits_at, numbers, NUMBER_DIGITS)
        return records, ends.tolist()

    def overhead_bytes(self, like: Message, order_key: str | None = None) -> int:
        """Bytes of a record of a message like this one besides its body. Raises BadMessage."""
        return self.pattern(like, 0, 1, order_key).size_bytes

    def _now_ms(self) -> int:
        """The time, to which keys are brought up."""
        now_ms = unix_ms()
        if now_ms != self._refreshed_ms:
            self._refreshed_ms = now_ms
            self._keys.refresh(now_ms)
        return now_ms
