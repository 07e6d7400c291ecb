"""A file of the log: its blocks are reserved first, it is written by offset, and read through a
mapping."""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dledger.buffers import Buffer
from dledger.errors import Rot
from dledger.log.disk import Disk, Unreadable
from dledger.log.entry import HEADER_BYTES, MAGIC, Header, decode_header, fault_of, padded
from dledger.log.scanning.checkpoint import SealedSegment
from dledger.log.scanning.tail import (
    PART_BYTES,
    WATERMARK_BYTES,
    Scan,
    encode_watermark,
    entry_offsets,
)

POSITION_DIGITS = 20
TOUCH_BYTES = 1 << 20


def segment_path(folder: Path, base_position: int) -> Path:
    """The file whose first byte has `base_position`."""
    return folder / f"{base_position:0{POSITION_DIGITS}d}.seg"


@dataclass(frozen=True, slots=True)
class PreparedSegment:
    """A segment file made in advance; `generation` counts the cuts before it was made."""

    base_position: int
    descriptor: int
    generation: int


class Segment:
    """A segment file and where its entries start.

    `first_index` is the index of its first entry. `end` is the offset behind its last one. The
    entries' offsets in a sealed segment are computed from the entry sizes when it is read.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        first_index: int,
        size_bytes: int,
        descriptor: int | None = None,
    ) -> None:
        self.path = path
        self.base_position = int(path.stem)
        self.first_index = first_index
        self.size_bytes = size_bytes
        self.end = 0
        self._disk = disk
        self._descriptor = descriptor
        self._raw: memoryview | None = None
        self._used = True
        self._touched = False
        self._read_bytes = 0
        self._offsets: array[int] | None = array("I")
        #: For each entry, whether its bytes were checked a short while ago.
        self._good = bytearray()
        self._summary: SealedSegment | None = None

    @property
    def descriptor(self) -> int:
        """The descriptor of the segment's open file."""
        if self._descriptor is None:
            self._descriptor = self._disk.open(self.path)
        return self._descriptor

    @property
    def raw(self) -> memoryview:
        """The file's bytes, mapped: a view shows what is written later, too."""
        self._used = self._touched = True
        if self._raw is None:
            self._raw = self._disk.map(self.descriptor, self.size_bytes)
        return self._raw

    def release(self) -> None:
        """Close the file until it is needed again. Views that were handed out stay valid."""
        if self._descriptor is not None:
            self._disk.close(self._descriptor)
        self._descriptor = self._raw = None
        if self._summary is not None:
            self._offsets = None
            self._good = bytearray()

    def forget_pages(self) -> None:
        """Unmap what was read: it then counts as the kernel's memory, no longer as this
        process's."""
        self._read_bytes = 0
        if self._touched and self._raw is not None:
            self._touched = False
            self._disk.forget_pages(self._raw)

    def release_if_idle(self) -> None:
        """Release a sealed segment that was not read since the last call."""
        if self._summary is not None and not self._used:
            self.release()
        self._used = False

    @property
    def capacity_bytes(self) -> int:
        """How many bytes of entries fit: the watermark has the last bytes."""
        return self.size_bytes - WATERMARK_BYTES

    @property
    def offsets(self) -> array[int]:
        """Where each entry starts, in units of 8 bytes. Raises Rot."""
        if self._offsets is None:
            assert self._summary is not None
            self._used = True
            offsets = entry_offsets(self._read, self.end)
            wanted = self._summary.last_index - self._summary.first_index + 1
            if len(offsets) != wanted or offsets[-1] << 3 != self._summary.last_offset:
                raise Rot(
                    f"{self.path}: its headers lead to {len(offsets)} entries, not {wanted}: one "
                    "is damaged; a start has it repaired by the leader",
                    self.base_position,
                )
            self._offsets = offsets
            self._good = bytearray(len(offsets))
        return self._offsets

    def adopt_scan(self, scan: Scan) -> None:
        """Take what a scan of the whole file found."""
        self._offsets, self.end = scan.offsets, scan.end
        self._good = bytearray(len(scan.offsets))

    def add(self, offset: int, end: int) -> None:
        """Note the place of another entry, in bytes of the file. Its bytes come from memory, so
        they are good."""
        self.offsets.append(offset >> 3)
        self._good.append(1)
        self.end = end

    def check(self, start: int, end: int) -> None:
        """Compare the entries that have bytes between offsets `start` and `end` with their CRCs.

        Entries that were good are not checked again until `doubt` is called. Raises Rot.
        """
        offsets = self._offsets or self.offsets
        first = max(bisect_right(offsets, start >> 3) - 1, 0)
        last = first + 1  # most reads are of one entry
        if last < len(offsets) and offsets[last] << 3 < end:
            last = bisect_left(offsets, -(-end // 8), last)
        if (at := self._good.find(0, first, last)) < 0:
            return
        self.touch(offsets[at] << 3, self.offset_behind(self.first_index + last - 1))
        while (at := self._good.find(0, at, last)) >= 0:
            offset = offsets[at] << 3
            header = decode_header(self.raw, offset)
            fault = fault_of(header, self.raw, offset, None, self.base_position + offset)
            if fault is not None:
                raise Rot(
                    f"{self.path}: the entry at offset {offset} is damaged ({fault}); a start has "
                    "it repaired by the leader",
                    self.base_position,
                )
            self._good[at] = 1

    def doubt(self) -> None:
        """Check all entries again when they are read next: their bytes may come from the disk by
        then."""
        self._good = bytearray(len(self._good))

    def adopt_summary(self, summary: SealedSegment) -> None:
        """Take what a checkpoint says; the entries' offsets are computed at the first read."""
        self._offsets, self.end, self._summary = None, summary.end, summary

    def summary(self, last_index: int) -> SealedSegment:
        """The row of this segment, whose last entry is `last_index`, in a checkpoint."""
        if self._summary is None:
            last = self.header(last_index)
            self._summary = SealedSegment(
                base_position=self.base_position,
                first_index=self.first_index,
                last_index=last_index,
                last_term=last.term,
                last_chain_crc=last.chain_crc,
                last_offset=self.offset_of(last_index),
                end=self.end,
            )
        return self._summary

    def read_part(self, offset: int, size_bytes: int) -> bytes:
        """A part of the file, not through the mapping. Raises Rot if the disk can't read it,
        OSError."""
        return self._whole(offset, size_bytes, partial(self._disk.read_part, self.path))

    def touch(self, start: int, end: int) -> None:
        """Make the kernel read from offset `start` to `end`, so that the mapping can be looked
        into. Raises Rot if the disk can't, OSError."""
        for offset in range(start, end, TOUCH_BYTES):
            self._read(offset, min(TOUCH_BYTES, end - offset))

    def _read(self, offset: int, size_bytes: int) -> bytes:
        """A part of the open file. Raises Rot if the disk can't read it, OSError."""
        return self._whole(offset, size_bytes, partial(self._disk.read_at, self.descriptor))

    def _whole(self, offset: int, size_bytes: int, read: Callable[[int, int], bytes]) -> bytes:
        try:
            raw = read(offset, size_bytes)
            if len(raw) < size_bytes:
                raise Unreadable(errno.EIO, "the file ends")
        except Unreadable as error:
            raise Rot(
                f"{self.path}: the disk can't read what is behind offset {offset} "
                f"({error.strerror}); a start has it repaired by the leader",
                self.base_position,
            ) from error
        return raw

    def batch_end(self, first_index: int, size_bytes: int) -> int:
        """The last index of a run that begins at `first_index` and passes `size_bytes` or ends."""
        offsets, first = self.offsets, first_index - self.first_index
        behind = bisect_left(offsets, offsets[first] + -(-size_bytes // 8), first + 1)
        return self.first_index + behind - 1

    def offset_of(self, index: int) -> int:
        """The offset of an entry in the file."""
        return self.offsets[index - self.first_index] << 3

    def offset_behind(self, index: int) -> int:
        """The offset behind an entry in the file."""
        at = index - self.first_index + 1
        return self.offsets[at] << 3 if at < len(self.offsets) else self.end

    def last_of(self, summary: SealedSegment) -> Header | None:
        """The last entry's header, if a summary still holds: the same entry, and none behind it.
        Raises Rot if the disk can't read it, OSError."""
        if not 0 <= summary.last_offset <= self.capacity_bytes - HEADER_BYTES:
            return None
        header = self._stored_header(summary.last_offset)
        end = summary.last_offset + padded(header.size)
        same = (
            header.magic == MAGIC
            and (header.index, header.term) == (summary.last_index, summary.last_term)
            and header.chain_crc == summary.last_chain_crc
            and end == summary.end
        )
        last = end + HEADER_BYTES > self.capacity_bytes or self._stored_header(end).magic == 0
        return header if same and last else None

    def _stored_header(self, offset: int) -> Header:
        return decode_header(self.read_part(offset, HEADER_BYTES))

    def header(self, index: int) -> Header:
        """The header of an entry."""
        return decode_header(self.raw, self.offset_of(index))

    def part(self, start: int, size_bytes: int) -> memoryview:
        """A part of the file, not copied.

        Reading everything at full speed must not bring all of it into this process's memory at
        once. So mapped pages are dropped here; they are mapped again for a view that is still in
        use.
        """
        self._read_bytes += size_bytes
        if self._read_bytes > PART_BYTES:
            self.forget_pages()
        return self.raw[start : start + size_bytes]

    def body(self, header: Header) -> memoryview:
        """An entry's body, not copied."""
        start = header.position - self.base_position + HEADER_BYTES
        return self.part(start, header.body_length)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write bytes; they are durable after the next :meth:`sync`."""
        self._disk.write(self.descriptor, buffers, offset)

    def mark(self, durable_index: int) -> None:
        """Write the watermark: everything up to `durable_index` is durable."""
        watermark_at = self.size_bytes - WATERMARK_BYTES
        self._disk.write(self.descriptor, [encode_watermark(durable_index)], watermark_at)

    def sync(self) -> None:
        """Make all that was written durable."""
        self._disk.sync_data(self.descriptor)

    def cut(self, count: int) -> None:
        """Keep the first `count` entries; overwrite what follows with zeros."""
        start = self.offsets[count] << 3 if count < len(self.offsets) else self.end
        step = 1 << 20
        for offset in range(start, self.end, step):
            self.write(offset, [bytes(min(step, self.end - offset))])
        del self.offsets[count:]
        del self._good[count:]
        self.end, self._summary = start, None

    def close(self) -> None:
        """Close the file for good. Views that were handed out stay valid."""
        if self._descriptor is not None:
            self._disk.close(self._descriptor)
            self._descriptor = None
