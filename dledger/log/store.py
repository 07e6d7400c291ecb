"""The log of one replica: append at the end, cut a conflicting tail, read by index or position.

Theory of operation
-------------------
Appending stages bytes in memory; :meth:`SegmentedLog.write_out` hands all that is staged to the
kernel in one gathered write, and every read does that first, so readers see no difference. Making
it durable is a separate step that may run in a thread: :meth:`SegmentedLog.start_sync` says what a
sync would cover, `run` of that job does it, :meth:`SegmentedLog.finish_sync` moves `durable_index`.
Appending may go on meanwhile; later entries wait for the next sync.

A log has four parts, and only a part changes its own fields: `Contents` knows the entries,
`Writing` those that are not in the files yet, and `LogReader` reads both. `NextSegment` makes the
file of the next segment. This module decides what is appended, cut and removed.

Invariants
----------
- indices are consecutive; an entry never spans segments; entry k's position follows from entry
  k - 1's and its own size alone;
- `durable_index` never exceeds what a completed sync covered;
- a cut never removes an entry at or below `commit_index`: that would take back a promise;
- after a failed write or sync the log is fenced: it raises :class:`~dledger.errors.Fenced` for
  ever, because what the disk holds is no longer known.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Lock

from dledger import limits
from dledger.buffers import Buffer
from dledger.errors import CorruptLog, StorageError, TooLarge
from dledger.failpoints import failpoint
from dledger.log.checkpoints import Checkpoints
from dledger.log.disk import Disk
from dledger.log.entry import (
    HEADER_BYTES,
    Draft,
    Header,
    body_size,
    chain,
    make_header,
    place_body,
)
from dledger.log.head import LogHead, encode_head, first_entry_of
from dledger.log.jobs import SyncJob, TrimJob
from dledger.log.reading import LogReader
from dledger.log.scanning.tail import WATERMARK_BYTES
from dledger.log.segments.contents import Contents
from dledger.log.segments.next_segment import NextSegment
from dledger.log.segments.segment import PreparedSegment, Segment, segment_path
from dledger.log.segments.space import Space
from dledger.log.writing import Writing


class SegmentedLog:
    """The log of a replica, in segment files. Other threads may call `run` of jobs and
    `next_segment.prepare` only.

    What is in it is read by its `reader`.
    """

    def __init__(
        self,
        folder: Path,
        segment_bytes: int,
        disk: Disk,
        segments: list[Segment],
        last: Header | None,
        commit_index: int = 0,
        head: LogHead | None = None,
        unchecked_index: int = 0,
    ) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        #: The largest entry, header and body: the general limit, or what a segment can hold.
        self.entry_bytes_max = min(limits.ENTRY_BYTES_MAX, segment_bytes - WATERMARK_BYTES)
        self._disk = disk
        self._contents = Contents(segment_bytes, segments, last, head or LogHead())
        self._writing = Writing(self._contents)
        self.commit_index = commit_index
        #: Called with the first and the last index of a tail that is about to be cut.
        self.on_cut: Callable[[int, int], None] = lambda first, last: None
        self.durable_index = self.last_index
        self._syncing: tuple[Segment, ...] = ()
        self._retired: list[Segment] = []
        #: How often the whole log was replaced.
        self.replacements = 0
        self._replacing = Lock()
        #: Whether the disk has room for more.
        self.next_segment = NextSegment(folder, self._contents, disk)
        self.space = Space(self._contents, self.next_segment)
        #: Entries that a restart need not read again.
        self.checkpoints = Checkpoints(self, self._contents, disk)
        self.reader = LogReader(self._contents, self._writing, disk, unchecked_index)

    # -- where things are ------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """The lowest index that can be read; 1 for an empty log."""
        return self._contents.first_index

    @property
    def last_index(self) -> int:
        """The index of the last entry; 0 for an empty log."""
        return self._contents.last_index

    @property
    def last(self) -> Header | None:
        """The header of the last entry."""
        return self._contents.last

    @property
    def first_position(self) -> int:
        """The lowest position that can be read."""
        return self._contents.first_position

    @property
    def end_position(self) -> int:
        """The position behind the last entry."""
        return self._contents.end_position

    @property
    def chain_crc(self) -> int:
        """The chain CRC that the next entry continues."""
        return self._contents.chain_crc

    @property
    def fenced(self) -> str | None:
        """Why the log takes no more entries; None if it does."""
        return self._writing.fenced

    @property
    def kept_index(self) -> int:
        """Up to here all entries are committed, and durable on this node."""
        return min(self.commit_index, self.durable_index)

    # -- appending -------------------------------------------------------------------------

    def append(
        self, index: int, term: int, kind: int, body: Buffer | Draft, size: int | None = None
    ) -> Header:
        """Stage a new entry that this node makes; `size` is its :meth:`checked_size`, if that is
        known. Raises TooLarge, Fenced."""
        contents = self._contents
        position = contents.position_for(self.checked_size(body) if size is None else size)
        content = place_body(body, position + HEADER_BYTES, index, term)
        header, raw = make_header(
            contents.chain_crc, index=index, term=term, position=position, kind=kind, body=content
        )
        self._stage(header, raw, content)
        return header

    def checked_size(self, body: Buffer | Draft) -> int:
        """The bytes of an entry with that body, header and all. Raises TooLarge."""
        size = HEADER_BYTES + body_size(body)
        if size > self.entry_bytes_max:
            raise TooLarge(f"an entry of {size} bytes is above the limit of {self.entry_bytes_max}")
        return size

    def append_copy(self, header: Header, raw_header: Buffer, body: Buffer) -> None:
        """Stage an entry that a leader made, after checking that it continues this log.

        The body was checked against its CRC when it was received.

        Raises CorruptLog where the chain CRC does not continue this log: the two replicas differ
        below, or the leader's copy is damaged.
        """
        chain_crc = chain(self.chain_crc, raw_header, header.body_crc)
        position = self._contents.position_for(header.size)
        if header.position != position or chain_crc != header.chain_crc:
            raise CorruptLog(
                f"entry {header.index} of term {header.term} at position {header.position} does "
                f"not continue this log, which ends at index {self.last_index}, position "
                f"{self.end_position}: the replicas differ, or the leader's copy is damaged"
            )
        self._stage(header, raw_header, body)

    def _stage(self, header: Header, raw_header: Buffer, body: Buffer) -> None:
        contents, segments = self._contents, self._contents.segments
        self._writing.check()
        if header.index != contents.last_index + 1:
            raise StorageError(f"index {header.index} cannot follow {contents.last_index}")
        if not segments or header.position >= segments[-1].base_position + self.segment_bytes:
            self._writing.write_out()
            contents.begin_segment(self._start_segment(header))
        self._writing.stage(header.position - segments[-1].base_position, raw_header, body)
        contents.add(header)

    def write_out(self) -> None:
        """Hand what is staged to the kernel. Raises Fenced if that fails."""
        self._writing.write_out()

    # -- segments --------------------------------------------------------------------------

    def _start_segment(self, header: Header) -> Segment:
        base = header.position - header.position % self.segment_bytes
        path = segment_path(self.folder, base)
        try:
            descriptor = self.next_segment.take(base)
        except OSError as error:
            self._writing.fence(f"creating {path}", error)
        return Segment(self._disk, path, header.index, self.segment_bytes, descriptor)

    @property
    def wants_segment(self) -> bool:
        """Whether the next segment should be prepared now: the last one is half full, or the disk
        had no room for it when an entry needed it."""
        segments = self._contents.segments
        if self.next_segment.is_ready or not segments or self._writing.fenced is not None:
            return False
        return segments[-1].end * 2 > self.segment_bytes or self.space.lacking is not None

    def adopt_segment(self, prepared: PreparedSegment) -> None:
        """Keep the next segment, which was prepared; so the disk had room for it."""
        self.space.lacking = None
        self.next_segment.adopt(prepared)

    def forget_pages(self) -> None:
        """Keep the mapped part of the files small, however much is read.

        A leader reads all that it sends. Without this every page would count as this process's
        memory until its segment is released: gigabytes at full speed.
        """
        for segment in self._contents.segments:
            segment.forget_pages()

    def release_idle(self) -> None:
        """Close sealed segments that were not read since the last call.

        So open files, mappings and memory do not grow with the log. Checks of what was read or
        written also expire here: see `checked_view`.
        """
        segments, busy = self._contents.segments, self._busy()
        for segment in segments:
            segment.doubt()
        for segment in segments[:-1]:
            if segment not in busy:
                segment.release_if_idle()

    # -- durability ------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether there are entries that no sync under way covers."""
        return self._writing.is_dirty

    def _busy(self) -> set[Segment]:
        """Segments that wait to be synced, or are being synced."""
        return {*self._writing.unsynced, *self._syncing}

    def start_sync(self) -> SyncJob | None:
        """A sync of all entries that are not durable; None if there are none. Raises Fenced."""
        self._writing.write_out()
        if not self._writing.unsynced:
            return None
        # Marked here and not in the sync's thread: after a cut in between, a watermark would vouch
        # for entries that are gone.
        self._syncing = self._writing.take_unsynced(self.durable_index)
        return SyncJob(self._syncing, self.last_index, self._contents.generation)

    def finish_sync(self, job: SyncJob, error: OSError | None = None) -> None:
        """Note that a sync has ended. Raises Fenced if it failed."""
        if error is not None:
            self._writing.fence("fdatasync", error)
        self._syncing = ()
        if job.generation == self._contents.generation:
            self.durable_index = max(self.durable_index, job.target_index)
        for segment in self._retired:
            segment.close()
        self._retired.clear()

    def sync(self) -> None:
        """Make everything durable before this returns. Raises Fenced if the sync fails."""
        job = self.start_sync()
        if job is not None:
            try:
                job.run()
            except OSError as error:
                self.finish_sync(job, error)
            self.finish_sync(job)

    def cut(self, first_index: int) -> None:
        """Remove the entries from `first_index` on, durably. Raises StorageError if committed."""
        if first_index <= self.commit_index:
            raise StorageError(
                f"cutting from index {first_index} would take back entries that are committed "
                f"up to {self.commit_index}: refused"
            )
        self.on_cut(first_index, self.last_index)
        self._writing.write_out()
        self._contents.note_removal()
        self.durable_index = min(self.durable_index, first_index - 1)
        try:
            self._cut_files(first_index)
        except OSError as error:
            self._writing.fence("cutting a conflicting tail", error)
        # A sync under way no longer counts, so its segments must be synced again.
        segments = self._contents.segments
        unsynced = {*self._busy(), segments[-1]}
        self._writing.was_cut([segment for segment in segments if segment in unsynced])

    def _cut_files(self, first_index: int) -> None:
        """Cut in an order that a crash may interrupt anywhere.

        No file may be missing between others, so the last one is removed first. And no watermark
        may vouch for an entry that is gone, or a restart would take the cut for a loss. So
        watermarks are lowered before anything is removed, that of the segment before, too: it may
        vouch for the first entry that is cut.
        """
        if self.next_segment.discard():
            self._disk.sync_folder(self.folder)
        contents = self._contents
        for segment in contents.segments_from(first_index - 1):
            segment.mark(self.durable_index)
            segment.sync()
        while contents.segments[-1].first_index >= first_index and len(contents.segments) > 1:
            segment = contents.drop_last_segment()
            self._disk.remove(segment.path)
            self._retired.append(segment)
            self._disk.sync_folder(self.folder)
        contents.note_removal()
        contents.cut(first_index)
        contents.segments[-1].sync()

    # -- the head --------------------------------------------------------------------------

    def holds_before(self, first_index: int) -> bool:
        """Whether a whole segment lies before `first_index`, so that a trim may remove it."""
        segments = self._contents.segments
        return len(segments) > 1 and segments[1].first_index <= first_index

    def trim(self, first_index: int) -> TrimJob | None:
        """Forget the segments that lie wholly before `first_index`. The job removes their files;
        None if there are none. Only committed and durable entries are removed, and never all.

        The caller vouches that no state machine and no follower needs them. Raises Rot.
        """
        safe_index = min(first_index, self.commit_index, self.durable_index)
        segments, busy = self._contents.segments, self._busy()
        count = 0
        for segment, following in pairwise(segments):
            if following.first_index > safe_index or segment in busy:
                break
            count += 1
        if not count:
            return None
        head = self.reader.head_before(segments[count].first_index)
        removed = self._contents.trim(count, head)
        self._retired += removed
        return TrimJob(
            self.remove_head, head, tuple(segment.path for segment in removed), self.replacements
        )

    def remove_head(self, job: TrimJob) -> None:
        """Run a job of :meth:`trim`, unless the log was replaced meanwhile and has another head."""
        with self._replacing:
            if job.replacements == self.replacements:
                self._disk.replace(self.folder / "head", encode_head(job.head))
            failpoint("log.trimmed")
            for path in job.paths:
                self._disk.remove(path)
            self._disk.sync_folder(self.folder)

    def replace_by(self, head: LogHead) -> None:
        """Drop all entries, and begin anew with the first entry that `head` carries, durably.

        Raises StorageError if that would take back what is committed, CorruptLog if the entry
        does not check, Fenced.
        """
        if head.first_index <= self.commit_index:
            raise StorageError(
                f"a log that begins with entry {head.first_index} would take back entries that "
                f"are committed up to {self.commit_index}: refused"
            )
        self._writing.check()
        header, raw_header, body = first_entry_of(head)
        self.on_cut(self.first_index, self.last_index)
        self._contents.note_removal()
        try:
            with self._replacing:
                self.replacements += 1
                self._disk.replace(self.folder / "head", encode_head(head))
            failpoint("log.replace")
            self._drop_all(head)
            self.append_copy(header, raw_header, body)
            self._writing.write_out()
            # Not by `self.sync`: that would close files that a thread may still be syncing.
            self._contents.segments[-1].sync()
            self.durable_index = self.last_index
            # Now the entry is in a segment, so a start can do without the head's copy.
            self._contents.take_first_entry()
            self._disk.replace(self.folder / "head", encode_head(self._contents.head))
        except OSError as error:
            self._writing.fence("replacing the log", error)

    def _drop_all(self, head: LogHead) -> None:
        self.next_segment.discard()
        for segment in reversed(self._contents.segments):
            self._disk.remove(segment.path)
        self._disk.remove(self.folder / "checkpoint")
        self._disk.sync_folder(self.folder)
        self._contents.note_removal()
        self._retired += self._contents.replace(head)
        self._writing.was_replaced()
        self._syncing = ()
        self.durable_index = self.last_index

    # -- the end -----------------------------------------------------------------------

    def close(self) -> None:
        """Write and sync everything, leave a checkpoint, close the files."""
        if self.fenced is None:
            self.sync()
            self.checkpoints.save(self.checkpoints.take())
        self.close_files()

    def close_files(self) -> None:
        """Close the segments' files. A later read opens its file again, until the next call."""
        for segment in (*self._contents.segments, *self._retired):
            segment.close()
        self.next_segment.close()
