"""Checks and reads a single record: as `batch` does for many, without numpy's fixed cost.

A producer that waits for each acknowledgement sends entries of one record, and waits while the
broker checks it: that takes 5 µs here, and 270 µs in `batch`, on the same slow core (KiB bodies,
2026-11-28). So these checks are written a second time. This module takes only records that are
right in every field; all others go to `RecordBatch`, which says what is wrong with them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.limits import MESSAGE_BODY_BYTES_MAX, PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX
from dledger.remoting.record.batch import SYS_FLAGS_ALLOWED, RecordBatch, writable
from dledger.remoting.record.layout import (
    BODY_AT,
    BODY_CRC_AT,
    BODY_LENGTH_AT,
    BORN_HOST_IPV6,
    CRC_MASK,
    FRONT,
    HOST_IPV4_BYTES,
    I64,
    MAGIC,
    OFFSETS,
    QUEUE_OFFSET_AT,
    RECORD_OVERHEAD_BYTES,
    STORE_TIMESTAMP_AT,
    U16,
    U32,
)
from dledger.remoting.record.view import first_unique_key

_STORED = struct.Struct(f"{I64.format}{HOST_IPV4_BYTES}s")
_FLAGS_HERE = SYS_FLAGS_ALLOWED & ~BORN_HOST_IPV6


class LoneRecord:
    """A checked record in a buffer that `place` fills in; the same face as `RecordBatch`."""

    __slots__ = ("buffer",)

    count = 1
    starts: Sequence[int] = (0,)

    def __init__(self, buffer: bytearray | memoryview) -> None:
        self.buffer = buffer

    @property
    def body_crcs(self) -> list[int]:
        """The CRC that the record says of its body."""
        return [U32.unpack_from(self.buffer, BODY_CRC_AT)[0]]

    def larger_than(self, size_bytes: int) -> list[int]:
        """Where records of more than so many bytes begin."""
        return [0] if len(self.buffer) > size_bytes else []

    @property
    def first_unique_key(self) -> str | None:
        """The record's UNIQ_KEY property: it identifies a repeated request."""
        return first_unique_key(self.buffer)

    def place(
        self,
        position: int,
        queue_offsets: Sequence[int],
        store_timestamp_ms: int,
        store_host: bytes,
    ) -> None:
        """Fill in where the record went; see `RecordBatch.place`."""
        OFFSETS.pack_into(self.buffer, QUEUE_OFFSET_AT, queue_offsets[0], position)
        _STORED.pack_into(self.buffer, STORE_TIMESTAMP_AT, store_timestamp_ms, store_host)


def parse_records(
    buffer: Buffer, topic: bytes, runs: Sequence[tuple[int, int]]
) -> RecordBatch | LoneRecord:
    """Check the records in `buffer`, as `RecordBatch` does. Raises RecordError."""
    if len(runs) == 1 and runs[0][1] == 1 and _is_record(buffer, topic, runs[0][0]):
        return LoneRecord(writable(buffer))
    return RecordBatch(buffer, topic, runs)


def _is_record(buffer: Buffer, topic: bytes, queue_id: int) -> bool:
    """Whether the buffer is one record of IPv4 hosts, of this topic and queue, right in all."""
    if len(buffer) < RECORD_OVERHEAD_BYTES:
        return False
    size, magic, body_crc, record_queue_id, _, _, _, sys_flag, _ = FRONT.unpack_from(buffer)
    body_length: int = U32.unpack_from(buffer, BODY_LENGTH_AT)[0]
    properties_length = size - RECORD_OVERHEAD_BYTES - body_length - len(topic)
    if (
        magic != MAGIC
        or size != len(buffer)
        or record_queue_id != queue_id
        or queue_id < 0
        or sys_flag & ~_FLAGS_HERE
        or len(topic) > TOPIC_BYTES_MAX
        or body_length > MESSAGE_BODY_BYTES_MAX
        or not 0 <= properties_length <= PROPERTIES_BYTES_MAX
    ):
        return False
    view = memoryview(buffer)
    body_end = BODY_AT + body_length
    topic_end = body_end + 1 + len(topic)
    return (
        len(topic) == view[body_end] > 0
        and view[body_end + 1 : topic_end] == topic
        and U16.unpack_from(view, topic_end)[0] == properties_length
        and bytes(view[topic_end + U16.size :]).isascii()
        and crc32(view[BODY_AT:body_end]) & CRC_MASK == body_crc
    )
