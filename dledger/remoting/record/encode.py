"""Build the bytes of one record.

This runs once per message in the producer, so it is written for speed: one `struct` call for all
the fixed fields of the usual case (two IPv4 hosts), one join, one CRC.
"""

from __future__ import annotations

import struct

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


def encode_like(pattern: bytes, body: bytes, digits_at: int, digits: bytes) -> bytes:
    """A record that differs from `pattern`, which has no body, in its body and some digits."""
    extra = HOST_IPV6_EXTRA_BYTES if pattern[SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6 else 0
    body_at = BODY_AT + extra
    front = bytearray(pattern[:body_at])
    U32.pack_into(front, 0, len(pattern) + len(body))
    U32.pack_into(front, BODY_CRC_AT, crc32(body) & CRC_MASK)
    U32.pack_into(front, BODY_LENGTH_AT + extra, len(body))
    back = pattern[body_at:digits_at], digits, pattern[digits_at + len(digits) :]
    return b"".join((front, body, *back))


def place_record(
    buffer: bytearray, start: int, queue_offset: int, physical_offset: int, store_timestamp_ms: int
) -> None:
    """Fill in where a record went, which begins at `start` of `buffer`, and when it was stored."""
    _PLACE.pack_into(buffer, start + QUEUE_OFFSET_AT, queue_offset, physical_offset)
    is_ipv6 = buffer[start + SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6
    host_bytes = HOST_IPV6_BYTES if is_ipv6 else HOST_IPV4_BYTES
    I64.pack_into(buffer, start + BORN_HOST_AT + host_bytes, store_timestamp_ms)


def with_queue(records: bytes, queue_id: int) -> bytes:
    """The same records, one or more, for another queue of their topic."""
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
