"""Build the bytes of records.

This runs once per message, so it is written for speed: one `struct` call for all the fixed fields
of the usual case (two IPv4 hosts), one join, one CRC. A broker makes the records of what stock
clients send, often of many messages for one queue: those go through one loop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import RecordError
from dledger.limits import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX
from dledger.remoting.numbers import INT32_MAX
from dledger.remoting.record.layout import (
    BODY_AT,
    BODY_CRC_AT,
    BODY_LENGTH_AT,
    BORN_HOST_AT,
    BORN_HOST_IPV6,
    CRC_MASK,
    HOST_BITS,
    HOST_IPV4_BYTES,
    HOST_IPV6_BYTES,
    HOST_IPV6_EXTRA_BYTES,
    I32,
    I64,
    MAGIC,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_OVERHEAD_BYTES,
    STORE_HOST_IPV6,
    SYS_FLAG_AT,
    SYS_FLAG_LOW_BYTE_AT,
    U16,
    U32,
)
from dledger.remoting.record.view import walk

_FIXED_IPV4 = struct.Struct(">IIIiiqqiq8sq8siqI")
_FRONT = struct.Struct(">IIIiiqqiq")
_BACK = struct.Struct(">iqI")
_PLACE = struct.Struct(">qq")
_NO_HOST = bytes(HOST_IPV4_BYTES)
_STORE_TIMESTAMP_AT = BORN_HOST_AT + HOST_IPV4_BYTES

#: Body, properties, born timestamp and host, flag, system flag, reconsume times, prepared offset.
Fields = tuple[Buffer, bytes, int, bytes, int, int, int, int]
_LENGTH_BYTE = tuple(bytes((length,)) for length in range(TOPIC_BYTES_MAX + 1))


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
    """Encode one record. Hosts are 8 (IPv4) or 20 (IPv6) bytes (`message.host_bytes`).

    The flag bits that say which follow from the hosts. Raises RecordError if a part is too long or
    a number too wide.
    """
    if not 0 < len(topic) <= TOPIC_BYTES_MAX or len(properties) > PROPERTIES_BYTES_MAX:
        raise RecordError(
            f"a topic of {len(topic)} bytes or properties of {len(properties)} bytes: "
            f"allowed are 1 to {TOPIC_BYTES_MAX} and 0 to {PROPERTIES_BYTES_MAX}"
        )
    size = RECORD_OVERHEAD_BYTES + len(body) + len(topic) + len(properties)
    body_crc = crc32(body) & CRC_MASK
    sys_flag &= ~HOST_BITS
    try:
        if len(born_host) == HOST_IPV4_BYTES and len(store_host) == HOST_IPV4_BYTES:
            fixed = _FIXED_IPV4.pack(
                size,
                MAGIC,
                body_crc,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp_ms,
                born_host,
                store_timestamp_ms,
                store_host,
                reconsume_times,
                prepared_offset,
                len(body),
            )
        else:
            size += len(born_host) + len(store_host) - 2 * HOST_IPV4_BYTES
            if len(born_host) == HOST_IPV6_BYTES:
                sys_flag |= BORN_HOST_IPV6
            if len(store_host) == HOST_IPV6_BYTES:
                sys_flag |= STORE_HOST_IPV6
            front = _FRONT.pack(
                size,
                MAGIC,
                body_crc,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp_ms,
            )
            back = _BACK.pack(reconsume_times, prepared_offset, len(body))
            fixed = b"".join((front, born_host, I64.pack(store_timestamp_ms), store_host, back))
    except struct.error as error:
        raise RecordError(
            f"a record can't hold queue id {queue_id}, flag {flag}, system flag {sys_flag}, born "
            f"timestamp {born_timestamp_ms} and reconsume times {reconsume_times}: {error}"
        ) from error
    return b"".join(
        (
            fixed,
            body,
            _LENGTH_BYTE[len(topic)],
            topic,
            U16.pack(len(properties)),
            properties,
        )
    )


def encode_records(
    messages: Sequence[Fields], topic: bytes, queue_ids: Iterable[int], store_host: bytes
) -> tuple[bytearray, list[int]]:
    """Encode a topic's messages back to back; their places are filled in later. Returns the bytes,
    and where each record begins. Raises RecordError as `encode_record` does."""
    queue_of_each = [*queue_ids]
    if 0 < len(topic) <= TOPIC_BYTES_MAX and len(store_host) == HOST_IPV4_BYTES:
        found = _encode_plain(messages, topic, queue_of_each, store_host)
        if found is not None:
            return found
    buffer, starts = bytearray(), []
    for message, queue_id in zip(messages, queue_of_each, strict=True):
        body, properties, born_ms, born_host, flag, sys_flag, times, prepared = message
        starts.append(len(buffer))
        buffer += encode_record(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp_ms=born_ms,
            born_host=born_host,
            reconsume_times=times,
            prepared_offset=prepared,
            store_host=store_host,
        )
    return buffer, starts


def _encode_plain(
    messages: Sequence[Fields], topic: bytes, queue_ids: Sequence[int], store_host: bytes
) -> tuple[bytearray, list[int]] | None:
    """Encode messages of IPv4 hosts with nothing too long or too wide; None if there are others."""
    pieces: list[Buffer] = []
    starts: list[int] = []
    named = _LENGTH_BYTE[len(topic)] + topic
    besides, at = RECORD_OVERHEAD_BYTES + len(topic), 0
    try:
        for message, queue_id in zip(messages, queue_ids, strict=True):
            body, properties, born_ms, born_host, flag, sys_flag, times, prepared = message
            if len(born_host) != HOST_IPV4_BYTES or len(properties) > PROPERTIES_BYTES_MAX:
                return None
            starts.append(at)
            size = besides + len(body) + len(properties)
            at += size
            fixed = _FIXED_IPV4.pack(
                size,
                MAGIC,
                crc32(body) & CRC_MASK,
                queue_id,
                flag,
                0,
                0,
                sys_flag & ~HOST_BITS,
                born_ms,
                born_host,
                0,
                store_host,
                times,
                prepared,
                len(body),
            )
            pieces += fixed, body, named, U16.pack(len(properties)), properties
    except struct.error:
        return None
    return bytearray().join(pieces), starts


def encode_like(
    pattern: bytes, body: bytes, digits_at: int, digits: bytes, sys_flag: int = 0
) -> bytes:
    """A record that differs from `pattern`, which has no body, in its body, some digits, and bits
    of its flag."""
    extra = HOST_IPV6_EXTRA_BYTES if pattern[SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6 else 0
    body_at = BODY_AT + extra
    front = bytearray(pattern[:body_at])
    U32.pack_into(front, 0, len(pattern) + len(body))
    U32.pack_into(front, BODY_CRC_AT, crc32(body) & CRC_MASK)
    U32.pack_into(front, BODY_LENGTH_AT + extra, len(body))
    if sys_flag:
        U32.pack_into(front, SYS_FLAG_AT, U32.unpack_from(pattern, SYS_FLAG_AT)[0] | sys_flag)
    back = pattern[body_at:digits_at], digits, pattern[digits_at + len(digits) :]
    return b"".join((front, body, *back))


def place_records(
    buffer: bytearray,
    starts: Sequence[int],
    first_offset: int,
    first_position: int,
    store_timestamp_ms: int,
) -> None:
    """`place_record` for records of one queue. `first_position` is that of the buffer."""
    stored = I64.pack(store_timestamp_ms)
    pack, offset = _PLACE.pack_into, first_offset
    for start in starts:
        if buffer[start + SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6:
            place_record(buffer, start, offset, first_position + start, store_timestamp_ms)
        else:
            pack(buffer, start + QUEUE_OFFSET_AT, offset, first_position + start)
            at = start + _STORE_TIMESTAMP_AT
            buffer[at : at + 8] = stored
        offset += 1


def place_record(
    buffer: bytearray, start: int, queue_offset: int, physical_offset: int, store_timestamp_ms: int
) -> None:
    """Fill in where a record went, which begins at `start` of `buffer`, and when it was stored."""
    _PLACE.pack_into(buffer, start + QUEUE_OFFSET_AT, queue_offset, physical_offset)
    is_ipv6 = buffer[start + SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6
    host_bytes = HOST_IPV6_BYTES if is_ipv6 else HOST_IPV4_BYTES
    I64.pack_into(buffer, start + BORN_HOST_AT + host_bytes, store_timestamp_ms)


def with_queue(records: bytes, queue_id: int) -> bytes:
    """Records, one or more, changed to another queue of their topic."""
    copy = bytearray(records)
    for start in walk(copy):
        I32.pack_into(copy, start + QUEUE_ID_AT, queue_id)
    return bytes(copy)


def with_reconsume_times(record: Buffer, times: int) -> bytes:
    """A copy of a record that was delivered so often more. The body's CRC does not cover that."""
    copy = bytearray(record)
    flags = copy[SYS_FLAG_LOW_BYTE_AT]
    hosts = HOST_IPV6_BYTES if flags & BORN_HOST_IPV6 else HOST_IPV4_BYTES
    hosts += HOST_IPV6_BYTES if flags & STORE_HOST_IPV6 else HOST_IPV4_BYTES
    at = BORN_HOST_AT + hosts + I64.size
    present = I32.unpack_from(copy, at)[0]
    I32.pack_into(copy, at, min(max(present, 0) + times, INT32_MAX))
    return bytes(copy)
