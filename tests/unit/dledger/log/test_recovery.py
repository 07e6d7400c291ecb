"""Recovery of a log after a crash at any moment, on a disk that forgets, tears and rots."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from dledger.errors import CorruptLog, Rot
from dledger.log.disk import Disk, Unreadable
from dledger.log.entry import HEADER_BYTES, Kind
from dledger.log.hard_state import HardState, HardStateFile
from dledger.log.head import LogHead, encode_head
from dledger.log.recovery.repair import DamagedLog
from dledger.log.recovery.startup import open_log
from dledger.log.segments.segment import segment_path
from dledger.log.store import SegmentedLog
from dledger.testing.disk import Crashed, SimulatedDisk
from dledger.testing.planted.catalogue import plant

FOLDER = Path("/log")
SEGMENT_BYTES = 2048
SEEDS = range(6)


def body_of(index: int, term: int) -> bytes:
    return b"%d in term %d " % (index, term) * 12


class Life:
    """A log being written to, and what it has promised so far."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.promised: dict[int, int] = {}
        self.log: SegmentedLog = open_log(FOLDER, SEGMENT_BYTES, disk)[0]

    def append(self, count: int, term: int) -> None:
        for _ in range(count):
            index = self.log.last_index + 1
            self.log.append(index, term, Kind.MESSAGES, body_of(index, term))

    def sync(self) -> None:
        self.log.sync()
        self.promised = {
            index: self.log.reader.header(index).term
            for index in range(1, self.log.durable_index + 1)
        }

    def fill(self) -> None:
        """Several segments, all durable, and marked so."""
        self.append(40, 1)
        self.sync()
        self.append(1, 1)
        self.sync()

    def cut_amid_a_sync(self, count: int, first_index: int, replacing: int) -> None:
        """Cut and replace entries from before, or at, the last one of a sync under way."""
        self.append(count, 1)
        job = self.log.start_sync()
        assert job is not None
        self.cut(first_index)
        self.append(replacing, 2)
        job.run()
        self.log.finish_sync(job)
        self.sync()

    def cut(self, first_index: int) -> None:
        self.promised = {i: term for i, term in self.promised.items() if i < first_index}
        self.log.cut(first_index)

    def checkpoint(self) -> None:
        self.log.checkpoints.save(self.log.checkpoints.take())


def grow(life: Life) -> None:
    """Several segments, synced now and then, with a checkpoint in between."""
    for _ in range(6):
        life.append(4, 1)
        life.sync()
        life.append(2, 1)
        life.log.write_out()
    life.checkpoint()
    life.append(20, 1)
    life.sync()


def prepare(life: Life) -> None:
    """The next segment is prepared beforehand, used, and prepared again."""
    for _ in range(3):
        while not life.log.wants_segment:
            life.append(1, 1)
        life.log.adopt_segment(life.log.next_segment.prepare())
        life.append(4, 1)
        life.sync()


def cut_back(life: Life) -> None:
    """A durable tail of several segments, with one prepared behind it, is cut and replaced."""
    life.append(40, 1)
    life.sync()
    life.checkpoint()
    while not life.log.wants_segment:
        life.append(1, 1)
    life.log.adopt_segment(life.log.next_segment.prepare())
    life.append(1, 1)
    life.sync()
    life.cut(8)
    life.append(15, 2)
    life.sync()
    life.cut(20)
    life.append(9, 3)
    life.sync()


def cut_during_a_sync(life: Life) -> None:
    """A sync is under way while what it covers is cut and replaced."""
    life.append(12, 1)
    life.sync()
    life.cut_amid_a_sync(20, 9, 6)


def cut_at_a_segment(life: Life) -> None:
    """Cut from the first entry of a segment, whose end the segment before has marked."""
    life.fill()
    life.cut(life.log.reader.segments()[-2].first_index)
    life.append(9, 2)
    life.sync()


@pytest.mark.parametrize("story", [grow, prepare, cut_back, cut_during_a_sync, cut_at_a_segment])
@pytest.mark.parametrize("power_lost", [True, False])
def test_a_crash_in_any_operation_leaves_what_was_promised(
    story: Callable[[Life], None], power_lost: bool
) -> None:
    """Kill the node, or its machine, in each file operation in turn: it starts again with every
    entry that was reported durable, and goes on."""
    operation = 0
    finished = False
    while not finished:
        for seed in SEEDS if power_lost else [0]:
            disk = SimulatedDisk()
            life = Life(disk)
            disk.crash_in = operation
            try:
                story(life)
                finished = True
            except Crashed:
                pass
            where = f"operation {operation}, seed {seed}"
            disk.lose_power(random.Random(seed)) if power_lost else disk.stop_process()
            again = Life(disk)
            for index, term in life.promised.items():
                assert index <= again.log.last_index, f"{where}: entry {index} is lost"
                held = again.log.reader.entry(index)
                assert (held.term, bytes(held.body)) == (term, body_of(index, term)), where
            again.append(12, 9)
            again.sync()
            expected = [
                again.log.reader.header(i).chain_crc for i in range(1, again.log.last_index + 1)
            ]
            disk.lose_power(random.Random(seed), keep=0.0)
            last = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
            assert [
                last.reader.header(i).chain_crc for i in range(1, last.last_index + 1)
            ] == expected
        operation += 1
    assert operation > 15


def test_a_segment_that_a_cut_removed_is_not_used_again() -> None:
    """A segment is being prepared while the log already starts it, and is cut back again: the
    prepared file has no name any more, and what is written there would be gone."""

    def last_index_after_a_restart() -> int:
        disk = SimulatedDisk()
        life = Life(disk)
        while not life.log.wants_segment:
            life.append(1, 1)
        prepared = life.log.next_segment.prepare()
        life.append(10, 1)
        life.sync()
        life.cut(3)
        life.log.adopt_segment(prepared)
        life.append(20, 2)
        life.sync()
        disk.stop_process()
        return Life(disk).log.last_index

    assert last_index_after_a_restart() == 22
    with plant("use a removed segment"), pytest.raises(CorruptLog, match="missing"):
        last_index_after_a_restart()


class Late:
    """A lock for a thread that comes to it late: what others do first is done before it."""

    def __init__(self, first: Callable[[], None]) -> None:
        self._first: Callable[[], None] | None = first

    def __enter__(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            first()

    def __exit__(self, *_: object) -> None:
        pass


def test_a_thread_that_comes_late_replaces_no_segment_that_has_entries() -> None:
    """Before a thread makes the next segment, the log needs it, and the one behind it: entries that
    were reported durable would lie in a file without a name."""

    def last_index_after_a_restart() -> int:
        life = Life(SimulatedDisk())
        while not life.log.wants_segment:
            life.append(1, 1)
        life.log.next_segment._creating = Late(life.fill)  # type: ignore[assignment]
        life.log.adopt_segment(life.log.next_segment.prepare())
        life.sync()
        life.disk.stop_process()
        return Life(life.disk).log.last_index - life.log.last_index

    assert last_index_after_a_restart() == 0
    with (
        plant("replace a segment that has entries"),
        pytest.raises(CorruptLog, match="although it was durable"),
    ):
        last_index_after_a_restart()


def test_a_segment_that_is_made_while_a_cut_removes_it_is_not_used() -> None:
    """A thread opens a file whose name the cut then removes."""

    def last_index_after_a_restart() -> int:
        life = Life(SimulatedDisk())
        life.append(3, 1)
        while len(life.log.reader.segments()) < 2:
            life.append(1, 1)
        life.sync()
        remove, prepared = life.disk.remove, []

        def remove_late(path: Path) -> None:
            if not prepared:
                prepared.append(life.log.next_segment.prepare())
            remove(path)

        with patch.object(life.disk, "remove", remove_late):
            life.cut(3)
        life.log.adopt_segment(prepared[0])
        life.append(20, 2)
        life.sync()
        life.disk.stop_process()
        return Life(life.disk).log.last_index

    assert last_index_after_a_restart() == 22
    with plant("use a segment that a cut is removing"), pytest.raises(CorruptLog, match="missing"):
        last_index_after_a_restart()


def test_a_segment_whose_name_is_not_durable_is_made_again() -> None:
    """The disk had room for the file, and none for its name in the folder. Later it has; then the
    power goes, and with it whatever has no name."""

    def last_index_after_the_loss() -> int:
        disk = SimulatedDisk()
        life = Life(disk)
        while not life.log.wants_segment:
            life.append(1, 1)
        disk.full = True
        disk.writes += 1 - disk.writes % 2
        with pytest.raises(OSError, match="no space"):
            life.log.next_segment.prepare()
        disk.full = False
        while life.log.wants_segment:
            life.append(1, 1)
        life.sync()
        wanted = life.log.last_index
        disk.lose_power(random.Random(1), keep=0.0)
        return Life(disk).log.last_index - wanted

    assert last_index_after_the_loss() == 0
    with plant("take a name that was not synced"):
        assert last_index_after_the_loss() < 0


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_newest_segments_that_are_lost_with_the_checkpoint_are_missed(lost: int) -> None:
    """Segments and a checkpoint that a file system's check has cleared together are missed."""

    def last_index_after_the_loss() -> int:
        life = Life(SimulatedDisk())
        life.fill()
        life.checkpoint()
        for segment in life.log.reader.segments()[-lost:]:
            life.disk.remove(segment_path(FOLDER, segment.base_position))
        life.disk.remove(FOLDER / "checkpoint")
        return open_log(FOLDER, SEGMENT_BYTES, life.disk)[0].last_index

    with pytest.raises(DamagedLog, match="the log ends at index .*, although it was durable"):
        last_index_after_the_loss()
    with plant("vouch for no new segment"):
        assert last_index_after_the_loss() < 40


def test_a_cut_at_the_beginning_of_a_segment_is_no_loss() -> None:
    """A node that dies right after a cut at a segment's beginning loses nothing by it."""

    def last_index_after_the_cut() -> int:
        life = Life(SimulatedDisk())
        life.fill()
        first = life.log.reader.segments()[-2].first_index
        life.cut(first)
        life.disk.stop_process()
        return Life(life.disk).log.last_index - first

    assert last_index_after_the_cut() == -1
    with (
        plant("vouch for what a cut removed"),
        pytest.raises(CorruptLog, match="although it was durable"),
    ):
        last_index_after_the_cut()


def test_a_cut_amid_a_sync_lets_no_segment_vouch_for_more_than_the_next_ones_beginning() -> None:
    """A segment's mark is written again after the cut, and a later cut ignores it."""
    life = Life(SimulatedDisk())
    life.append(40, 1)
    life.sync()
    life.cut_amid_a_sync(1, 41, 1)
    first = life.log.reader.segments()[-1].first_index
    assert first < 40
    life.cut(first + 1)
    life.disk.stop_process()
    assert Life(life.disk).log.last_index == first


def test_zeros_where_a_durable_entry_was_stop_the_node() -> None:
    """A lost sector looks like the end of the log. Below the watermark it is not taken for one."""
    disk = SimulatedDisk()
    life = Life(disk)
    life.append(8, 1)
    life.sync()
    life.append(1, 1)
    life.sync()
    header = life.log.reader.header(4)
    path = segment_path(FOLDER, 0)
    raw = bytearray(disk.read(path))
    raw[header.position : header.position + header.size] = bytes(header.size)
    disk.replace(path, bytes(raw))
    with pytest.raises(CorruptLog, match="ends at index 3, although it was durable up to 8"):
        open_log(FOLDER, SEGMENT_BYTES, disk)
    assert disk.read(path) == bytes(raw), "a start that refuses changes nothing"


def test_a_start_that_refuses_removes_no_segment() -> None:
    """Segments behind a lost entry stay, for a person who repairs the log."""
    disk = SimulatedDisk()
    life = Life(disk)
    life.fill()
    paths = [FOLDER / name for name in disk.names(FOLDER) if name.endswith(".seg")]
    raw = bytearray(disk.read(paths[1]))
    raw[: HEADER_BYTES * 2] = bytes(HEADER_BYTES * 2)
    disk.replace(paths[1], bytes(raw))
    before = {path: disk.read(path) for path in paths}
    with pytest.raises(CorruptLog, match="Nothing was cut"):
        open_log(FOLDER, SEGMENT_BYTES, disk)
    assert {path: disk.read(path) for path in paths} == before


def test_term_and_vote_that_a_killed_process_left_are_made_durable_too() -> None:
    """Killed between the write and the sync of a vote, a node that reads the vote keeps it."""
    disk = SimulatedDisk()
    file = HardStateFile(FOLDER / "term", disk)
    disk.crash_in = 1
    with pytest.raises(Crashed):
        file.save(HardState(7, "n1"))
    disk.stop_process()
    assert HardStateFile(FOLDER / "term", disk).state == HardState(7, "n1")
    disk.lose_power(random.Random(0), keep=0.0)
    assert HardStateFile(FOLDER / "term", disk).state == HardState(7, "n1")


def test_a_vote_is_in_a_file_whose_name_is_durable() -> None:
    """Killed before the folder of its new file was synced, a node votes in the next life: the power
    takes neither the file nor the vote."""
    disk = SimulatedDisk()
    disk.crash_in = 1
    with pytest.raises(Crashed):
        HardStateFile(FOLDER / "term", disk)
    disk.stop_process()
    HardStateFile(FOLDER / "term", disk).save(HardState(7, "n1"))
    disk.lose_power(random.Random(0), keep=0.0)
    assert HardStateFile(FOLDER / "term", disk).state == HardState(7, "n1")


def terms_after_a_stale_checkpoint(life: Life, first_cut: int, count: int) -> list[int]:
    """Terms that a start finds when the checkpoint is older than a cut and its replacement."""
    life.sync()
    stale = life.log.checkpoints.take()
    life.cut(first_cut)
    life.append(count, 2)
    life.sync()
    life.log.checkpoints.save(stale)
    again = open_log(FOLDER, SEGMENT_BYTES, life.disk)[0]
    return [again.reader.header(index).term for index in range(1, again.last_index + 1)]


def test_a_checkpoint_that_is_older_than_a_cut_is_not_believed() -> None:
    """The checkpoint says what a sealed segment held before its tail was cut and replaced."""
    life = Life(SimulatedDisk())
    life.append(40, 1)
    assert terms_after_a_stale_checkpoint(life, 5, 40) == [1] * 4 + [2] * 40


def test_a_checkpoint_of_a_segment_that_has_grown_since_is_not_believed() -> None:
    """An entry that did not fit in the rest of a segment was cut, and a smaller one did: the
    segment's old last entry is still there, but no longer the last."""
    life = Life(SimulatedDisk())
    life.append(9, 1)
    life.log.append(10, 1, Kind.MESSAGES, bytes(1000))
    life.append(3, 1)
    assert terms_after_a_stale_checkpoint(life, 10, 20) == [1] * 9 + [2] * 20


def test_a_restart_walks_over_no_sealed_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart time must not grow with the log: of sealed segments only the last entry is looked
    at."""
    disk = SimulatedDisk()
    life = Life(disk)
    life.append(100, 1)
    life.log.close()
    monkeypatch.delattr("dledger.log.segments.segment.entry_offsets")
    again, recovery = open_log(FOLDER, SEGMENT_BYTES, disk)
    assert again.last_index == 100
    assert recovery.entries_checked < 12


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_the_last_header_of_a_trusted_segment_is_not_believed_if_a_bit_of_it_turned(
    at: int,
) -> None:
    """A damaged last header is noticed where no entry follows: its term decides elections."""
    life = Life(SimulatedDisk())
    while len(life.log.reader.segments()) < 3:
        life.sync()
        life.append(1, 1)
    last = life.log.reader.header(life.log.last_index - 1)
    life.log.commit_index = last.index
    life.log.write_out()
    life.checkpoint()
    life.disk.lose_power(random.Random(0), keep=0.0)
    path = segment_path(FOLDER, last.position - last.position % SEGMENT_BYTES)
    log = open_log(FOLDER, SEGMENT_BYTES, life.disk.copy())[0]
    assert (log.last_index, log.reader.header(last.index).term) == (last.index, last.term)

    life.disk.flip_bit(path, last.position % SEGMENT_BYTES + at, 0)
    try:
        log = open_log(FOLDER, SEGMENT_BYTES, life.disk)[0]
    except DamagedLog:
        return
    assert (log.last_index, log.chain_crc) == (last.index, last.chain_crc)
    assert log.reader.header(last.index).term == last.term
    with pytest.raises(Rot):
        log.reader.checked_entry(last.index)


def test_what_lies_behind_a_lost_write_is_wiped() -> None:
    """Bytes behind a lost write are wiped before entries end there, and are no damage.

    Of two unsynced writes the first was lost and the second was not; entries that are written later
    end right before the rest of the second, and the next segment begins.
    """
    disk = SimulatedDisk()
    life = Life(disk)
    life.append(2, 1)
    life.sync()
    at = life.log.end_position
    life.log.append(3, 1, Kind.MESSAGES, bytes(700))
    life.log.append(4, 1, Kind.MESSAGES, b"x" * 700)
    life.log.write_out()
    path = segment_path(FOLDER, 0)
    raw = bytearray(disk.read(path))
    raw[at : at + HEADER_BYTES + 700] = bytes(HEADER_BYTES + 700)
    disk.replace(path, bytes(raw))
    again = Life(disk)
    assert again.log.last_index == 2
    again.log.append(3, 2, Kind.MESSAGES, bytes(1100))
    again.append(5, 2)
    again.sync()
    disk.stop_process()
    assert Life(disk).log.last_index == 8


def test_a_torn_tail_leaves_the_watermark() -> None:
    """Damage to durable entries is not cut, also after a torn tail was cut."""
    disk = SimulatedDisk()
    life = Life(disk)
    life.append(6, 1)
    life.sync()
    life.append(1, 1)
    life.sync()
    disk.flip_bit(segment_path(FOLDER, 0), life.log.reader.header(7).position + HEADER_BYTES, 0)
    life.log.close()
    assert open_log(FOLDER, SEGMENT_BYTES, disk)[1].torn_because is not None
    disk.flip_bit(segment_path(FOLDER, 0), life.log.reader.header(3).position + HEADER_BYTES, 0)
    with pytest.raises(CorruptLog, match="entry 3"):
        open_log(FOLDER, SEGMENT_BYTES, disk)


@pytest.mark.parametrize("good", [1, 4096, 99_999])
def test_a_read_that_ends_before_a_lost_sector_is_not_taken_for_the_files_end(
    good: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel gives what comes before it, and the error when it is asked for the rest."""
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    pread = os.pread

    def losing(descriptor: int, size_bytes: int, offset: int) -> bytes:
        if offset >= good:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, min(size_bytes, good - offset), offset)

    monkeypatch.setattr(os, "pread", losing)
    with pytest.raises(Unreadable):
        Disk().read_part(path, 0, 100_000)
    assert len(Disk().read_part(path, 0, good)) == good
    monkeypatch.undo()
    assert len(Disk().read_part(path, 50_000, 100_000)) == 50_000


def test_a_small_file_that_the_disk_cant_read_is_as_one_that_does_not_check() -> None:
    """A start without a readable checkpoint reads more; without `head` or `term` it is refused."""
    disk = SimulatedDisk()
    log = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
    for index in range(1, 9):
        log.append(index, 1, Kind.MESSAGES, body_of(index, 1))
    log.sync()
    log.close()
    HardStateFile(FOLDER / "term", disk).save(HardState(1, "n1"))
    disk.lose(FOLDER / "checkpoint", 0)
    assert open_log(FOLDER, SEGMENT_BYTES, disk)[0].last_index == 8
    disk.lose(FOLDER / "term", 100)
    with pytest.raises(CorruptLog, match="neither copy of term and vote can be read"):
        HardStateFile(FOLDER / "term", disk)
    disk.replace(FOLDER / "head", encode_head(LogHead(0, 1, 0)))
    disk.lose(FOLDER / "head", 0)
    with pytest.raises(CorruptLog, match=r"head: .*input/output error"):
        open_log(FOLDER, SEGMENT_BYTES, disk)
