"""The entries that a log holds, and their places: its segments, its head, its last entry.

Appending, cutting, trimming and replacing each have a method here; all other code only reads.
Entries may still be in memory only: see :mod:`dledger.log.writing`.
"""

from __future__ import annotations

from bisect import bisect_right

from dledger.errors import StorageError
from dledger.failpoints import failpoint
from dledger.log.entry import Header
from dledger.log.head import LogHead
from dledger.log.scanning.tail import WATERMARK_BYTES
from dledger.log.segments.segment import Segment

RECENT_HEADERS = 8192
"""Headers of the last entries that are kept decoded: each is read several times until it is
committed and applied."""


class Contents:
    """The entries of one log. `recent` holds the last ones' headers, by index.

    The log's bounds are asked for very often, so they are kept in fields: `first_index`, the lowest
    that can be read (1 for an empty log), `last_index` (0 for an empty log), `end_position` behind
    the last entry, `chain_crc` that the next entry continues.
    """

    first_index: int
    last: Header | None
    last_index: int
    end_position: int
    chain_crc: int

    def __init__(
        self, segment_bytes: int, segments: list[Segment], last: Header | None, head: LogHead
    ) -> None:
        self.segment_bytes = segment_bytes
        self.segments = segments
        self.head = head
        self.recent: dict[int, Header] = {}
        #: Another number whenever entries are taken away. What was begun before, a sync or the next
        #: segment's file, no longer counts.
        self.generation = 0
        self._begin()
        self._end_with(last)

    # -- where things are ------------------------------------------------------------------

    @property
    def first_position(self) -> int:
        """The lowest position that can be read."""
        return self.segments[0].base_position if self.segments else self.head.base_position

    def position_for(self, size_bytes: int) -> int:
        """The position of the next entry, if it has `size_bytes` (header and body)."""
        end = self.end_position
        room = self.segment_bytes - WATERMARK_BYTES - end % self.segment_bytes
        if size_bytes <= room:
            return end
        return (end // self.segment_bytes + 1) * self.segment_bytes

    @property
    def room_bytes(self) -> int | None:
        """The room for another entry in the last segment; None if there is no segment."""
        segments = self.segments
        return segments[-1].capacity_bytes - segments[-1].end if segments else None

    def segment_of(self, index: int) -> Segment:
        """The segment that holds an entry. Raises StorageError if it is not in the log."""
        if not self.first_index <= index <= self.last_index:
            raise StorageError(
                f"index {index} is outside of the log ({self.first_index} to {self.last_index})"
            )
        newest = self.segments[-1]
        if index >= newest.first_index:
            return newest
        return self.segments[self._count_up_to(index) - 1]

    def place_of(self, position: int, size_bytes: int) -> tuple[Segment, int]:
        """The segment of these bytes, and their offset in it. Raises StorageError."""
        segments = self.segments
        if segments and position >= segments[-1].base_position:
            segment = segments[-1]
        else:
            at = position // self.segment_bytes - self.first_position // self.segment_bytes
            if not 0 <= at < len(segments):
                raise StorageError(f"position {position} is not in the log")
            segment = segments[at]
        start = position - segment.base_position
        if start + size_bytes > segment.end:
            raise StorageError(f"positions {position} + {size_bytes} reach beyond a segment's end")
        return segment, start

    def segments_from(self, index: int) -> list[Segment]:
        """The segments that hold entries from `index` on."""
        return self.segments[max(0, self._count_up_to(index) - 1) :]

    def _count_up_to(self, index: int) -> int:
        """How many segments begin at or before `index`."""
        return bisect_right(self.segments, index, key=lambda segment: segment.first_index)

    # -- as the log changes ----------------------------------------------------------------

    def begin_segment(self, segment: Segment) -> None:
        """The next entry is the first of a new segment."""
        self.segments.append(segment)
        self._begin()
        failpoint("log.roll")

    def add(self, header: Header) -> None:
        """Add an entry to the last segment."""
        segment, index, end = self.segments[-1], header.index, header.end
        segment.add(header.position - segment.base_position, end - segment.base_position)
        self.recent[index] = header
        self.recent.pop(index - RECENT_HEADERS, None)
        self.last, self.last_index = header, index
        self.end_position, self.chain_crc = end, header.chain_crc

    def _begin(self) -> None:
        """The first segment may be another one: set where the log begins."""
        begins = self.segments[0] if self.segments else self.head
        self.first_index = begins.first_index

    def _end_with(self, last: Header | None) -> None:
        """Set the log's last entry; None: the log is empty behind its head."""
        self.last, head = last, self.head
        self.last_index = last.index if last else head.first_index - 1
        self.end_position = last.end if last else head.base_position
        self.chain_crc = last.chain_crc if last else head.chain_crc

    def note_removal(self) -> None:
        """Entries at the end are about to be taken away, or their files are gone now. Both count: a
        thread may open such a file in between."""
        self.generation += 1

    def drop_last_segment(self) -> Segment:
        """Drop the last segment, whose file is gone; a cut goes on before it."""
        return self.segments.pop()

    def cut(self, first_index: int) -> None:
        """Cut the last segment, in its file too, so that the log ends before `first_index`."""
        segment = self.segments[-1]
        failpoint("log.cut-marked")
        segment.cut(first_index - segment.first_index)
        at = self._count_up_to(first_index - 1)
        ending = self.segments[at - 1] if at else None
        self._end_with(ending.header(first_index - 1) if ending and ending.offsets else None)
        self.recent.clear()

    def trim(self, count: int, head: LogHead) -> list[Segment]:
        """Drop and return the first `count` segments: the log now begins with `head`."""
        removed, self.segments[:count] = self.segments[:count], []
        self.head = head
        self._begin()
        return removed

    def replace(self, head: LogHead) -> list[Segment]:
        """Drop and return all segments: the log is empty, and begins with `head`."""
        removed, self.segments[:] = self.segments[:], []
        self.recent.clear()
        self.head = head
        self._begin()
        self._end_with(None)
        failpoint("log.replace-dropped")
        return removed

    def take_first_entry(self) -> None:
        """The first entry, which the head carried, is in a segment now."""
        failpoint("log.replace-begun")
        self.head = LogHead(self.head.base_position, self.head.first_index, self.head.chain_crc)
