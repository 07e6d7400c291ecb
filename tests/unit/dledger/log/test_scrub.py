"""Scrubs read sealed segments again, and find damage that no start and no reader sees."""

from __future__ import annotations

import pytest

from dledger.errors import Rot
from dledger.log.entry import HEADER_BYTES, Kind
from dledger.log.recovery.repair import DamagedLog
from dledger.log.recovery.scrub import SLICE_BYTES, Scrub
from dledger.log.recovery.startup import open_log
from dledger.log.segments.segment import segment_path
from dledger.log.store import SegmentedLog
from dledger.testing.disk import SimulatedDisk
from dledger.testing.scripted.node import FOLDER

SEGMENT_BYTES = 1 << 20
BODY_BYTES = 10_000


def filled(disk: SimulatedDisk, entries: int) -> SegmentedLog:
    """A log of durable, committed entries, reopened with a checkpoint that vouches for it."""
    log = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
    for index in range(1, entries + 1):
        log.append(index, 1, Kind.MESSAGES, bytes([index % 251]) * BODY_BYTES)
    log.sync()
    log.commit_index = entries
    log.close()
    return open_log(FOLDER, SEGMENT_BYTES, disk)[0]


def flip(disk: SimulatedDisk, log: SegmentedLog, index: int) -> int:
    """Flip a bit in an entry's body; the first position of its segment."""
    position = log.reader.header(index).position
    base = position - position % SEGMENT_BYTES
    disk.flip_bit(segment_path(FOLDER, base), position - base + 500, 4)
    return base


def scrub_all(scrub: Scrub, log: SegmentedLog) -> int:
    """Do one pass, and return the last index that was checked."""
    checked = 0
    while (part := scrub.next_slice(log.commit_index)) is not None:
        place = part.check()
        assert place.next_index > part.place.next_index
        assert place.end_position - part.place.end_position <= SLICE_BYTES
        scrub.checked(part, place)
        checked = place.next_index - 1
    return checked


def test_a_pass_reads_every_entry_of_the_sealed_segments() -> None:
    """A pass reads slices, also over the ends of segments, and then begins anew."""
    disk = SimulatedDisk()
    log = filled(disk, 450)
    scrub = Scrub(log)
    last_sealed = log.reader.segments()[-1].first_index - 1
    assert last_sealed > 400
    assert scrub_all(scrub, log) == last_sealed
    assert scrub_all(scrub, log) == last_sealed


def test_what_is_not_committed_is_left_alone() -> None:
    """Entries that are not committed are not read, since they may be cut meanwhile."""
    disk = SimulatedDisk()
    log = filled(disk, 450)
    log.commit_index = 150
    first, second = log.reader.segments()[:2]
    assert first.first_index == 1
    assert scrub_all(Scrub(log), log) == second.first_index - 1


@pytest.mark.parametrize("index", [2, 60, 105, 250])
def test_what_the_disk_lost_under_a_running_node_is_rot(index: int) -> None:
    """Bytes that the disk loses are rot to the scrub, and to readers of unchecked entries."""
    disk = SimulatedDisk()
    log = filled(disk, 450)
    header = log.reader.header(index)
    base = header.position - header.position % SEGMENT_BYTES
    disk.lose(segment_path(FOLDER, base), header.end - base - 100)
    for read in (
        lambda: scrub_all(Scrub(log), log),
        lambda: log.reader.checked_entry(index),
        lambda: log.reader.checked_view(header.position, header.size),
        lambda: log.reader.checked_run_of(index, index),
    ):
        with pytest.raises(Rot, match="the disk can't read"):
            read()
    assert (
        bytes(log.reader.checked_entry(index - 1).body) == bytes([(index - 1) % 251]) * BODY_BYTES
    )


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_a_rotten_header_is_rot_to_whoever_reads_the_entry(at: int) -> None:
    """Whatever it says now: another position, index, size or term."""
    disk = SimulatedDisk()
    log = filled(disk, 450)
    header = log.reader.header(60)
    offset = header.position % SEGMENT_BYTES
    disk.flip_bit(segment_path(FOLDER, header.position - offset), offset + at, 2)
    for read in (
        lambda: scrub_all(Scrub(log), log),
        lambda: log.reader.checked_entry(60),
        lambda: log.reader.checked_run_of(60, 61),
        lambda: log.reader.checked_run_of(59, 60),
        lambda: log.reader.checked_run_of(61, 61),
    ):
        with pytest.raises(Rot):
            read()


@pytest.mark.parametrize("index", [1, 60, 105, 250])
def test_rot_that_a_start_trusts_is_found_and_then_repaired_by_a_start(index: int) -> None:
    """The checkpoint vouches for the segment no longer, so the next start reads it."""
    disk = SimulatedDisk()
    log = filled(disk, 450)
    base = flip(disk, log, index)
    log.close()
    log = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
    with pytest.raises(Rot) as found:
        scrub_all(Scrub(log), log)
    assert found.value.base_position == base
    log.checkpoints.distrust(base)
    log.close()
    with pytest.raises(DamagedLog) as damaged:
        open_log(FOLDER, SEGMENT_BYTES, disk)
    assert damaged.value.place.next_index == index


def test_a_log_that_is_trimmed_or_replaced_during_a_pass_is_no_damage() -> None:
    """The pass begins again where the log begins now."""
    disk = SimulatedDisk()
    log = filled(disk, 450)
    scrub = Scrub(log)
    part = scrub.next_slice(450)
    assert part is not None
    scrub.checked(part, part.check())
    job = log.trim(250)
    assert job is not None
    job.run()
    assert scrub_all(scrub, log) == log.reader.segments()[-1].first_index - 1


def test_an_entry_that_a_start_did_not_check_is_checked_before_it_is_applied() -> None:
    """A replay of rotten bytes would give this replica another state than the others have."""
    disk = SimulatedDisk()
    log = filled(disk, 450)
    assert log.reader.unchecked_index == log.reader.segments()[-1].first_index - 1
    base = flip(disk, log, 60)
    assert bytes(log.reader.checked_entry(59).body[:1]) == bytes([59])
    with pytest.raises(Rot) as found:
        log.reader.checked_entry(60)
    assert found.value.base_position == base
