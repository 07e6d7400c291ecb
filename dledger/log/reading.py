"""Entries of a log by index, its bytes by position."""

from __future__ import annotations

from itertools import pairwise

from dledger.errors import Rot, StorageError
from dledger.log.disk import Disk
from dledger.log.entry import HEADER_BYTES, Entry, Header
from dledger.log.head import LogHead
from dledger.log.scanning.walk import walk
from dledger.log.segments.contents import Contents
from dledger.log.segments.retention import SegmentInfo
from dledger.log.segments.segment import Segment
from dledger.log.writing import Writing


class LogReader:
    """Reads what the log holds. Where it is needed, staged entries are written out first.

    Entries up to `unchecked_index` have not been compared with their CRCs.
    """

    def __init__(
        self, contents: Contents, writing: Writing, disk: Disk, unchecked_index: int
    ) -> None:
        self.unchecked_index = unchecked_index
        self._contents = contents
        self._writing = writing
        self._disk = disk

    def bytes_behind(self, index: int) -> int:
        """Bytes of the log behind an entry. Raises StorageError."""
        contents = self._contents
        next_index = max(index + 1, contents.first_index)
        if next_index > contents.last_index:
            return 0
        return contents.end_position - self.position(next_index)

    def position(self, index: int) -> int:
        """The position of an entry, without reading it: a page that is lost ends nobody. Raises
        StorageError if it is not in the log, Rot."""
        recent = self._contents.recent.get(index)
        if recent is not None:
            return recent.position
        segment = self._contents.segment_of(index)
        return segment.base_position + segment.offset_of(index)

    def header(self, index: int) -> Header:
        """The header of an entry. Raises StorageError if it is not in the log, Rot if the disk
        can't read it: a look into a mapping whose page is lost would end the process."""
        recent = self._contents.recent.get(index)
        if recent is not None:
            return recent
        if index > self._writing.written_index:
            self._writing.write_out()
        segment = self._contents.segment_of(index)
        start = segment.offset_of(index)
        segment.touch(start, start + HEADER_BYTES)
        return segment.header(index)

    def checked_header(self, index: int) -> Header:
        """The header of an entry, which is checked unless it is one of the last. Raises Rot,
        StorageError."""
        recent = self._contents.recent.get(index)
        if recent is not None:
            return recent
        self._check(index, index)
        return self.header(index)

    def entry(self, index: int) -> Entry:
        """An entry, its body not copied."""
        if index > self._writing.written_index:
            self._writing.write_out()
        segment = self._contents.segment_of(index)
        header = self._contents.recent.get(index) or segment.header(index)
        return Entry(index, header.term, header.kind, header.position, segment.body(header))

    def checked_entry(self, index: int) -> Entry:
        """An entry, checked if the start trusted a checkpoint for its segment. Raises Rot."""
        if self._contents.first_index <= index <= self.unchecked_index:
            self._check(index, index)
        return self.entry(index)

    def doubt_all(self) -> None:
        """Make `checked_entry` check all entries that are in the log now: they may have rotted."""
        self.unchecked_index = self._contents.last_index

    def _check(self, first_index: int, last_index: int) -> None:
        """Check entries of one segment as they are on the disk. Raises Rot."""
        segment = self._contents.segment_of(last_index)
        start = segment.offset_of(first_index)
        segment.touch(start, segment.offset_behind(last_index))
        steps = walk(
            segment.raw,
            segment.base_position,
            start,
            next_index=first_index,
            chain_crc=self.chain_crc_before(first_index),
        )
        for index, step in zip(range(first_index, last_index + 1), steps, strict=False):
            if step.fault is not None:
                raise Rot(
                    f"{segment.path}: entry {index} at offset {step.offset} is damaged "
                    f"({step.fault}); a start has it repaired by the leader",
                    segment.base_position,
                )

    def sealed(self, committed_index: int) -> list[Segment]:
        """The segments whose entries are all durable and committed, by that index."""
        return [
            segment
            for segment, following in pairwise(self._contents.segments)
            if following.first_index - 1 <= committed_index
        ]

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Bytes of the log by position, not copied; they must lie within one segment."""
        self._writing.write_out()
        segment, start = self._contents.place_of(position, size_bytes)
        return segment.part(start, size_bytes)

    def checked_view(self, position: int, size_bytes: int) -> memoryview:
        """Bytes of the log by position, if the entries fit their CRCs now, or did a few seconds
        ago. Raises Rot.

        For bytes that leave this node: rot on this disk must not mislead others. How long a check
        counts depends on how often `release_idle` is called.
        """
        self._writing.write_out()
        segment, start = self._contents.place_of(position, size_bytes)
        segment.check(start, start + size_bytes)
        return segment.part(start, size_bytes)

    def run_of(self, first_index: int, last_index: int) -> memoryview:
        """The raw bytes, headers and all, of consecutive entries of one segment."""
        first = self.header(first_index)
        last = first if last_index == first_index else self.header(last_index)
        return self.view(first.position, last.end - first.position)

    def checked_run_of(self, first_index: int, last_index: int) -> memoryview:
        """The raw bytes of consecutive entries, to be sent to others. The entry before them is
        checked too, as its term is also sent.

        Only entries of old segments are checked. Raises Rot: it must not mislead others.
        """
        self._writing.write_out()
        self.check_run(first_index, last_index)  # before a rotten header says where the run lies
        return self.run_of(first_index, last_index)

    def check_run(self, first_index: int, last_index: int) -> None:
        """Raise Rot if a run can't be sent to others."""
        contents, before = self._contents, max(first_index - 1, self._contents.first_index)
        if before not in contents.recent or before < contents.segments[-1].first_index:
            self._check(before, before)
            self._check(first_index, last_index)

    def batch_end(self, first_index: int, size_bytes: int) -> int:
        """The last index of a run of about `size_bytes`, at least one entry, of one segment."""
        return self._contents.segment_of(first_index).batch_end(first_index, size_bytes)

    def segments(self) -> list[SegmentInfo]:
        """The segments, the oldest first."""
        return [
            SegmentInfo(
                segment.base_position,
                segment.first_index,
                segment.size_bytes,
                self._disk.modified_s(segment.path),
            )
            for segment in self._contents.segments
        ]

    def chain_crc_before(self, index: int) -> int:
        """The chain CRC that an entry of the log continues."""
        if index == self._contents.first_index:
            return self._contents.head.chain_crc
        return self.header(index - 1).chain_crc

    def head_before(self, index: int) -> LogHead:
        """The head of a log that begins with the entry `index`, the first of a segment.

        Raises Rot if the entry before is damaged: a head made of it would fit no entry, and the
        bytes that could mend it may go.
        """
        segment = self._contents.segment_of(index)
        if segment.first_index != index:
            raise StorageError(f"entry {index} is not the first of a segment")
        if segment is self._contents.segments[0]:
            return self._contents.head
        self._check(index - 1, index - 1)
        return LogHead(segment.base_position, index, self.chain_crc_before(index))
