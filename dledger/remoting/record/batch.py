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
from dledger.remoting.record.columns import (
    Ints,
    RecordColumns,
    overlay,
    record_starts,
    tail_bytes,
    tails,
    topic_field,
)
from dledger.remoting.record.layout import (
    BORN_HOST_IPV6,
    COMPRESSED,
    COMPRESSION_TYPE,
    CRC_MASK,
    HOST_IPV4_BYTES,
    I32,
    I64,
    MULTI_TAGS,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
)
from dledger.remoting.record.view import first_unique_key

#: The flags that a producer may set: compression, and the kind of its address. The broker sets all
#: others.
SYS_FLAGS_ALLOWED = COMPRESSED | MULTI_TAGS | BORN_HOST_IPV6 | COMPRESSION_TYPE

_ASCII_END = 0x80

_HOST = np.dtype(f"V{HOST_IPV4_BYTES}")


class RecordBatch:
    """Checked records of one topic, in runs of one queue each; `place` fills in their buffer."""

    __slots__ = (
        "_properties_at",
        "_run_counts",
        "_sizes",
        "_starts",
        "_store_timestamps_at",
        "_within_run",
        "buffer",
    )

    def __init__(self, buffer: Buffer, topic: bytes, runs: Sequence[tuple[int, int]]) -> None:
        """Check the records in `buffer`; `runs` are (queue id, record count) in order.

        Checked are sizes, magic, topic, queue id, system flag, lengths, body CRC, and that the
        properties are text. A buffer that can't be written to is copied, since `place` writes.
        Raises RecordError naming the number of the record (from 0) and the field.
        """
        self.buffer = buffer = writable(buffer)
        self._starts = starts = record_starts(buffer)
        self._sizes = sizes = np.diff(starts, append=len(buffer))
        _check_request(topic, runs, len(starts))
        run_queue_ids, run_counts = np.array(runs, np.int64).T
        self._run_counts = run_counts

        columns = RecordColumns(buffer, starts)
        front, body_starts = columns.front, columns.body_begins
        queue_ids = np.repeat(run_queue_ids, run_counts)
        _require(front["queue_id"] == queue_ids, "queue id", front["queue_id"])
        _require(front["sys_flag"] & ~SYS_FLAGS_ALLOWED == 0, "system flag", front["sys_flag"])
        room = columns.ends - body_starts - tail_bytes(topic)
        _require(room >= 0, "size", sizes)

        body_lengths = columns.body_lengths
        within = (body_lengths <= room) & (body_lengths <= MESSAGE_BODY_BYTES_MAX)
        _require(within, "body length", body_lengths)
        body_ends = body_starts + body_lengths
        properties_lengths = room - body_lengths
        _check_tails(buffer, body_ends, topic, properties_lengths)
        self._properties_at = columns.ends - properties_lengths
        _check_text(buffer, self._properties_at, columns.ends)
        _check_bodies(buffer, body_starts, body_ends, front["body_crc"])
        self._store_timestamps_at = columns.store_timestamps_at
        run_starts = np.cumsum(run_counts) - run_counts
        self._within_run = np.arange(len(starts)) - np.repeat(run_starts, run_counts)

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
        return RecordColumns(self.buffer, self._starts).body_crcs

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
        integers = overlay(self.buffer, I64.format)
        first_offsets = np.repeat(np.array(queue_offsets, np.int64), self._run_counts)
        integers[self._starts + QUEUE_OFFSET_AT] = first_offsets + self._within_run
        integers[self._starts + PHYSICAL_OFFSET_AT] = self._starts + position
        integers[self._store_timestamps_at] = store_timestamp_ms
        hosts = overlay(self.buffer, _HOST)
        hosts[self._store_timestamps_at + I64.size] = np.frombuffer(store_host, _HOST)


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
        same_topic,
        f"topic, which is not {topic!r}, of length",
        overlay(buffer, np.uint8)[body_ends],
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


def within(buffer: Buffer, queues: int) -> bytearray:
    """A copy of records, those for a queue that their topic has no more for another one. Raises
    RecordError."""
    copy = bytearray(buffer)
    ids = overlay(copy, I32.format)
    starts = record_starts(copy) + QUEUE_ID_AT
    ids[starts] = ids[starts] % queues
    return copy
