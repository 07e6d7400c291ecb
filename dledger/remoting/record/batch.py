"""Many records at once: check them, and fill in where they went.

A broker's work per message decides how fast a group can be. So only two things are done record by
record: finding where each begins, unless all are of one size, and its body's CRC. The fixed fields
of all records are gathered into two tables (before and after the born host, whose length may
differ), checked column by column, and what depends on the place in the log is scattered back into
the records' own bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import RecordError
from dledger.limits import (
    MESSAGE_BODY_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    QUEUE_ID_MAX,
    TEXT_WIDTH_BYTES_MAX,
    TOPIC_BYTES_MAX,
)
from dledger.remoting.record.columns import Ints, RecordColumns, overlay, tails, topic_field
from dledger.remoting.record.layout import (
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_HOST_IPV6,
    COMPRESSED,
    COMPRESSION_TYPE,
    CRC_MASK,
    HOST_IPV4_BYTES,
    I64,
    MAGIC,
    MULTI_TAGS,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_OVERHEAD_BYTES,
    SIZE_AND_MAGIC,
)
from dledger.remoting.record.view import first_unique_key, walk

#: The flags that a producer may set: compression, and the kind of its address. The broker sets all
#: others.
SYS_FLAGS_ALLOWED = COMPRESSED | MULTI_TAGS | BORN_HOST_IPV6 | COMPRESSION_TYPE

_ASCII_END = 0x80

_U8 = np.dtype(np.uint8)
_U32 = np.dtype(">u4")
_I32 = np.dtype(">i4")
_I64 = np.dtype(">i8")
_HOST = np.dtype(f"V{HOST_IPV4_BYTES}")


class RecordBatch:
    """Checked records of one topic, in runs of one queue each; `place` fills in their buffer."""

    __slots__ = (
        "_properties_at",
        "_run_counts",
        "_sizes",
        "_starts",
        "_store_fields_at",
        "_within_run",
        "buffer",
    )

    def __init__(
        self,
        buffer: bytearray | memoryview,
        starts: Ints,
        sizes: Ints,
        run_counts: Ints,
        store_fields_at: Ints,
        properties_at: Ints,
    ) -> None:
        self.buffer = buffer
        self._starts = starts
        self._sizes = sizes
        self._run_counts = run_counts
        self._store_fields_at = store_fields_at
        self._properties_at = properties_at
        run_starts = np.cumsum(run_counts) - run_counts
        self._within_run = np.arange(len(starts)) - np.repeat(run_starts, run_counts)

    @classmethod
    def parse(cls, buffer: Buffer, topic: bytes, runs: Sequence[tuple[int, int]]) -> RecordBatch:
        """Check the records in `buffer`; `runs` are (queue id, record count) in order.

        Checked are sizes, magic, topic, queue id, system flag, lengths, body CRC, and that the
        properties are text. A buffer that
        can't be written to is copied, since `place` writes. Raises RecordError naming the number of
        the record (from 0) and the field.
        """
        buffer = writable(buffer)
        starts = record_starts(buffer)
        sizes = np.diff(starts, append=len(buffer))
        _check_request(topic, runs, len(starts))
        run_queue_ids, run_counts = np.array(runs, np.int64).T

        columns = RecordColumns(buffer, starts)
        front, extra = columns.front, columns.extra
        queue_ids = np.repeat(run_queue_ids, run_counts)
        _require(front["queue_id"] == queue_ids, "queue id", front["queue_id"])
        _require(front["sys_flag"] & ~SYS_FLAGS_ALLOWED == 0, "system flag", front["sys_flag"])
        least = RECORD_OVERHEAD_BYTES + extra + len(topic)
        _require(sizes >= least, "size", sizes)

        body_lengths = columns.body_lengths
        within = (body_lengths <= sizes - least) & (body_lengths <= MESSAGE_BODY_BYTES_MAX)
        _require(within, "body length", body_lengths)
        body_starts = columns.body_begins
        body_ends = body_starts + body_lengths
        properties_lengths = sizes - least - body_lengths
        _check_tails(buffer, body_ends, topic, properties_lengths)
        properties_at = starts + sizes - properties_lengths
        _check_text(buffer, properties_at, starts + sizes)
        _check_bodies(buffer, body_starts, body_ends, front["body_crc"])
        store_fields_at = starts + extra + BORN_HOST_AT + HOST_IPV4_BYTES
        return cls(buffer, starts, sizes, run_counts, store_fields_at, properties_at)

    @property
    def count(self) -> int:
        """How many records there are; at least one."""
        return len(self._starts)

    @property
    def starts(self) -> Sequence[int]:
        """Where each record begins, in bytes from the buffer's beginning."""
        starts: list[int] = self._starts.tolist()
        return starts

    @property
    def body_crcs(self) -> list[int]:
        """The CRCs that the records say of their bodies, in order."""
        return body_crcs(self.buffer, self._starts)

    @property
    def properties_places(self) -> tuple[Ints, Ints]:
        """Where each record's properties begin in the buffer, and where they end."""
        return self._properties_at, self._starts + self._sizes

    def larger_than(self, size_bytes: int) -> list[int]:
        """Where records of more than so many bytes begin."""
        larger: list[int] = self._starts[self._sizes > size_bytes].tolist()
        return larger

    @property
    def first_unique_key(self) -> str | None:
        """The UNIQ_KEY property of the first record: it identifies a repeated request."""
        return first_unique_key(self.buffer)

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
        integers = overlay(self.buffer, _I64)
        first_offsets = np.repeat(np.array(queue_offsets, np.int64), self._run_counts)
        integers[self._starts + QUEUE_OFFSET_AT] = first_offsets + self._within_run
        integers[self._starts + PHYSICAL_OFFSET_AT] = self._starts + position
        integers[self._store_fields_at] = store_timestamp_ms
        hosts = overlay(self.buffer, _HOST)
        hosts[self._store_fields_at + I64.size] = np.frombuffer(store_host, _HOST)


def record_starts(buffer: Buffer) -> Ints:
    """Where each record begins, as `walk` finds it. Raises RecordError.

    Records that are all as large as the first are found at once; others are walked.
    """
    size = SIZE_AND_MAGIC.unpack_from(buffer)[0] if len(buffer) >= RECORD_OVERHEAD_BYTES else 0
    if size >= RECORD_OVERHEAD_BYTES and len(buffer) % size == 0:
        heads: Ints = np.ndarray((len(buffer) // size,), ">u8", buffer, strides=(size,))
        if (heads == (size << 32 | MAGIC)).all():
            return np.arange(0, len(buffer), size, dtype=np.int64)
    return np.array(walk(buffer), np.int64)


def body_crcs(buffer: Buffer, starts: Ints) -> list[int]:
    """The CRCs that records say of their bodies, in order; `starts` as of `record_starts`."""
    crcs: list[int] = overlay(buffer, _U32)[starts + BODY_CRC_AT].tolist()
    return crcs


def stored_runs(buffer: Buffer, starts: Ints) -> list[tuple[int, int]]:
    """The queue of each run of a stored batch, and the queue offset of its first record; `starts`
    as of `record_starts`."""
    queue_ids = overlay(buffer, _I32)[starts + QUEUE_ID_AT]
    begins = np.flatnonzero(np.diff(queue_ids, prepend=-1))
    offsets = overlay(buffer, _I64)[starts[begins] + QUEUE_OFFSET_AT]
    return [*zip(queue_ids[begins].tolist(), offsets.tolist(), strict=True)]


def writable(buffer: Buffer) -> bytearray | memoryview:
    """`buffer`, or a copy of it if it can't be written to."""
    if isinstance(buffer, bytes) or (isinstance(buffer, memoryview) and buffer.readonly):
        return bytearray(buffer)
    return buffer


def _check_request(topic: bytes, runs: Sequence[tuple[int, int]], count: int) -> None:
    """Raise RecordError for a topic or runs that no `count` records can have."""
    if not 0 < len(topic) <= TOPIC_BYTES_MAX:
        raise RecordError(f"a topic of {len(topic)} bytes; allowed are 1 to {TOPIC_BYTES_MAX}")
    counts = [run_count for _, run_count in runs]
    if not counts or min(counts) < 1 or sum(counts) != count:
        raise RecordError(f"runs of {sum(counts)} records in all, but the body holds {count}")
    queue_ids = [queue_id for queue_id, _ in runs]
    if min(queue_ids) < 0 or max(queue_ids) > QUEUE_ID_MAX:
        raise RecordError(f"queue ids from {min(queue_ids)} to {max(queue_ids)} in the runs")


def _require(holds: npt.NDArray[np.bool_], field: str, values: npt.NDArray[np.integer]) -> None:
    """Raise RecordError for the first record for which `holds` is false."""
    number = int(holds.argmin())
    if not holds[number]:
        raise RecordError(f"record {number}: the {field} can't be {int(values[number])}")


def _check_tails(buffer: Buffer, body_ends: Ints, topic: bytes, properties_room: Ints) -> None:
    """Check the fields behind the bodies: topic, and properties up to the record's end."""
    fields = tails(buffer, body_ends, topic)
    same_topic = fields["topic"] == topic_field(topic)
    _require(
        same_topic, f"topic, which is not {topic!r}, of length", overlay(buffer, _U8)[body_ends]
    )
    lengths = fields["properties_length"]
    fits = (lengths == properties_room) & (lengths <= PROPERTIES_BYTES_MAX)
    _require(fits, "properties length", lengths)


def _check_text(buffer: Buffer, begins: Ints, ends: Ints) -> None:
    """Check that the properties in buffer[begins:ends] are UTF-8.

    Most are short and ASCII, which is seen for all records at once: each row of a table ends where
    a record's properties end, and what lies before them is masked.
    """
    widths = ends - begins
    width = int(widths.max())
    if 0 < width <= min(TEXT_WIDTH_BYTES_MAX, int(ends[0])):
        rows = overlay(buffer, f"V{width}")[ends - width].view(np.uint8).reshape(-1, width)
        if rows.max() < _ASCII_END:
            return
        is_text = np.arange(width) >= (width - widths)[:, np.newaxis]
        if not ((rows >= _ASCII_END) & is_text).any():
            return
    view = memoryview(buffer)
    pieces = [view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    if b"".join(pieces).isascii():
        return
    for number, piece in enumerate(pieces):
        try:
            str(piece, "utf-8")
        except UnicodeDecodeError as error:
            raise RecordError(f"record {number}: its properties are not UTF-8: {error}") from error


def _check_bodies(
    buffer: Buffer, body_starts: Ints, body_ends: Ints, body_crcs: npt.NDArray[np.uint32]
) -> None:
    """Compare every body with the CRC that its record says."""
    view = memoryview(buffer)
    found = [
        crc32(view[start:end]) & CRC_MASK
        for start, end in zip(body_starts.tolist(), body_ends.tolist(), strict=True)
    ]
    _require(np.array(found, np.int64) == body_crcs, "body CRC", body_crcs)


def runs_of(buffer: Buffer) -> list[tuple[int, int]]:
    """(queue id, count) of the runs of records, in order. Raises RecordError."""
    queue_ids = overlay(buffer, _I32)[record_starts(buffer) + QUEUE_ID_AT]
    begins = np.flatnonzero(np.diff(queue_ids, prepend=-1))
    counts = np.diff(begins, append=len(queue_ids))
    return [*zip(queue_ids[begins].tolist(), counts.tolist(), strict=True)]


def within(buffer: Buffer, queues: int) -> bytearray:
    """A copy of records, those for a queue that their topic has no more for another one. Raises
    RecordError."""
    copy = bytearray(buffer)
    ids = overlay(copy, _I32)
    starts = record_starts(copy) + QUEUE_ID_AT
    ids[starts] = ids[starts] % queues
    return copy
