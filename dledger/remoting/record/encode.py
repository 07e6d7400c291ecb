"""Build the bytes of records.

This runs once per message, so it is written for speed: one `struct` call for all the fixed fields,
one join, one CRC. A broker makes the records of what stock clients send, often of many messages for
one queue: those go through one loop. It spells the fields a second time: through one function for
both a message would take 22 instructions more, where the loop takes a hundred for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import RecordError
from dledger.limits import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX
from dledger.remoting.numbers import INT32_MAX
from dledger.remoting.record.layout import (
    BACK,
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_HOST_IPV6,
    CRC_MASK,
    FRONT,
    HOST_BITS,
    HOST_IPV4_BYTES,
    HOST_IPV6_BYTES,
    I32,
    I64,
    MAGIC,
    OFFSETS,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_OVERHEAD_BYTES,
    STORE_HOST_IPV6,
    SYS_FLAG_AT,
    SYS_FLAG_LOW_BYTE_AT,
    U32,
    body_at,
)
from dledger.remoting.record.view import walk

#: By the length of a host: the flag bits of such a born host and of such a store host.
_HOSTS = {HOST_IPV4_BYTES: (0, 0), HOST_IPV6_BYTES: (BORN_HOST_IPV6, STORE_HOST_IPV6)}
#: By the length of the store host, then of the born host: a function that packs all fields before
#: the body; a record's size besides body, topic and properties; and the flag bits of these hosts.
_FIXED = {
    store: {
        born: (
            struct.Struct(f"{FRONT.format}{born}sq{store}s{BACK.format[1:]}").pack,
            RECORD_OVERHEAD_BYTES + born + store - 2 * HOST_IPV4_BYTES,
            born_bit | store_bit,
        )
        for born, (born_bit, _) in _HOSTS.items()
    }
    for store, (_, store_bit) in _HOSTS.items()
}
_NO_HOST_BITS = ~HOST_BITS
#: Where the store timestamp lies, by the flag bit of the born host.
_STORED_AT = {bit: BORN_HOST_AT + length for length, (bit, _) in _HOSTS.items()}
_SHORT = struct.Struct(">h")
"""The length of the properties: Java's short, so that longer ones fail."""
_NO_HOST = bytes(HOST_IPV4_BYTES)
_LENGTH_BYTE = tuple(bytes((length,)) for length in range(TOPIC_BYTES_MAX + 1))

#: Body, properties, born timestamp and host, flag, system flag, reconsume times, prepared offset.
Fields = tuple[Buffer, bytes, int, bytes, int, int, int, int]


def encode_record(
    *,
    topic: bytes,
    queue_id: int,
    body: Buffer,
    properties: bytes,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp_ms: int,
    born_host: bytes,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    store_timestamp_ms: int = 0,
    store_host: bytes = _NO_HOST,
) -> bytes:
    """Encode one message as a stored record. Hosts are 8 (IPv4) or 20 (IPv6) bytes
    (`message.host_bytes`).

    The flag bits that say which follow from the hosts. Raises RecordError if a part is too long or
    a number too wide.
    """
    _check_topic(topic)
    pack, size, host_bits = _FIXED[len(store_host)][len(born_host)]
    try:
        fixed = pack(
            size + len(body) + len(topic) + len(properties),
            MAGIC,
            crc32(body) & CRC_MASK,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag & _NO_HOST_BITS | host_bits,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            prepared_offset,
            len(body),
        )
        behind = _LENGTH_BYTE[len(topic)], topic, _SHORT.pack(len(properties)), properties
    except struct.error as error:
        numbers = queue_id, flag, sys_flag, born_timestamp_ms, reconsume_times
        raise _too_wide(len(properties), *numbers) from error
    return b"".join((fixed, body, *behind))


def encode_records(
    messages: Iterable[Fields], topic: bytes, queue_ids: Iterable[int], store_host: bytes
) -> tuple[bytearray, list[int]]:
    """Encode a topic's messages back to back; their places are filled in later. Returns the bytes,
    and where each record begins. Raises RecordError as `encode_record` does."""
    pieces: list[Buffer] = []
    starts: list[int] = []
    _check_topic(topic)
    named, topic_bytes, at = _LENGTH_BYTE[len(topic)] + topic, len(topic), 0
    fixed_of = _FIXED[len(store_host)]
    for message, queue_id in zip(messages, queue_ids, strict=True):
        body, properties, born_ms, born_host, flag, sys_flag, times, prepared = message
        pack, size, host_bits = fixed_of[len(born_host)]
        size += len(body) + topic_bytes + len(properties)
        starts.append(at)
        at += size
        try:
            fixed = pack(
                size,
                MAGIC,
                crc32(body) & CRC_MASK,
                queue_id,
                flag,
                0,
                0,
                sys_flag & _NO_HOST_BITS | host_bits,
                born_ms,
                born_host,
                0,
                store_host,
                times,
                prepared,
                len(body),
            )
            pieces += fixed, body, named, _SHORT.pack(len(properties)), properties
        except struct.error as error:
            numbers = queue_id, flag, sys_flag, born_ms, times
            raise _too_wide(len(properties), *numbers) from error
    return bytearray().join(pieces), starts


def _check_topic(topic: bytes) -> None:
    if not 0 < len(topic) <= TOPIC_BYTES_MAX:
        raise RecordError(f"a topic of {len(topic)} bytes; allowed are 1 to {TOPIC_BYTES_MAX}")


def _too_wide(
    properties_bytes: int, queue_id: int, flag: int, sys_flag: int, born_ms: int, times: int
) -> RecordError:
    return RecordError(
        f"a record can't hold properties of {properties_bytes} bytes (at most "
        f"{PROPERTIES_BYTES_MAX}), queue id {queue_id}, flag {flag}, system flag {sys_flag}, born "
        f"timestamp {born_ms} and reconsume times {times}: one of them is too large"
    )


def encode_like(
    pattern: bytes, body: bytes, digits_at: int, digits: bytes, sys_flag: int = 0
) -> bytes:
    """A record that differs from `pattern`, which has no body, in its body, some digits, and bits
    of its flag."""
    at = body_at(pattern)
    front = bytearray(pattern[:at])
    U32.pack_into(front, 0, len(pattern) + len(body))
    U32.pack_into(front, BODY_CRC_AT, crc32(body) & CRC_MASK)
    U32.pack_into(front, at - U32.size, len(body))
    if sys_flag:
        U32.pack_into(front, SYS_FLAG_AT, U32.unpack_from(pattern, SYS_FLAG_AT)[0] | sys_flag)
    back = pattern[at:digits_at], digits, pattern[digits_at + len(digits) :]
    return b"".join((front, body, *back))


def place_records(
    buffer: bytearray,
    starts: Iterable[int],
    first_offset: int,
    first_position: int,
    store_timestamp_ms: int,
) -> None:
    """Fill in where records of one queue went, which begin at `starts`, and when they were stored.
    `first_position` is that of the buffer."""
    stored = I64.pack(store_timestamp_ms)
    pack, offset = OFFSETS.pack_into, first_offset
    for start in starts:
        pack(buffer, start + QUEUE_OFFSET_AT, offset, first_position + start)
        at = start + _STORED_AT[buffer[start + SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6]
        buffer[at : at + 8] = stored
        offset += 1


def with_queue(records: bytes, queue_id: int) -> bytes:
    """Records, one or more, changed to another queue of their topic."""
    copy = bytearray(records)
    for start in walk(copy):
        I32.pack_into(copy, start + QUEUE_ID_AT, queue_id)
    return bytes(copy)


def with_reconsume_times(record: Buffer, times: int) -> bytes:
    """A copy of a record that was delivered so often more. The body's CRC does not cover that."""
    copy = bytearray(record)
    at = body_at(copy) - BACK.size
    present = I32.unpack_from(copy, at)[0]
    I32.pack_into(copy, at, min(max(present, 0) + times, INT32_MAX))
    return bytes(copy)
