"""Many records at once: check them, and fill in where they went.

A broker's work per message decides how fast a group can be, so nothing here is done record by
record except finding where each begins and its body's CRC. The fixed fields of all records are
gathered into two tables (before and after the born host, whose length may differ), checked column
by column, and what depends on the place in the log is scattered back into the records' own bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dledger.checksum import crc32
from dledger.errors import BadInput, RecordError
from dledger.limits import MESSAGE_BODY_BYTES_MAX, PROPERTIES_BYTES_MAX
from dledger.remoting.command import Buffer
from dledger.remoting.message import UNIQ_KEY, properties_decode
from dledger.remoting.record.layout import (
    BORN_HOST_AT,
    BORN_HOST_IPV6,
    COMPRESSED,
    COMPRESSION_TYPE,
    CRC_MASK,
    HOST_IPV4_BYTES,
    HOST_IPV6_EXTRA_BYTES,
    I64,
    MAGIC,
    MULTI_TAGS,
    QUEUE_OFFSET_AT,
    RECORD_OVERHEAD_BYTES,
    SIZE_AND_MAGIC,
)
from dledger.remoting.record.view import Record

_Ints = npt.NDArray[np.int64]

#: A producer compresses and says where it is; everything else is the broker's to set.
_SYS_FLAGS_ALLOWED = COMPRESSED | MULTI_TAGS | BORN_HOST_IPV6 | COMPRESSION_TYPE

_FRONT = np.dtype(
    {
        "names": ["body_crc", "queue_id", "sys_flag"],
        "formats": [">u4", ">i4", ">i4"],
        "offsets": [8, 12, 36],
        "itemsize": BORN_HOST_AT,
    }
)
_STORE_FIELDS_BYTES = I64.size + HOST_IPV4_BYTES
_BODY_LENGTH_AT = BORN_HOST_AT + HOST_IPV4_BYTES + _STORE_FIELDS_BYTES + 12
_BODY_AT = _BODY_LENGTH_AT + 4


def walk(buffer: Buffer) -> list[int]:
    """Return where each record of `buffer` begins. Sizes and magic are checked, nothing else.

    Raises RecordError, naming the record's number and place, if the records don't fill the buffer.
    """
    starts: list[int] = []
    append, unpack_from = starts.append, SIZE_AND_MAGIC.unpack_from
    position, end = 0, len(buffer)
    try:
        while position < end:
            size, magic = unpack_from(buffer, position)
            if magic != MAGIC or size < RECORD_OVERHEAD_BYTES:
                raise RecordError(
                    f"record {len(starts)} at byte {position} has size {size} and magic "
                    f"{magic:#010x}; expected at least {RECORD_OVERHEAD_BYTES} and {MAGIC:#010x}"
                )
            append(position)
            position += size
    except struct.error:
        position = end + 1
    if position != end:
        raise RecordError(f"record {max(len(starts) - 1, 0)} reaches beyond the {end} bytes given")
    return starts


class RecordBatch:
    """Checked records of one topic, in runs of one queue each, in a buffer that `place` fills in.

    `starts` and `sizes` are bytes, one item a record, `starts` from the buffer's beginning.
    """

    __slots__ = ("_store_fields_at", "_within_run", "buffer", "run_counts", "sizes", "starts")

    def __init__(
        self,
        buffer: bytearray | memoryview,
        starts: _Ints,
        sizes: _Ints,
        run_counts: _Ints,
        store_fields_at: _Ints,
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.sizes = sizes
        self.run_counts = run_counts
        self._store_fields_at = store_fields_at
        run_starts = np.cumsum(run_counts) - run_counts
        self._within_run = np.arange(len(starts)) - np.repeat(run_starts, run_counts)

    @classmethod
    def parse(cls, buffer: Buffer, topic: bytes, runs: Sequence[tuple[int, int]]) -> RecordBatch:
        """Check the records in `buffer`; `runs` are (queue id, record count) in order.

        Checked are sizes, magic, topic, queue id, system flag, lengths and body CRC. A buffer that
        can't be written to is copied, since `place` writes. Raises RecordError naming the number of
        the record (from 0) and the field.
        """
        if isinstance(buffer, bytes) or (isinstance(buffer, memoryview) and buffer.readonly):
            buffer = bytearray(buffer)
        starts = np.array(walk(buffer), np.int64)
        run_counts = _run_counts(runs, len(starts))
        sizes = np.diff(starts, append=len(buffer))
        data = np.frombuffer(buffer, np.uint8)

        front = _gather(data, starts, BORN_HOST_AT).view(_FRONT)[:, 0]
        queue_ids = np.repeat(np.array([queue_id for queue_id, _ in runs], np.int64), run_counts)
        _require(front["queue_id"] == queue_ids, "queue id", front["queue_id"])
        _require(front["sys_flag"] & ~_SYS_FLAGS_ALLOWED == 0, "system flag", front["sys_flag"])
        extra = np.where(front["sys_flag"] & BORN_HOST_IPV6, HOST_IPV6_EXTRA_BYTES, 0)
        least = RECORD_OVERHEAD_BYTES + extra + len(topic)
        _require(sizes >= least, "size", sizes)

        body_lengths = _gather(data, starts + extra + _BODY_LENGTH_AT, 4).view(">u4")[:, 0]
        body_lengths = body_lengths.astype(np.int64)
        within = (body_lengths <= sizes - least) & (body_lengths <= MESSAGE_BODY_BYTES_MAX)
        _require(within, "body length", body_lengths)
        body_starts = starts + extra + _BODY_AT
        body_ends = body_starts + body_lengths
        _check_tails(data, body_ends, topic, sizes - least - body_lengths)
        _check_bodies(buffer, body_starts, body_ends, front["body_crc"])
        store_fields_at = starts + extra + BORN_HOST_AT + HOST_IPV4_BYTES
        return cls(buffer, starts, sizes, run_counts, store_fields_at)

    @property
    def count(self) -> int:
        """How many records there are; at least one."""
        return len(self.starts)

    @property
    def first_unique_key(self) -> str | None:
        """The UNIQ_KEY property of the first record: what a repeated request is known by."""
        try:
            return properties_decode(Record(self.buffer).properties).get(UNIQ_KEY)
        except BadInput as error:
            raise RecordError(f"record 0: {error}") from error

    def place(
        self,
        position: int,
        queue_offsets: Sequence[int],
        store_timestamp_ms: int,
        store_host: bytes,
    ) -> None:
        """Fill in where the records went, in their own bytes.

        `position` is the first one's physical offset, `queue_offsets` the queue offset of each
        run's first record, `store_host` 8 bytes (`message.host_bytes` of an IPv4 address).
        """
        if len(store_host) != HOST_IPV4_BYTES:
            raise RecordError(f"a store host of {len(store_host)} bytes; {HOST_IPV4_BYTES} fit")
        data = np.frombuffer(self.buffer, np.uint8)
        offsets = np.empty((self.count, 2), ">i8")
        offsets[:, 0] = np.repeat(np.array(queue_offsets, np.int64), self.run_counts)
        offsets[:, 0] += self._within_run
        offsets[:, 1] = self.starts + position
        data[_indexes(self.starts + QUEUE_OFFSET_AT, 16)] = offsets.view(np.uint8)
        stored = I64.pack(store_timestamp_ms) + store_host
        data[_indexes(self._store_fields_at, _STORE_FIELDS_BYTES)] = np.frombuffer(stored, np.uint8)


def _indexes(starts: _Ints, width: int) -> _Ints:
    """Index of every byte of fields `width` bytes wide: shape (len(starts), width)."""
    return starts[:, np.newaxis] + np.arange(width)


def _gather(data: npt.NDArray[np.uint8], starts: _Ints, width: int) -> npt.NDArray[np.uint8]:
    return data[_indexes(starts, width)]


def _run_counts(runs: Sequence[tuple[int, int]], count: int) -> _Ints:
    """Records in each run. Raises RecordError unless they add up to `count`."""
    counts = [run_count for _, run_count in runs]
    if not counts or min(counts) < 1 or sum(counts) != count:
        raise RecordError(f"runs of {sum(counts)} records in all, but the body holds {count}")
    return np.array(counts, np.int64)


def _require(holds: npt.NDArray[np.bool_], field: str, values: npt.NDArray[np.integer]) -> None:
    """Raise RecordError for the first record for which `holds` is false."""
    if not holds.all():
        number = int(holds.argmin())
        raise RecordError(f"record {number}: the {field} can't be {int(values[number])}")


def _check_tails(
    data: npt.NDArray[np.uint8], body_ends: _Ints, topic: bytes, properties_room: _Ints
) -> None:
    """Check what lies behind the bodies: topic, and properties up to the record's end."""
    tails = _gather(data, body_ends, 1 + len(topic) + 2)
    expected = np.frombuffer(bytes((len(topic),)) + topic, np.uint8)
    same_topic = (tails[:, :-2] == expected).all(axis=1)
    _require(same_topic, f"topic is not {topic!r}: its length byte", tails[:, 0])
    lengths = tails[:, -2].astype(np.int64) << 8 | tails[:, -1]
    fits = (lengths == properties_room) & (lengths <= PROPERTIES_BYTES_MAX)
    _require(fits, "properties length", lengths)


def _check_bodies(
    buffer: Buffer, body_starts: _Ints, body_ends: _Ints, body_crcs: npt.NDArray[np.uint32]
) -> None:
    """Compare every body with the CRC that its record says."""
    view = memoryview(buffer)
    found = [
        crc32(view[start:end]) & CRC_MASK
        for start, end in zip(body_starts.tolist(), body_ends.tolist(), strict=True)
    ]
    _require(np.array(found, np.int64) == body_crcs, "body CRC", body_crcs)
