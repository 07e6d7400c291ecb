"""Opening a replica's log after a stop, a crash or a power loss.

For sealed segments in the checkpoint its summaries are trusted; every later segment is read and
checked, entry by entry. :mod:`dledger.log.scanning.tail` judges the end: a torn tail is cut,
corruption stops the start with an error that names the place. Where entries are missing or damaged
that is a :class:`~dledger.log.recovery.repair.DamagedLog`: the leader has them.

What the disk can't read is damage, too, wherever it lies in a segment that has to be read. A file
that ends too early has lost what was behind its end, its watermark with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dledger.errors import CorruptLog, Rot, StorageError
from dledger.failpoints import failpoint
from dledger.log.disk import Disk, Unreadable
from dledger.log.entry import HEADER_BYTES, Header, decode_header
from dledger.log.head import LogHead, decode_head
from dledger.log.recovery.repair import DamagedLog, Place
from dledger.log.scanning.checkpoint import Checkpoint, SealedSegment, decode_checkpoint
from dledger.log.scanning.tail import (
    EVERYTHING,
    WATERMARK_BYTES,
    decode_watermark,
    first_valid_after,
    scan_segment,
)
from dledger.log.segments.segment import Segment, segment_path
from dledger.log.store import SegmentedLog

_WIPE_BYTES = 1 << 20
_ADVICE = (
    "Let the leader repair it (repairDamagedLog), or remove this replica's folder so that it "
    "copies everything."
)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of opening the log: how much was checked again, and how much of a torn tail was
    cut."""

    entries_checked: int
    torn_bytes: int
    torn_because: str | None


def open_log(
    folder: Path, segment_bytes: int, disk: Disk | None = None, committed_end: int | None = None
) -> tuple[SegmentedLog, Recovery]:
    """Open the log in `folder`, or start one.

    `committed_end`: while this node took no part, a leader has confirmed that nothing which this
    node may have held behind that index is committed. So damage behind it is cut.

    Raises DamagedLog if a leader could help, CorruptLog, StorageError, OSError.
    """
    disk = disk or Disk()
    disk.make_folder(folder)
    _settle_names(folder, disk)
    names = disk.names(folder)
    for leftover in (name for name in names if name.endswith(".new")):
        disk.remove(folder / leftover)
    head = _read_head(folder, disk)
    _remove_before(head, folder, names, disk)
    bases = _segment_bases(folder, disk.names(folder), segment_bytes, disk)
    checkpoint = _read_checkpoint(folder, disk)
    opening = _Opening(folder, segment_bytes, disk, checkpoint, head, committed_end)
    log, recovery = opening.run(bases)
    if head.replacing:
        log.replace_by(head)
    failpoint("recovery.opened")
    return log, recovery


def _settle_names(folder: Path, disk: Disk) -> None:
    """Make durable which files there are: a killed process may have named or removed one, and not
    have synced the folder.

    All that follows relies on it. Otherwise a power loss could bring back a segment that a cut had
    removed, or an old head after the segments before the new one are gone.
    """
    disk.sync_folder(folder)


def _read_checkpoint(folder: Path, disk: Disk) -> Checkpoint:
    """The checkpoint; an empty one if it can't be read or does not check. Then more has to be
    read."""
    try:
        return decode_checkpoint(disk.read(folder / "checkpoint"))
    except Unreadable:
        return Checkpoint()


def _read_head(folder: Path, disk: Disk) -> LogHead:
    try:
        return decode_head(disk.read(folder / "head"))
    except (CorruptLog, Unreadable) as error:
        raise CorruptLog(f"{folder / 'head'}: {error}. {_ADVICE}") from error


def _remove_before(head: LogHead, folder: Path, names: list[str], disk: Disk) -> None:
    """Finish an interrupted removal: of old segments, or of all segments for a new head."""
    void = [
        name
        for name in names
        if name.endswith(".seg")
        and (head.replacing or (name[:-4].isdecimal() and int(name[:-4]) < head.base_position))
    ]
    if head.replacing:
        void.append("checkpoint")
    for name in void:
        disk.remove(folder / name)
    if void:
        disk.sync_folder(folder)


def _segment_bases(folder: Path, names: list[str], segment_bytes: int, disk: Disk) -> list[int]:
    bases = []
    for path in (folder / name for name in names if name.endswith(".seg")):
        if not path.stem.isdecimal() or int(path.stem) % segment_bytes:
            raise StorageError(
                f"{path}: its name is not a multiple of the segment size of {segment_bytes} bytes; "
                "this log was made with another segment size"
            )
        if (disk.size(path) or 0) > segment_bytes:
            raise CorruptLog(
                f"{path}: {disk.size(path)} bytes long, more than the {segment_bytes} of a "
                f"segment: another program has written to it. {_ADVICE}"
            )
        bases.append(int(path.stem))
    return bases


class _Opening:
    """The state of one opening: segments so far, the last entry so far."""

    def __init__(
        self,
        folder: Path,
        segment_bytes: int,
        disk: Disk,
        known: Checkpoint,
        head: LogHead,
        committed_end: int | None,
    ) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.disk = disk
        self.known = known
        #: Everything up to here was durable once: a log that ends before it has lost entries.
        self.durable_index = 0
        self.sealed = {summary.base_position: summary for summary in known.sealed}
        self.segments: list[Segment] = []
        self.last: Header | None = None
        self.head = head
        self.next_index = head.first_index
        self.chain_crc = head.chain_crc
        self.end_position = head.base_position
        self.committed_end = committed_end
        #: Up to here all entries of the log are surely committed.
        self.committed = self._place()
        self.entries_checked = 0
        self.unchecked_index = 0
        self.torn_bytes = 0
        self.torn_because: str | None = None
        #: The base positions of segments whose watermark the disk can't read.
        self.unmarked = set[int]()

    def run(self, bases: list[int]) -> tuple[SegmentedLog, Recovery]:
        every = [self._open_segment(base) for base in bases]
        watermarks = [self._watermark_of(segment) for segment in every]
        if self.head.first_index > 1 and not self.head.replacing:
            self.durable_index = self.head.first_index
        self.durable_index = max(self.durable_index, self.known.commit_index, *watermarks)
        if self.committed_end is not None:
            self.durable_index = min(self.durable_index, self.committed_end)
        opened = self._before_a_hole(every)
        unread: list[Segment] = every[len(opened) :]
        for at, segment in enumerate(opened):
            summary = self.sealed.get(segment.base_position)
            if summary is not None and at + 1 < len(opened) and self._take(segment, summary):
                continue
            if not self._read(segment):
                unread = every[at:] if not segment.offsets else every[at + 1 :]
                break
        self._check_end(every[len(opened) :])
        # Only after all checks: if the start is refused, these files are evidence, and perhaps the
        # only copy.
        last_index = self.next_index - 1
        if max(watermarks, default=0) > last_index:
            self._lower_watermarks(last_index)
        failpoint("recovery.checked")
        self._drop(unread)
        failpoint("recovery.dropped")
        if self.segments:
            self._wipe(self.segments[-1])
        log = SegmentedLog(
            self.folder,
            self.segment_bytes,
            self.disk,
            self.segments,
            self.last,
            min(self.known.commit_index, last_index),
            self.head,
            self.unchecked_index,
        )
        return log, Recovery(self.entries_checked, self.torn_bytes, self.torn_because)

    def _far(self) -> str:
        """How far the log was durable, in words."""
        if self.durable_index == EVERYTHING:
            return "to where nobody knows, since the disk has lost a part of it"
        return f"up to {self.durable_index}"

    def _place(self) -> Place:
        return Place(self.next_index, self.chain_crc, self.end_position)

    def _open_segment(self, base: int) -> Segment:
        return Segment(self.disk, segment_path(self.folder, base), 0, self.segment_bytes)

    def _watermark_of(self, segment: Segment) -> int:
        """A segment's watermark; 0 if there is none, or the disk can't read it."""
        try:
            raw = segment.read_part(segment.capacity_bytes, WATERMARK_BYTES)
        except Rot:
            self.unmarked.add(segment.base_position)
            return 0
        return decode_watermark(memoryview(raw))

    def _was_written_to(self, segment: Segment) -> bool:
        try:
            begins = decode_header(segment.read_part(0, HEADER_BYTES)).magic != 0
        except Rot:
            return True
        return begins or self._watermark_of(segment) > 0

    def _before_a_hole(self, every: list[Segment]) -> list[Segment]:
        """The segments from the log's head on, up to the first missing one."""
        base = self.head.base_position
        for at, segment in enumerate(every):
            if segment.base_position != base + at * self.segment_bytes:
                return every[:at]
        return every

    def _check_end(self, behind_a_hole: list[Segment]) -> None:
        """Raise DamagedLog if the log ends before what was durable. A crash may leave a prepared
        segment behind a removed one, which was never written to. Any other hole is a loss."""
        last_index = self.next_index - 1
        if last_index < self.durable_index:
            raise DamagedLog(
                f"{self.folder}: the log ends at index {last_index}, although it was durable "
                f"{self._far()}. Nothing was cut. {_ADVICE}",
                self._place(),
                self.committed,
            )
        if self.committed_end is None and any(map(self._was_written_to, behind_a_hole)):
            raise CorruptLog(
                f"{self.folder}: a segment before position {behind_a_hole[0].base_position} is "
                f"missing. {_ADVICE}"
            )

    def _lower_watermarks(self, last_index: int) -> None:
        """Lower the watermarks that vouch for entries which were not committed and are cut now.

        No others: a segment's watermark is never above the first entry of the next segment, so that
        a later cut of what lies behind that need not look at it. What stands for a lost one says
        more than that.
        """
        behind = [segment.first_index for segment in self.segments[1:]] + [last_index + 1]
        for segment, next_index in zip(self.segments, behind, strict=True):
            if self._watermark_of(segment) > last_index:
                segment.mark(next_index - 1)
                segment.sync()

    def _take(self, segment: Segment, summary: SealedSegment) -> bool:
        """Trust a summary for a segment, if it still holds; returns whether it does. Else the
        segment must be read."""
        if segment.base_position in self.unmarked or self.next_index != summary.first_index:
            return False
        try:
            last = segment.last_of(summary)
        except Rot:
            return False
        if last is None:
            return False
        segment.first_index = summary.first_index
        segment.adopt_summary(summary)
        self.segments.append(segment)
        self._go_behind(last)
        self.unchecked_index = last.index
        segment.release()
        return True

    def _go_behind(self, last: Header) -> None:
        self.last, self.chain_crc = last, last.chain_crc
        self.next_index, self.end_position = last.index + 1, last.end
        if last.index <= self.known.commit_index:
            self.committed = self._place()

    def _read(self, segment: Segment) -> bool:
        """Read and check a segment; returns whether another may follow."""
        try:
            segment.touch(0, self.segment_bytes)
        except Rot as rot:
            self._judge_unreadable(rot)
            return False
        place = segment.base_position, self.next_index, self.chain_crc
        scan = scan_segment(segment.raw, *place, segment.forget_pages)
        self.entries_checked += len(scan.offsets)
        if scan.fault is not None:
            self._judge_fault(segment, scan.end, scan.fault, scan.last)
        # Entries that a killed process wrote can be read, but a power loss could still lose them.
        # After this sync the node may vouch for them.
        segment.sync()
        if scan.last is not None and scan.first_index is not None:
            segment.first_index = scan.first_index
            segment.adopt_scan(scan)
            self.segments.append(segment)
            self._go_behind(scan.last)
        segment.release()
        return scan.fault is None and scan.last is not None

    def _judge_fault(self, segment: Segment, end: int, fault: str, last: Header | None) -> None:
        """Cut a torn tail; raise CorruptLog where acknowledged entries may be affected."""
        bad_index = last.index + 1 if last else self.next_index
        if bad_index <= self.durable_index:
            following = first_valid_after(segment.raw, end, segment.base_position)
            after = (
                f"; entries that can be read follow from offset {following}" if following else ""
            )
            if last is not None:
                self._go_behind(last)
            raise DamagedLog(
                f"{segment_path(self.folder, segment.base_position)}: entry {bad_index} at offset "
                f"{end} is damaged ({fault}), although it was durable {self._far()}{after}. "
                f"Nothing was cut. {_ADVICE}",
                self._place(),
                self.committed,
            )
        self.torn_because = fault

    def _judge_unreadable(self, rot: Rot) -> None:
        """A segment can't be read: drop it if all of it lies behind what is committed, else raise
        DamagedLog."""
        if self.committed_end is None or self.next_index <= self.committed_end:
            what = f"{rot}. Nothing was cut. {_ADVICE}"
            raise DamagedLog(what, self._place(), self.committed)
        self.torn_because = str(rot)

    def _wipe(self, segment: Segment) -> None:
        """Overwrite with zeros whatever a crash left behind the last entry.

        All of the rest, not only the place where reading stopped: behind the zeros of a lost write
        there may be parts of a later write. If a new entry ended just before them, they would look
        like damage.
        """
        for start in range(segment.end, segment.capacity_bytes, _WIPE_BYTES):
            piece = bytes(segment.part(start, min(_WIPE_BYTES, segment.capacity_bytes - start)))
            if piece.count(0) != len(piece):
                segment.write(start, [bytes(len(piece))])
                self.torn_bytes = start + len(piece.rstrip(b"\0")) - segment.end
                self.torn_because = self.torn_because or "a write before it was lost"
        if self.torn_bytes:
            segment.sync()

    def _drop(self, unread: list[Segment]) -> None:
        """Remove the segments behind the end of the log, the last one first."""
        for segment in reversed(unread):
            self.disk.remove(segment_path(self.folder, segment.base_position))
            self.disk.sync_folder(self.folder)
            segment.close()
