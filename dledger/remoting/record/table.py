"""Many stored records that were read, by column: fields and bodies of all of them at once.

A consumer gets a thousand records in an answer, and what it does for each of them decides how fast
it reads. So fixed fields are gathered from all records when one is first looked at, and bodies are
cut out and compared with their CRCs together. A record that is compressed, malformed or damaged has
no body here: `Record` reads it, and says what is wrong.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import RecordError
from dledger.remoting.record.columns import Ints, RecordColumns, record_starts
from dledger.remoting.record.layout import COMPRESSED, CRC_MASK


class RecordTable:
    """The records of a buffer that does not change, at least one.

    Raises RecordError if they don't fill it.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._view = memoryview(buffer)
        self._starts = record_starts(self._view)
        self._places: list[int] = [*self._starts.tolist(), len(self._view)]

    def __len__(self) -> int:
        return len(self._starts)

    def record(self, number: int) -> memoryview:
        """A view of one of the records."""
        return self._view[self._places[number] : self._places[number + 1]]

    @property
    def buffer(self) -> memoryview:
        """The bytes of all of them."""
        return self._view

    def head(self, count: int) -> RecordTable:
        """The first of them, at least one."""
        return self if count >= len(self) else RecordTable(self._view[: self._places[count]])

    def size_of(self, number: int) -> int:
        """How many bytes one of them has."""
        return self._places[number + 1] - self._places[number]

    @cached_property
    def offsets(self) -> list[int]:
        """Where each lies in its queue."""
        found: list[int] = self.queue_offsets.tolist()
        return found

    @cached_property
    def queue_offsets(self) -> Ints:
        """Offsets in the queue, as a column."""
        return _read_only(self._columns.front["queue_offset"])

    @cached_property
    def store_timestamps_ms(self) -> Ints:
        """When the broker took each, by the broker's clock."""
        return _read_only(self._columns.store_timestamps_ms)

    @cached_property
    def born_timestamps_ms(self) -> Ints:
        """When its producer made each, by the producer's clock."""
        return _read_only(self._columns.front["born_timestamp"])

    @cached_property
    def flags(self) -> Ints:
        """The sender's own flag of each."""
        return _read_only(self._columns.front["flag"])

    @cached_property
    def sys_flags(self) -> Ints:
        """The system flag of each."""
        return _read_only(self._columns.front["sys_flag"])

    @cached_property
    def body_crcs(self) -> Ints:
        """The CRC that each says its body has, as stored."""
        return _read_only(self._columns.front["body_crc"])

    @cached_property
    def spans(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Where in the buffer each body and each property string begins and ends.

        Raises RecordError for the first record whose lengths don't fill it.
        """
        spans = self._columns.spans
        if not spans.fit.all():
            number = int(spans.fit.argmin())
            raise RecordError(
                f"message {self.offsets[number]} of its queue: body, topic and properties don't "
                f"fill the {self.size_of(number)} bytes of its record"
            )
        return spans.body_begins, spans.body_ends, spans.properties, self._columns.ends

    @cached_property
    def bodiless(self) -> frozenset[int]:
        """The numbers of those that say that they have no body."""
        columns = self._columns
        none = (columns.body_lengths == 0) & (columns.body_begins <= columns.ends)
        return frozenset(np.flatnonzero(none).tolist())

    @cached_property
    def bodies(self) -> list[bytes | None]:
        """The bodies that are not compressed and fit their CRCs; None for each other one."""
        columns = self._columns
        begins, sizes, front = columns.body_begins, columns.body_lengths, columns.front
        plain = front["sys_flag"] & COMPRESSED == 0
        plain &= begins + sizes <= columns.ends
        bodies = self._cut(begins, np.where(plain, sizes, 0))
        crcs = np.array([*map(crc32, bodies)], np.int64) & CRC_MASK
        for number in np.flatnonzero(~plain | (crcs != front["body_crc"])).tolist():
            bodies[number] = None
        return bodies

    @cached_property
    def _columns(self) -> RecordColumns:
        return RecordColumns(self._view, self._starts)

    def _cut(self, begins: Ints, sizes: Ints) -> list[bytes | None]:
        """Bodies of one size, in records of one size, are cut out by a single call."""
        size, steps = int(sizes[0]), np.diff(begins)
        if size and (sizes == size).all() and (steps == steps[:1]).all():
            step = int(steps[0]) if len(steps) else size
            rows: npt.NDArray[np.void] = np.ndarray(
                (len(begins),), f"V{size}", self._view, int(begins[0]), (step,)
            )
            cut: list[bytes | None] = rows.tolist()
            return cut
        view, ends = self._view, begins + sizes
        return [
            view[begin:end].tobytes()
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]


def _read_only(column: npt.NDArray[np.integer]) -> Ints:
    """A column as it is handed out: in the machine's own byte order, read-only."""
    own = column.astype(np.int64)
    own.setflags(write=False)
    return own
