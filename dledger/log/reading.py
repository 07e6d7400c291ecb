"""What can be read of a log: where it begins and ends, entries by index, bytes by position."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path

from dledger import limits
from dledger.errors import Rot, StorageError
from dledger.log.disk import Disk
from dledger.log.entry import Entry, Header, decode_header, fault_of
from dledger.log.head import LogHead
from dledger.log.recovery.tail import WATERMARK_BYTES
from dledger.log.retention import SegmentInfo
from dledger.log.segment import Segment, segment_path


class LogReader:
    """The segments of a log and its last entry. Whoever appends sees to it that both are true.

    Entries above `_written_index` may be in memory only; `write_out` brings them to the files.
    """

    def __init__(
        self,
        folder: Path,
        segment_bytes: int,
        disk: Disk,
        segments: list[Segment],
        last: Header | None,
        head: LogHead,
    ) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        #: The largest entry, header and body: the general limit, or what a segment can hold.
        self.entry_bytes_max = min(limits.ENTRY_BYTES_MAX, segment_bytes - WATERMARK_BYTES)
        self._disk = disk
        self._segments = segments
        self._last = last
        self._head = head
        self._recent: dict[int, Header] = {}
        self._written_index = self.last_index
        #: Up to here a start took segments as the checkpoint says.
        self.unchecked_index = 0

    def write_out(self) -> None:
        """Nothing waits in memory, as long as nobody appends."""

    # -- where things are ------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """The lowest index that can be read; 1 for an empty log."""
        return self._segments[0].first_index if self._segments else self._head.first_index

    @property
    def last_index(self) -> int:
        """The index of the last entry; 0 for an empty log."""
        return self._last.index if self._last else self._head.first_index - 1

    @property
    def last(self) -> Header | None:
        """The last entry's header."""
        return self._last

    @property
    def first_position(self) -> int:
        """The lowest position that can be read."""
        return self._segments[0].base_position if self._segments else self._head.base_position

    @property
    def end_position(self) -> int:
        """The position behind the last entry."""
        return self._last.end if self._last else self._head.base_position

    @property
    def chain_crc(self) -> int:
        """The chain CRC that the next entry continues."""
        return self._last.chain_crc if self._last else self._head.chain_crc

    def position_for(self, size_bytes: int) -> int:
        """Where an entry of `size_bytes` (header and body) lands if it is the next one."""
        end = self.end_position
        room = self.segment_bytes - WATERMARK_BYTES - end % self.segment_bytes
        if size_bytes <= room:
            return end
        return (end // self.segment_bytes + 1) * self.segment_bytes

    @property
    def room_bytes(self) -> int | None:
        """Of the last segment, for another entry; None if there is no segment."""
        return (
            self._segments[-1].capacity_bytes - self._segments[-1].end if self._segments else None
        )

    def is_next_segment(self, position: int) -> bool:
        """Whether a position is in the segment behind the last one."""
        ahead = position - self._segments[-1].base_position if self._segments else 0
        return self.segment_bytes <= ahead < 2 * self.segment_bytes

    def _segment_of(self, index: int) -> Segment:
        if not self.first_index <= index <= self.last_index:
            raise StorageError(
                f"index {index} is outside of the log ({self.first_index} to {self.last_index})"
            )
        newest = self._segments[-1]
        if index >= newest.first_index:
            return newest
        at = bisect_right(self._segments, index, key=lambda segment: segment.first_index)
        return self._segments[at - 1]

    # -- reading ---------------------------------------------------------------------------

    def header(self, index: int) -> Header:
        """The header of an entry. Raises StorageError if it is not in the log."""
        recent = self._recent.get(index)
        if recent is not None:
            return recent
        if index > self._written_index:
            self.write_out()
        return self._segment_of(index).header(index)

    def entry(self, index: int) -> Entry:
        """An entry, its body not copied."""
        if index > self._written_index:
            self.write_out()
        segment = self._segment_of(index)
        header = self._recent.get(index) or segment.header(index)
        return Entry(index, header.term, header.kind, header.position, segment.body(header))

    def checked_entry(self, index: int) -> Entry:
        """The same, checked if the start took its segment as a checkpoint says. Raises Rot."""
        if self.first_index <= index <= self.unchecked_index:
            self._check(index, index)
        return self.entry(index)

    def _check(self, first_index: int, last_index: int) -> None:
        """Entries of one segment, as they stand on the disk. Raises Rot."""
        segment, chain_crc = self._segment_of(last_index), self.chain_crc_before(first_index)
        for index in range(first_index, last_index + 1):
            offset = segment.offset_of(index)
            header = decode_header(segment.raw, offset)
            position = segment.base_position + offset
            fault = fault_of(header, segment.raw, offset, chain_crc, position)
            if fault is not None:
                raise Rot(
                    f"{segment.path}: entry {index} at offset {offset} is damaged ({fault}); a "
                    "start has it repaired by the leader",
                    segment.base_position,
                )
            chain_crc = header.chain_crc

    def sealed(self, committed_index: int) -> list[Segment]:
        """The segments whose entries are all durable and committed, by that index."""
        return [
            segment
            for segment, following in pairwise(self._segments)
            if following.first_index - 1 <= committed_index
        ]

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Bytes of the log by position, not copied; they must lie within one segment."""
        segment, start = self._place_of(position, size_bytes)
        return segment.part(start, size_bytes)

    def _place_of(self, position: int, size_bytes: int) -> tuple[Segment, int]:
        """Where in which file those bytes are."""
        self.write_out()
        at = position // self.segment_bytes - self.first_position // self.segment_bytes
        if not 0 <= at < len(self._segments):
            raise StorageError(f"position {position} is not in the log")
        segment = self._segments[at]
        start = position - segment.base_position
        if start + size_bytes > segment.end:
            raise StorageError(f"positions {position} + {size_bytes} reach beyond a segment's end")
        return segment, start

    def checked_view(self, position: int, size_bytes: int) -> memoryview:
        """The same, of entries that fit their CRCs now, or did a few seconds ago. Raises Rot.

        For bytes that leave this node: nobody else may be misled by a disk that rots. The bound on
        the time is the caller's of `release_idle`.
        """
        segment, start = self._place_of(position, size_bytes)
        segment.check(start, start + size_bytes)
        return segment.part(start, size_bytes)

    def run_of(self, first_index: int, last_index: int) -> memoryview:
        """The raw bytes, headers and all, of consecutive entries of one segment."""
        first, last = self.header(first_index), self.header(last_index)
        return self.view(first.position, last.end - first.position)

    def checked_run_of(self, first_index: int, last_index: int) -> memoryview:
        """The same, to be sent to others, and the entry before it, whose term is sent, too.

        Checked if their segment is an old one. Raises Rot: nobody else may be misled.
        """
        run, before = self.run_of(first_index, last_index), max(first_index - 1, self.first_index)
        if before not in self._recent or before < self._segments[-1].first_index:
            self._check(before, before)
            self._check(first_index, last_index)
        return run

    def batch_end(self, first_index: int, size_bytes: int) -> int:
        """The last index of a run of about `size_bytes`, at least one entry, of one segment."""
        return self._segment_of(first_index).batch_end(first_index, size_bytes)

    def segments(self) -> list[SegmentInfo]:
        """The segments, the oldest first."""
        return [
            SegmentInfo(
                segment.base_position,
                segment.first_index,
                segment.size_bytes,
                self._disk.modified_s(segment_path(self.folder, segment.base_position)),
            )
            for segment in self._segments
        ]

    def chain_crc_before(self, index: int) -> int:
        """The chain CRC that an entry of the log continues."""
        before_all = index == self.first_index
        return self._head.chain_crc if before_all else self.header(index - 1).chain_crc

    def head_before(self, index: int) -> LogHead:
        """Where a log that begins with the entry `index`, a segment's first, would begin."""
        segment = self._segment_of(index)
        if segment.first_index != index:
            raise StorageError(f"entry {index} is not the first of a segment")
        if segment is self._segments[0]:
            return self._head
        return LogHead(segment.base_position, index, self.chain_crc_before(index))
