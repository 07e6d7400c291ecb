"""Opening a replica's log after a stop, a crash or a power loss.

Sealed segments that the checkpoint vouches for are taken from its summaries; every later one is
read and checked, entry by entry. What :mod:`dledger.log.recovery` finds at the end decides:
a torn tail is cut, corruption stops the node with an error that names the place.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dledger.errors import CorruptLog, StorageError
from dledger.log.checkpoint import Checkpoint, SealedSegment, decode_checkpoint
from dledger.log.disk import Disk
from dledger.log.entry import MAGIC, Header, decode_header
from dledger.log.recovery import decode_watermark, first_valid_after, scan_segment
from dledger.log.segment import Segment, segment_path
from dledger.log.store import SegmentedLog


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found: how much was checked again, and how much of a torn tail was cut."""

    entries_checked: int
    torn_bytes: int
    torn_because: str | None


def open_log(
    folder: Path, segment_bytes: int, disk: Disk | None = None
) -> tuple[SegmentedLog, Recovery]:
    """Open the log in `folder`, or start one. Raises CorruptLog, StorageError, OSError."""
    disk = disk or Disk()
    disk.make_folder(folder)
    names = disk.names(folder)
    for leftover in (name for name in names if name.endswith(".new")):
        disk.remove(folder / leftover)
    bases = _segment_bases(folder, names, segment_bytes, disk)
    checkpoint = decode_checkpoint(disk.read(folder / "checkpoint"))
    return _Opening(folder, segment_bytes, disk, checkpoint).run(bases)


def _segment_bases(folder: Path, names: list[str], segment_bytes: int, disk: Disk) -> list[int]:
    bases = []
    for path in (folder / name for name in names if name.endswith(".seg")):
        if not path.stem.isdecimal() or int(path.stem) % segment_bytes:
            raise StorageError(
                f"{path}: its name is no multiple of the segment size of {segment_bytes} bytes; "
                "this log was made with another segment size"
            )
        if disk.size(path) != segment_bytes:
            raise CorruptLog(
                f"{path}: {disk.size(path)} bytes long, not {segment_bytes}: "
                "the file was shortened; let this replica copy it from a peer"
            )
        bases.append(int(path.stem))
    for base, following in pairwise(bases):
        if following != base + segment_bytes:
            raise CorruptLog(
                f"{folder}: the segment between positions {base} and {following} is missing"
            )
    return bases


class _Opening:
    """The state of one opening: segments so far, the last entry so far."""

    def __init__(self, folder: Path, segment_bytes: int, disk: Disk, known: Checkpoint) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.disk = disk
        self.known = known
        self.sealed = {summary.base_position: summary for summary in known.sealed}
        self.segments: list[Segment] = []
        self.last: Header | None = None
        self.next_index: int | None = None
        self.chain_crc = 0
        self.entries_checked = 0
        self.torn_bytes = 0
        self.torn_because: str | None = None

    def run(self, bases: list[int]) -> tuple[SegmentedLog, Recovery]:
        opened = [self._open_segment(base) for base in bases]
        durable_index = max((decode_watermark(segment.raw) for segment in opened), default=0)
        for at, segment in enumerate(opened):
            summary = self.sealed.get(segment.base_position)
            if summary is not None and at + 1 < len(opened) and self._fits(summary):
                self._take_summary(segment, summary)
                continue
            if not self._read(segment, durable_index):
                self._drop(opened[at:] if not segment.offsets else opened[at + 1 :])
                break
        log = SegmentedLog(
            self.folder,
            self.segment_bytes,
            self.disk,
            self.segments,
            self.last,
            min(self.known.commit_index, self.last.index if self.last else 0),
        )
        return log, Recovery(self.entries_checked, self.torn_bytes, self.torn_because)

    def _open_segment(self, base: int) -> Segment:
        descriptor = self.disk.open(segment_path(self.folder, base))
        return Segment(self.disk, descriptor, base, 0, self.segment_bytes)

    def _fits(self, summary: SealedSegment) -> bool:
        return self.next_index is None or summary.first_index == self.next_index

    def _take_summary(self, segment: Segment, summary: SealedSegment) -> None:
        segment.first_index = summary.first_index
        segment.adopt_summary(summary)
        self.segments.append(segment)
        self.last = segment.header(summary.last_index)
        self.next_index, self.chain_crc = summary.last_index + 1, summary.last_chain_crc

    def _read(self, segment: Segment, durable_index: int) -> bool:
        """Check a segment; whether the next one may follow."""
        if not self.segments and segment.base_position > 0:
            # The first entry's chain continues a value that went with the log's head.
            raise StorageError(
                f"{segment_path(self.folder, segment.base_position)}: the log's head is missing "
                "and no checkpoint says what came before it"
            )
        scan = scan_segment(segment.raw, segment.base_position, self.next_index, self.chain_crc)
        self.entries_checked += len(scan.offsets)
        if scan.fault is not None:
            self._judge_fault(segment, scan.end, scan.fault, scan.last, durable_index)
        if scan.last is not None and scan.first_index is not None:
            segment.first_index = scan.first_index
            segment.adopt_scan(scan)
            self.segments.append(segment)
            self.last, self.chain_crc = scan.last, scan.last.chain_crc
            self.next_index = scan.last.index + 1
        elif self.next_index is not None and self.next_index <= durable_index:
            raise CorruptLog(
                f"{segment_path(self.folder, segment.base_position)}: holds no entries, but "
                f"index {self.next_index} was durable here. Restore it from a peer."
            )
        return scan.fault is None and scan.last is not None

    def _judge_fault(
        self, segment: Segment, end: int, fault: str, last: Header | None, durable_index: int
    ) -> None:
        """Cut a torn tail; raise CorruptLog where acknowledged entries may be affected."""
        bad_index = last.index + 1 if last else (self.next_index or 1)
        path = segment_path(self.folder, segment.base_position)
        following = first_valid_after(segment.raw, end, segment.base_position)
        if bad_index <= max(durable_index, self.known.commit_index):
            after = (
                f"; entries that can be read follow from offset {following}" if following else ""
            )
            raise CorruptLog(
                f"{path}: entry {bad_index} at offset {end} is damaged ({fault}), although it was "
                f"durable (up to index {durable_index}){after}. Nothing was cut. Restore the file "
                "from a peer, or remove this replica's folder so that it copies everything."
            )
        self.torn_because = fault
        self.torn_bytes = self._wipe(segment, end)

    def _wipe(self, segment: Segment, end: int) -> int:
        """Overwrite a torn tail with zeros, durably; its length up to the last non-zero byte."""
        content = bytes(segment.raw[end : segment.capacity_bytes]).rstrip(b"\0")
        if content:
            segment.write(end, [bytes(len(content))])
            segment.sync(0)
        return len(content)

    def _drop(self, unread: list[Segment]) -> None:
        """Remove the segments behind the end of the log: they hold nothing that was durable."""
        for segment in reversed(unread):
            if decode_header(segment.raw).magic == MAGIC and self.torn_because is None:
                raise CorruptLog(
                    f"{segment_path(self.folder, segment.base_position)}: holds entries, but the "
                    "log ends before it"
                )
            self.disk.remove(segment_path(self.folder, segment.base_position))
            segment.close()
        if unread:
            self.disk.sync_folder(self.folder)
