"""The parts of a message besides its body: properties, ids, tags.

Properties are one string, `key 0x01 value 0x02 key 0x01 value 0x02 ...`; RocketMQ 4.9 leaves out
the last 0x02, so both are read. Names hold neither of the two
characters, and values not the second one. Layouts:
RocketMQ's MessageDecoder, MessageConst, MessageClientIDSetter.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import BadInput
from dledger.limits import PRIORITY_DIGITS_MAX, PROPERTIES_BYTES_MAX
from dledger.remoting.numbers import INT32_MAX

# Names of properties that brokers and clients act upon.
KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQ_KEY = "UNIQ_KEY"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
CLUSTER = "CLUSTER"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MSG_TYPE = "MSG_TYPE"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
LEFT_OUT = "LEFT_OUT"
"""Ours: the names of properties for which a copy of a message had no room."""
POP_CK = "POP_CK"
SHARDING_KEY = "__SHARDINGKEY"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
EXPIRES_AT_MS = "EXPIRES_AT_MS"
"""Ours: the time from which on brokers deliver the message no more."""
LARGE_BODY = "LARGE_BODY"
"""Ours: where the parts of a large body are; the message itself has none."""
LARGE_PART = "LARGE_PART"
"""Ours: which body a part belongs to."""
PRIORITY = "_SYS_MSG_PRIORITY_"
REPEAT_EVERY_MS = "REPEAT_EVERY_MS"
REPEAT_CRON = "REPEAT_CRON"
REPEAT_ZONE = "REPEAT_ZONE"
REPEATS_LEFT = "REPEATS_LEFT"
REPEAT_OF = "REPEAT_OF"
"""Ours: a timed message comes again, in periods or by a cron expression and a time zone, so often,
and each copy says whose it is."""
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
STAGED = "STAGED"
"""Ours: the body is records of a batch that waits: for whom, its epoch, batch and home."""

#: The properties that say when a message is to be delivered.
DELAYS = (DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, REPEAT_CRON)

#: Where a message belongs that waits elsewhere.
REAL_PLACE = (REAL_TOPIC, REAL_QID)

#: Properties that clients and brokers add by themselves, or for a call's arguments.
ADDED = frozenset(
    {
        *(UNIQ_KEY, WAIT, RETRY_TOPIC, ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, RECONSUME_TIME),
        *(MAX_RECONSUME_TIMES, REAL_TOPIC, REAL_QID, TRAN_MSG, PGROUP, CLUSTER, MIN_OFFSET),
        *(MAX_OFFSET, MSG_REGION, TRACE_ON, CORRELATION_ID, REPLY_TO_CLIENT, TTL, MSG_TYPE),
        *(PUSH_REPLY_TIME, POP_CK, SHARDING_KEY, TIMER_OUT_MS, EXPIRES_AT_MS, LARGE_BODY),
        *(LARGE_PART, PRIORITY, REPEAT_EVERY_MS, REPEAT_ZONE, REPEATS_LEFT, REPEAT_OF),
        *(CHECK_IMMUNITY_TIME, LEFT_OUT, STAGED, *DELAYS),
    }
)

# Topic and group names with a meaning.
DEFAULT_TOPIC = "TBW102"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
PARTS_PREFIX = "%PARTS%"
"""Before a topic's name: the topic with the parts of its large bodies."""
REPLY_SUFFIX = "_REPLY_TOPIC"
"""Added to the cluster's name: the topic that repliers send to."""

_NAME_END = "\x01"
_VALUE_END = "\x02"

_BATCH_FIXED = struct.Struct(">iiiii")
_BATCH_FIXED_BYTES = _BATCH_FIXED.size
_U16 = struct.Struct(">H")
_U16_BYTES = _U16.size
_PORT_BYTES = 4
_POSITION_BYTES = 8
#: An IPv4 or IPv6 address, a port, a position.
_OFFSET_ID_BYTES = (16, 28)


def properties_encode(properties: Mapping[str, str]) -> bytes:
    """Encode `properties` in their order. Raises BadInput for what can't be carried.

    A value may hold the end of a name, as those of stock senders may: it is read as it was. Raises
    TypeError for what is not text.
    """
    pieces = [
        piece
        for name, value in properties.items()
        for piece in (name, _NAME_END, value, _VALUE_END)
    ]
    written = "".join(pieces)
    if (
        written.count(_VALUE_END) != len(properties)
        or "" in properties
        or (written.count(_NAME_END) != len(properties) and any(_NAME_END in n for n in properties))
    ):
        raise BadInput(
            "a property's name is empty or holds \\x01, or its name or value holds \\x02: "
            f"{sorted(properties)}"
        )
    try:
        encoded = written.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"a property is not valid Unicode: {error}") from error
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise BadInput(f"properties of {len(encoded)} bytes are above {PROPERTIES_BYTES_MAX}")
    return encoded


def properties_decode(data: Buffer) -> dict[str, str]:
    """Decode a property string. Pieces without a name or a value are ignored; a later name wins.

    Raises BadInput if it is not UTF-8.
    """
    try:
        written = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"properties are not UTF-8: {error}") from error
    properties: dict[str, str] = {}
    for entry in written.split(_VALUE_END):
        name, separator, value = entry.partition(_NAME_END)
        if separator and value:
            properties[name] = value
    return properties


def keys_of(properties: Mapping[str, str]) -> list[str]:
    """A message's keys: RocketMQ has a blank between them, and nothing else."""
    return [key for key in properties.get(KEYS, "").split(" ") if key]


def properties_pieces(data: Buffer, without: Iterable[str]) -> list[bytes]:
    """The pieces of a property string, one for each property, without those of some names.

    Nothing else is read: so a copy of a message has all that the message had, however odd it is.
    """
    gone = tuple(f"{name}{_NAME_END}".encode() for name in without)
    pieces = [piece + b"\x02" for piece in bytes(data).split(b"\x02") if piece]
    return [piece for piece in pieces if not piece.startswith(gone)]


def properties_without(data: Buffer, names: Iterable[str]) -> bytes:
    """A property string without the properties of these names, and otherwise as it is."""
    return b"".join(properties_pieces(data, names))


def has_property(data: Buffer, name: str) -> bool:
    """Whether a property string has a value of this name."""
    wanted = f"{name}{_NAME_END}".encode()
    return any(
        piece.startswith(wanted) and len(piece) > len(wanted)
        for piece in bytes(data).split(b"\x02")
    )


def sender_crc(properties: Mapping[str, str], flag: int) -> int:
    """A checksum of what a sender says of a message beside its body: its flag, its keys, its tag,
    and the properties of its own. What clients and brokers add does not count."""
    own = sorted(
        f"{name}{_NAME_END}{value}{_VALUE_END}"
        for name, value in properties.items()
        if value and name not in ADDED
    )
    return crc32("".join(own).encode(), crc32((flag & 0xFFFFFFFF).to_bytes(4, "big")))


def priority_of(properties: Mapping[str, str]) -> int:
    """A message's priority, as Java reads it; -1 for none."""
    value = properties.get(PRIORITY, "")
    digits = value[1:] if value[:1] in ("+", "-") else value
    if not digits.isascii() or not digits.isdigit() or len(digits) > PRIORITY_DIGITS_MAX:
        return -1
    return min(max(int(value), -1), INT32_MAX)


@lru_cache(maxsize=4096)
def tags_code(tag: str) -> int:
    """Java's String.hashCode of a tag, signed 32 bits: what a consume queue filters by."""
    code = 0
    for (unit,) in struct.iter_unpack(">H", tag.encode("utf-16-be", "surrogatepass")):
        code = (31 * code + unit) & 0xFFFF_FFFF
    return code - (1 << 32) if code & 0x8000_0000 else code


@lru_cache(maxsize=4096)
def host_bytes(host: str, port: int) -> bytes:
    """A host as records hold it: 4 or 16 address bytes, then the port in 4. Raises BadInput."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise BadInput(f"{host!r} is not an IP address") from error
    return address.packed + port.to_bytes(_PORT_BYTES, "big")


def host_decode(data: Buffer) -> tuple[str, int]:
    """The inverse of `host_bytes`: (address, port)."""
    address = ipaddress.ip_address(bytes(data[:-_PORT_BYTES]))
    return str(address), int.from_bytes(data[-_PORT_BYTES:], "big")


def offset_message_id(store_host: bytes, position: int) -> str:
    """The id that names a stored record: upper-case hex of its store host and commit-log offset."""
    return offset_message_ids(store_host, [position])[0]


def offset_message_ids(store_host: bytes, positions: Iterable[int]) -> list[str]:
    """The ids of several records of one broker."""
    host = store_host.hex().upper()
    return [f"{host}{position:016X}" for position in positions]


def offset_message_id_decode(message_id: str) -> tuple[str, int, int]:
    """(host, port, commit-log offset) of an offset message id. Raises BadInput."""
    try:
        data = bytes.fromhex(message_id)
    except ValueError as error:
        raise BadInput(f"{message_id!r} is not an offset message id: not hexadecimal") from error
    if len(data) not in _OFFSET_ID_BYTES:
        raise BadInput(f"{message_id!r} is not an offset message id: not 32 or 56 characters")
    host, port = host_decode(data[:-_POSITION_BYTES])
    return host, port, int.from_bytes(data[-_POSITION_BYTES:], "big")


class BatchItem(NamedTuple):
    """A message of a SEND_BATCH_MESSAGE body; `properties` are still encoded."""

    body: Buffer
    properties: bytes = b""
    flag: int = 0


def batch_encode(items: Iterable[BatchItem]) -> bytes:
    """Encode the body of SEND_BATCH_MESSAGE. Magic and CRC are 0, as stock clients write them."""
    pieces: list[Buffer] = []
    for item in items:
        size = _BATCH_FIXED.size + len(item.body) + _U16.size + len(item.properties)
        pieces.append(_BATCH_FIXED.pack(size, 0, 0, item.flag, len(item.body)))
        pieces.append(item.body)
        pieces.append(_U16.pack(len(item.properties)))
        pieces.append(item.properties)
    return b"".join(pieces)


def batch_decode(data: Buffer, messages_max: int | None = None) -> list[BatchItem]:
    """The messages of a SEND_BATCH_MESSAGE body, up to so many; bodies are views.

    Raises BadInput if malformed.
    """
    view = memoryview(data)
    items: list[BatchItem] = []
    position, length = 0, len(view)
    try:
        while position < length and len(items) != messages_max:
            size, _magic, _crc, flag, body_bytes = _BATCH_FIXED.unpack_from(view, position)
            body_start = position + _BATCH_FIXED_BYTES
            body_end = body_start + body_bytes
            (properties_bytes,) = _U16.unpack_from(view, body_end)
            properties_start = body_end + _U16_BYTES
            end = properties_start + properties_bytes
            if body_bytes < 0 or end != position + size or end > length:
                raise BadInput(
                    f"batch item {len(items)} says {size} bytes, holds a body of {body_bytes} and "
                    f"properties of {properties_bytes}, with {length - position} left"
                )
            properties = bytes(view[properties_start:end])
            items.append(BatchItem(view[body_start:body_end], properties, flag))
            position = end
    except struct.error as error:
        raise BadInput(f"batch item {len(items)} is cut off: {error}") from error
    return items
