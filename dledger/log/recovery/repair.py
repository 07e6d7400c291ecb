"""Replaces damaged entries by a peer's good ones, in a log that is not open.

Theory of operation
-------------------
A start that finds a damaged entry which was durable once stops with :class:`DamagedLog`, which
names the :class:`Place` up to which the log is good. From there on entries that a leader has
confirmed to be committed are written over the old bytes, until one of them is there already. Equal
bytes hold an equal chain CRC, so everything before that entry is right. What follows it is checked
by the next start.

Whatever was at those indexes, the leader's committed entries belong there: other entries can never
be committed at them. So entries are written in place. A crash in between leaves bad bytes where bad
bytes were, and the next start begins again. Only sectors of the damaged range change; the entries
around it are rewritten with the bytes that they hold anyway.

The log before the damage may also hold entries that were never committed. Then the leader's entries
do not continue it, and the repair begins again at a place up to which everything is surely
committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dledger.buffers import Buffer
from dledger.errors import CorruptLog, FrameError
from dledger.failpoints import failpoint
from dledger.log.disk import Disk
from dledger.log.entry import Header, chain, padded
from dledger.log.recovery.rescue import make_empty, rescue
from dledger.log.segments.segment import Segment, segment_path

_CHAINED_PREFIX_BYTES = 36


class Place(NamedTuple):
    """The place before the entry `next_index`: the chain CRC that it continues, and the end of the
    entry before."""

    next_index: int
    chain_crc: int
    end_position: int


class DamagedLog(CorruptLog):
    """Entries that were durable can't be read any more, and a leader has them.

    The log is good up to `place`; up to `committed` all its entries are surely committed.
    """

    def __init__(self, what: str, place: Place, committed: Place) -> None:
        super().__init__(what)
        self.place = place
        self.committed = committed


class LogRepair:
    """A damaged range and its repair. `next` is the place of the entry that is needed next.

    `written` counts the entries that were written anew, `lost_bytes` what the disk could not read.
    """

    def __init__(self, folder: Path, segment_bytes: int, disk: Disk, damage: DamagedLog) -> None:
        self.next = damage.place
        self.written = 0
        self.lost_bytes = 0
        self.folder = folder
        self._segment_bytes = segment_bytes
        self.disk = disk
        self._damage = damage
        self._segments: dict[int, Segment] = {}

    def begin_at_what_is_committed(self) -> None:
        """The leader's entries do not continue this log: begin again where all is committed. Raises
        CorruptLog if that was tried already."""
        if self.next == self._damage.committed:
            raise CorruptLog(
                f"{self.folder}: the leader's log differs before entry {self.next.next_index}, "
                "up to which all was committed here: the replicas differ. Nothing was changed."
            )
        self.next = self._damage.committed

    def take(self, header: Header, raw_header: Buffer, body: Buffer) -> bool:
        """Write the next committed entry, whose body matches its CRC. Returns whether it was here
        already, so that the repair is done. Raises FrameError if it does not continue the log,
        OSError."""
        place = self.next
        chain_crc = chain(
            place.chain_crc, memoryview(raw_header)[:_CHAINED_PREFIX_BYTES], header.body_crc
        )
        if header.index != place.next_index or chain_crc != header.chain_crc:
            raise FrameError(
                f"entry {header.index} does not continue the log at {place.next_index}"
            )
        raw = bytes(raw_header) + bytes(body)
        raw += bytes(padded(len(raw)) - len(raw))
        self.next = Place(header.index + 1, header.chain_crc, header.end)
        segment = self._segment_at(header.position)
        offset = header.position - segment.base_position
        if segment.raw[offset : offset + len(raw)] == raw:
            return header.index >= self._damage.place.next_index
        self._zero_rest_of_segment(place.end_position, header.position)
        segment.write(offset, [raw])
        self.written += 1
        failpoint("repair.entry")
        return False

    def finish(self) -> None:
        """Make what was written durable, and close the files."""
        failpoint("repair.finish")
        for segment in self._segments.values():
            segment.sync()
            segment.close()
        self._segments.clear()

    def _segment_at(self, position: int) -> Segment:
        base = position - position % self._segment_bytes
        if base not in self._segments:
            path = segment_path(self.folder, base)
            if self.disk.size(path) is None:
                make_empty(self.disk, path, self._segment_bytes)
            elif lost_bytes := rescue(self.disk, path, self._segment_bytes):
                self.lost_bytes += lost_bytes
            self._segments[base] = Segment(self.disk, path, 0, self._segment_bytes)
        return self._segments[base]

    def _zero_rest_of_segment(self, end_position: int, position: int) -> None:
        """Overwrite what follows a segment's last entry with zeros."""
        segment = self._segment_at(end_position)
        if segment is not self._segment_at(position):
            end = end_position - segment.base_position
            segment.write(end, [bytes(segment.capacity_bytes - end)])
