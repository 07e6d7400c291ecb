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
from dledger.remoting.record.batch import record_starts
from dledger.remoting.record.columns import overlay
from dledger.remoting.record.layout import (
    BODY_AT,
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_HOST_IPV6,
    BORN_TIMESTAMP_AT,
    COMPRESSED,
    CRC_MASK,
    FLAG_AT,
    HOST_IPV4_BYTES,
    HOST_IPV6_EXTRA_BYTES,
    QUEUE_OFFSET_AT,
    RECORD_OVERHEAD_BYTES,
    STORE_HOST_IPV6,
    SYS_FLAG_AT,
    U16,
    U32,
)

_Ints = npt.NDArray[np.int64]

#: All of it lies within the smallest record.
_FRONT = np.dtype(
    {
        "names": ["body_crc", "flag", "queue_offset", "sys_flag", "born_timestamp"],
        "formats": [">u4", ">i4", ">i8", ">i4", ">i8"],
        "offsets": [BODY_CRC_AT, FLAG_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT, BORN_TIMESTAMP_AT],
        "itemsize": RECORD_OVERHEAD_BYTES,
    }
)


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
        """One of them: a view."""
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
    def queue_offsets(self) -> _Ints:
        """The same as a column."""
        return _kept(self._front["queue_offset"])

    @cached_property
    def store_timestamps_ms(self) -> _Ints:
        """When the broker took each, by the broker's clock."""
        is_wide = self._front["sys_flag"] & BORN_HOST_IPV6 != 0
        hosts_end = BORN_HOST_AT + HOST_IPV4_BYTES + HOST_IPV6_EXTRA_BYTES * is_wide
        return _kept(overlay(self._view, ">i8")[self._starts + hosts_end])

    @cached_property
    def born_timestamps_ms(self) -> _Ints:
        """When its producer made each, by the producer's clock."""
        return _kept(self._front["born_timestamp"])

    @cached_property
    def flags(self) -> _Ints:
        """The sender's own flag of each."""
        return _kept(self._front["flag"])

    @cached_property
    def sys_flags(self) -> _Ints:
        """The system flag of each."""
        return _kept(self._front["sys_flag"])

    @cached_property
    def body_crcs(self) -> _Ints:
        """The CRC that each says its body has, as stored."""
        return _kept(self._front["body_crc"])

    @cached_property
    def spans(self) -> tuple[_Ints, _Ints, _Ints, _Ints]:
        """Where in the buffer each body and each property string begins and ends.

        Raises RecordError for the first record whose lengths don't fill it.
        """
        begins, sizes = self._bodies
        body_ends = begins + sizes
        within = body_ends < self._ends
        topic_bytes = overlay(self._view, ">u1")[np.where(within, body_ends, 0)].astype(np.int64)
        properties = body_ends + 1 + topic_bytes + U16.size
        within &= properties <= self._ends
        places = np.where(within, properties, U16.size) - U16.size
        ends = properties + overlay(self._view, ">u2")[places]
        wrong = np.flatnonzero(~within | (ends != self._ends))
        if len(wrong):
            number = int(wrong[0])
            raise RecordError(
                f"message {self.offsets[number]} of its queue: body, topic and properties don't "
                f"fill the {self.size_of(number)} bytes of its record"
            )
        return begins, body_ends, properties, ends

    @cached_property
    def bodiless(self) -> frozenset[int]:
        """The numbers of those that say that they have no body."""
        begins, sizes = self._bodies
        none = (sizes == 0) & (begins <= self._ends)
        return frozenset(np.flatnonzero(none).tolist())

    @cached_property
    def bodies(self) -> list[bytes | None]:
        """The bodies that are not compressed and fit their CRCs; None for each other one."""
        begins, sizes = self._bodies
        plain = self._front["sys_flag"] & COMPRESSED == 0
        plain &= begins + sizes <= self._ends
        bodies = self._cut(begins, np.where(plain, sizes, 0))
        crcs = np.array([*map(crc32, bodies)], np.int64) & CRC_MASK
        for number in np.flatnonzero(~plain | (crcs != self._front["body_crc"])).tolist():
            bodies[number] = None
        return bodies

    @cached_property
    def _front(self) -> npt.NDArray[np.void]:
        front: npt.NDArray[np.void] = overlay(self._view, _FRONT)[self._starts]
        return front

    @cached_property
    def _ends(self) -> _Ints:
        return np.append(self._starts[1:], len(self._view))

    @cached_property
    def _bodies(self) -> tuple[_Ints, _Ints]:
        """Where the bodies begin, and how large they say that they are: it may be too large."""
        sys_flags = self._front["sys_flag"]
        wide = (sys_flags & BORN_HOST_IPV6 != 0) * 1 + (sys_flags & STORE_HOST_IPV6 != 0)
        begins = self._starts + BODY_AT + HOST_IPV6_EXTRA_BYTES * wide
        # Not even the size lies within a record that is too short for its hosts.
        places = np.minimum(begins, self._ends) - U32.size
        return begins, overlay(self._view, ">u4")[places].astype(np.int64)

    def _cut(self, begins: _Ints, sizes: _Ints) -> list[bytes | None]:
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


def _kept(column: npt.NDArray[np.integer]) -> _Ints:
    """As it is handed out: in the machine's own order of bytes, and not to be written to."""
    own = column.astype(np.int64)
    own.setflags(write=False)
    return own
