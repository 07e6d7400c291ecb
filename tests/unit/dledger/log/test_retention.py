"""Retention of log segments, and starts after a crash at any point of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dledger.errors import CorruptLog, Rot
from dledger.log.entry import HEADER_BYTES, Kind
from dledger.log.recovery.startup import open_log
from dledger.log.segments.retention import RetentionPolicy, SegmentInfo, first_kept
from dledger.log.segments.segment import segment_path
from dledger.log.store import SegmentedLog
from dledger.testing.disk import Crashed, SimulatedDisk
from dledger.testing.log_store import FOLDER, SEGMENT_BYTES, entries_of, fill, head_at


def segments(*written_at_s: float) -> list[SegmentInfo]:
    """Segments of 100 bytes and 10 entries, written to last at these times."""
    return [
        SegmentInfo(100 * number, 10 * number + 1, 100, when)
        for number, when in enumerate(written_at_s)
    ]


def kept_from(policy: RetentionPolicy, needed_index: int = 1000) -> int:
    """The first index that is kept of four segments, the oldest 400 s old, the last one new."""
    kept = first_kept(segments(0, 100, 200, 400), policy, 400, needed_index)
    return 1 if kept is None else kept.first_index


@pytest.mark.parametrize(
    ("policy", "first_index"),
    [
        (RetentionPolicy(), 1),
        (RetentionPolicy(age_max_s=500), 1),
        (RetentionPolicy(age_max_s=250), 21),
        (RetentionPolicy(age_max_s=0.5), 31),
        (RetentionPolicy(size_bytes_max=399), 11),
        (RetentionPolicy(size_bytes_max=1), 31),
        (RetentionPolicy(age_max_s=350, size_bytes_max=250), 21),
    ],
)
def test_segments_go_that_are_too_old_or_too_many(
    policy: RetentionPolicy, first_index: int
) -> None:
    """The oldest segments go first, and never the one that is being written."""
    assert kept_from(policy) == first_index


@pytest.mark.parametrize(("needed_index", "first_index"), [(5, 1), (11, 11), (20, 11), (21, 21)])
def test_what_somebody_needs_stays_however_old(needed_index: int, first_index: int) -> None:
    """A segment that holds the needed entry stays, and so do all behind it."""
    assert kept_from(RetentionPolicy(age_max_s=0.5), needed_index) == first_index


def test_an_old_segment_behind_a_young_one_stays() -> None:
    """A log has no holes: what was copied later may have a later date than what follows it."""
    policy = RetentionPolicy(age_max_s=100)
    assert first_kept(segments(390, 0, 395), policy, 400, 1000) is None


def filled(disk: SimulatedDisk, count: int = 100) -> SegmentedLog:
    log = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
    fill(log, count)
    log.sync()
    log.commit_index = count
    return log


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_no_segment_goes_whose_last_header_is_rotten(at: int) -> None:
    """The new head would remember a chain CRC that no entry continues."""
    disk = SimulatedDisk()
    log = filled(disk)
    log.close()
    log = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
    log.commit_index = 100
    first, second = log.reader.segments()[:2]
    last = log.reader.header(second.first_index - 1)
    disk.flip_bit(segment_path(FOLDER, first.base_position), last.position + at, 3)
    names = disk.names(FOLDER)
    with pytest.raises(Rot):
        log.trim(second.first_index)
    assert disk.names(FOLDER) == names
    assert log.first_index == 1


def test_a_log_without_its_head_is_read_from_there_after_a_restart() -> None:
    """The file `head` has the chain CRC that proves the rest, with or without a checkpoint."""
    disk = SimulatedDisk()
    log = filled(disk)
    job = log.trim(60)
    assert job is not None
    job.run()
    assert len([name for name in disk.names(FOLDER) if name.endswith(".seg")]) == len(
        log.reader.segments()
    )
    kept = entries_of(log)
    for checkpoint in (log.checkpoints.take(), b""):
        disk.replace(FOLDER / "checkpoint", checkpoint)
        again = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
        assert entries_of(again) == kept
        assert again.reader.head_before(again.first_index) == log.reader.head_before(
            log.first_index
        )


def test_a_missing_first_segment_is_a_loss() -> None:
    """A deleted first segment is damage, and not taken for retention."""
    disk = SimulatedDisk()
    log = filled(disk)
    log.close()
    disk.remove(FOLDER / f"{0:020d}.seg")
    with pytest.raises(CorruptLog, match="although it was durable"):
        open_log(FOLDER, SEGMENT_BYTES, disk)


@pytest.mark.parametrize("operations", range(24))
def test_a_crash_anywhere_in_a_removal_or_a_new_beginning_costs_nothing(operations: int) -> None:
    """Power goes in one of the file operations: a start finds the old log or the new one, whole.

    Once the new head is durable it is the new one."""
    leader = filled(SimulatedDisk())
    trimmed = leader.trim(100)
    assert trimmed is not None
    disk = SimulatedDisk()
    log = filled(disk, 50)
    log.commit_index = 20
    old = entries_of(log)
    head = head_at(leader, leader.first_index)
    disk.crash_in = operations
    try:
        if (job := log.trim(20)) is not None:
            job.run()
        log.replace_by(head)
    except Crashed:
        pass
    disk.lose_power(random.Random(operations))
    again = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
    if again.first_index == head.first_index:
        assert entries_of(again) == [leader.reader.entry(head.first_index)]
        assert again.durable_index == head.first_index
    else:
        assert entries_of(again) == old[again.first_index - 1 :]


def open_segments(folder: Path) -> tuple[int, int]:
    """How many segments of a log this process has open, and how many mapped."""
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.exists()]
    opened = [path for path in links if path.parent == folder and path.suffix == ".seg"]
    return len(opened), Path("/proc/self/maps").read_text().count(f"{folder}/0")


def test_open_files_and_mappings_do_not_grow_with_the_log(tmp_path: Path) -> None:
    """A log of many segments, written, read from end to end, started again: a few are open."""
    log = open_log(tmp_path, SEGMENT_BYTES)[0]
    for index in range(1, 8001):
        log.append(index, 1, Kind.MESSAGES, bytes(100))
        if index % 500 == 0:
            log.sync()
            log.checkpoints.take()
            log.release_idle()
    log.release_idle()
    assert len(log.reader.segments()) > 250
    assert max(open_segments(tmp_path)) < 60
    held = log.reader.entry(1).body
    for index in range(1, 8001):
        assert log.reader.entry(index).index == index
        if index % 500 == 0:
            log.release_idle()
    assert max(open_segments(tmp_path)) < 60
    log.release_idle()
    log.release_idle()
    assert bytes(held) == bytes(100), "a view outlives the release of its segment"
    log.close()
    del log, held
    again = open_log(tmp_path, SEGMENT_BYTES)[0]
    assert max(open_segments(tmp_path)) < 4
    assert bytes(again.reader.entry(4000).body) == bytes(100)
    again.close()
