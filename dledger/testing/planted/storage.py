"""Planted bugs of the log on disk."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from dledger.log import entry
from dledger.log.checkpoints import Checkpoints
from dledger.log.entry import Header, decode_header
from dledger.log.jobs import SyncJob
from dledger.log.recovery import startup
from dledger.log.scanning import walk
from dledger.log.scanning.checkpoint import Checkpoint, SealedSegment, decode_checkpoint
from dledger.log.segments.contents import Contents
from dledger.log.segments.next_segment import NextSegment
from dledger.log.segments.segment import PreparedSegment, Segment, segment_path
from dledger.log.store import SegmentedLog
from dledger.log.writing import Writing
from dledger.testing.disk import SimulatedDisk

Planted = AbstractContextManager[object]


def sync_nothing() -> Planted:
    """A sync returns without having done anything."""
    return patch.object(SyncJob, "run", lambda self: None)


def call_a_failed_sync_good() -> Planted:
    """An error of fdatasync is not looked at."""
    original = SegmentedLog.finish_sync

    def finish(self: SegmentedLog, job: SyncJob, error: OSError | None = None) -> None:
        original(self, job, None)

    return patch.object(SegmentedLog, "finish_sync", finish)


def vouch_for_what_a_cut_replaced() -> Planted:
    """A sync that began before a cut vouches for the entries that took the cut ones' places."""
    original = SegmentedLog.finish_sync

    def finish(self: SegmentedLog, job: SyncJob, error: OSError | None = None) -> None:
        original(self, job, error)
        self.durable_index = max(self.durable_index, min(job.target_index, self.last_index))

    return patch.object(SegmentedLog, "finish_sync", finish)


def vouch_for_unsynced_leftovers() -> Planted:
    """Bytes that a killed process wrote and never synced are taken for durable when they are
    read."""
    original = startup._Opening._read

    def read(self: startup._Opening, segment: Segment) -> bool:
        with patch.object(Segment, "sync", lambda self: None):
            return original(self, segment)

    return patch.object(startup._Opening, "_read", read)


def forget_the_folder() -> Planted:
    """New files are synced, the folder that names them is not."""
    return patch.object(SimulatedDisk, "sync_folder", lambda self, path: None)


def rely_on_unsynced_names() -> Planted:
    """A start takes the files that a killed process left for durable under their names."""
    return patch.object(startup, "_settle_names", lambda folder, disk: None)


def use_a_removed_segment() -> Planted:
    """A segment that was being prepared while the log was cut is used, although the cut may have
    removed its file."""
    original = NextSegment.adopt

    def adopt(self: NextSegment, prepared: PreparedSegment) -> None:
        original(self, replace(prepared, generation=self._contents.generation))

    return patch.object(NextSegment, "adopt", adopt)


def replace_a_segment_that_has_entries() -> Planted:
    """A thread that prepares a segment looks where the log ends before it has the lock."""

    def prepare(self: NextSegment) -> PreparedSegment:
        contents = self._contents
        generation = contents.generation
        base = contents.segments[-1].base_position + contents.segment_bytes
        with self._creating:
            descriptor = self._create(segment_path(self._folder, base))
        return PreparedSegment(base, descriptor, generation)

    return patch.object(NextSegment, "prepare", prepare)


def use_a_segment_that_a_cut_is_removing() -> Planted:
    """A cut counts when it begins, and not again when the files are gone."""
    original = Contents.cut

    def cut(self: Contents, first_index: int) -> None:
        self.generation -= 1
        original(self, first_index)

    return patch.object(Contents, "cut", cut)


def take_a_name_that_was_not_synced() -> Planted:
    """A segment's file that is there is taken, although making it failed at the folder's sync."""

    def create(self: NextSegment, path: Path) -> int:
        if self._disk.size(path) is not None:
            return self._disk.open(path)
        return self._disk.create(path, self._contents.segment_bytes)

    return patch.object(NextSegment, "_create", create)


def keep_the_watermark() -> Planted:
    """A cut leaves a watermark that says of cut entries that they are durable."""
    original = SegmentedLog._cut_files

    def cut(self: SegmentedLog, first_index: int) -> None:
        with patch.object(Segment, "mark", lambda self, durable_index: None):
            original(self, first_index)

    return patch.object(SegmentedLog, "_cut_files", cut)


def vouch_for_no_new_segment() -> Planted:
    """No segment says that the next one has durable entries."""
    return patch.object(Writing, "_vouch", lambda self, durable_index: [])


def vouch_for_what_a_cut_removed() -> Planted:
    """A cut at the beginning of a segment does not lower the watermark of the one before."""
    original = Contents.segments_from

    def segments_from(self: Contents, index: int) -> list[Segment]:
        return original(self, index + 1)

    return patch.object(Contents, "segments_from", segments_from)


def raise_watermarks() -> Planted:
    """A start that lowers one watermark writes the same into all segments: an early one then
    vouches for what lies behind it, and a later cut there does not lower it."""

    def mark_all(self: startup._Opening, last_index: int) -> None:
        for segment in self.segments:
            segment.mark(last_index)
            segment.sync()

    return patch.object(startup._Opening, "_lower_watermarks", mark_all)


def believe_a_stale_checkpoint() -> Planted:
    """A checkpoint's summary of a segment is taken without a look at the segment."""

    def last_of(self: Segment, summary: SealedSegment) -> Header | None:
        return decode_header(self.raw, summary.last_offset)

    return patch.object(Segment, "last_of", last_of)


def miss_no_lost_segment() -> Planted:
    """A start does not compare the log's end with what the checkpoint knows to be committed."""

    def decode(raw: bytes) -> Checkpoint:
        return replace(decode_checkpoint(raw), commit_index=0)

    return patch.object(startup, "decode_checkpoint", decode)


def note_no_new_segment() -> Planted:
    """A checkpoint is written now and then only, and not when the first entry in a segment is
    committed."""
    return patch.object(Checkpoints, "is_due", False)


def cut_what_was_durable() -> Planted:
    """Recovery takes every damage for a torn tail."""
    return patch.object(startup, "decode_watermark", lambda raw: 0)


def leave_what_lies_behind() -> Planted:
    """A start leaves the parts of writes that lie behind the end of the log."""
    return patch.object(startup._Opening, "_wipe", lambda self, segment: None)


def skip_the_body_checksum() -> Planted:
    """Recovery checks the checksums of headers only."""

    def crc_fault(
        header: Header, raw: memoryview, offset: int, previous_chain_crc: int | None
    ) -> str | None:
        fault = entry.crc_fault(header, raw, offset, previous_chain_crc)
        return None if fault is not None and fault.startswith("the body") else fault

    return patch.object(walk, "crc_fault", crc_fault)
