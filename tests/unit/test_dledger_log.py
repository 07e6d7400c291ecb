"""The log on disk: positions, recovery after torn writes, corruption, cuts, term and vote."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dledger.errors import CorruptLog, Fenced, StorageError, TooLarge
from dledger.log.disk import Disk
from dledger.log.entry import HEADER_BYTES, Kind
from dledger.log.hard_state import HardState, HardStateFile
from dledger.log.recovery import WATERMARK_BYTES
from dledger.log.startup import open_log
from dledger.log.store import SegmentedLog

SEGMENT_BYTES = 4096


def fill(log: SegmentedLog, count: int, term: int = 1, size: int = 100) -> None:
    for _ in range(count):
        index = log.last_index + 1
        log.append(index, term, Kind.MESSAGES, bytes([index % 251]) * size)


def bodies(log: SegmentedLog) -> list[bytes]:
    return [bytes(log.entry(i).body) for i in range(log.first_index, log.last_index + 1)]


def reopened(log: SegmentedLog) -> SegmentedLog:
    log.close()
    return open_log(log.folder, SEGMENT_BYTES)[0]


@pytest.fixture
def log(tmp_path: Path) -> SegmentedLog:
    return open_log(tmp_path / "log", SEGMENT_BYTES)[0]


class Positioned:
    """A draft that writes down where it was placed."""

    size = 24

    def place(self, body_position: int, index: int, term: int) -> bytes:
        return b"%08d%08d%08d" % (body_position, index, term)


def test_what_was_appended_is_read_back_after_a_restart(log: SegmentedLog) -> None:
    """Entries over several segments come back in order, byte for byte."""
    fill(log, 100)
    before = bodies(log)
    again = reopened(log)
    assert bodies(again) == before
    assert (again.last_index, again.end_position) == (100, log.end_position)


def test_an_entry_never_spans_segments(log: SegmentedLog) -> None:
    """An entry that doesn't fit in the rest of a segment starts the next one."""
    fill(log, 60, size=150)
    for index in range(1, 61):
        entry = log.entry(index)
        end = entry.position + HEADER_BYTES + len(entry.body)
        assert entry.position // SEGMENT_BYTES == (end - 1) // SEGMENT_BYTES
        assert end % SEGMENT_BYTES <= SEGMENT_BYTES - WATERMARK_BYTES


def test_a_draft_learns_its_position_before_it_is_written(log: SegmentedLog) -> None:
    """A body that holds its own address finds itself at that address."""
    fill(log, 3)
    log.append(4, 7, Kind.MESSAGES, Positioned())
    entry = log.entry(4)
    assert bytes(entry.body) == b"%08d%08d%08d" % (entry.body_position, 4, 7)
    assert bytes(log.view(entry.body_position, 24)) == bytes(entry.body)


def test_a_copy_lands_at_the_same_positions(log: SegmentedLog, tmp_path: Path) -> None:
    """A follower that takes a leader's raw entries holds the same bytes at the same places."""
    fill(log, 80)
    copy = open_log(tmp_path / "copy", SEGMENT_BYTES)[0]
    for index in range(1, 81):
        raw = log.run_of(index, index)
        header = log.header(index)
        copy.append_copy(header, raw[:HEADER_BYTES], raw[HEADER_BYTES : header.size])
    log.sync()
    copy.sync()
    files = sorted(path.name for path in log.folder.glob("*.seg"))
    assert files == sorted(path.name for path in copy.folder.glob("*.seg"))
    for name in files:
        mine = (log.folder / name).read_bytes()[:-WATERMARK_BYTES]
        assert mine == (copy.folder / name).read_bytes()[:-WATERMARK_BYTES]


def test_a_copy_that_does_not_continue_the_log_is_refused(
    log: SegmentedLog, tmp_path: Path
) -> None:
    """A chain CRC that doesn't follow the last entry's means the replicas differ below."""
    other = open_log(tmp_path / "other", SEGMENT_BYTES)[0]
    log.append(1, 1, Kind.MESSAGES, b"x" * 10)
    other.append(1, 1, Kind.MESSAGES, b"y" * 10)
    other.append(2, 1, Kind.MESSAGES, b"z" * 10)
    raw, header = other.run_of(2, 2), other.header(2)
    with pytest.raises(CorruptLog, match="do not continue|does not continue"):
        log.append_copy(header, raw[:HEADER_BYTES], raw[HEADER_BYTES : header.size])
    assert log.last_index == 1


@pytest.mark.parametrize("seed", range(40))
def test_a_torn_tail_is_cut_and_nothing_before_it(tmp_path: Path, seed: int) -> None:
    """Whatever a crash left of unsynced writes, exactly the whole entries before it come back."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    log = open_log(tmp_path / "log", SEGMENT_BYTES)[0]
    fill(log, rng.randrange(1, 15), size=rng.randrange(1, 300))
    log.sync()
    synced, end = log.last_index, log.end_position
    fill(log, rng.randrange(1, 8), size=rng.randrange(1, 300))
    log.write_out()
    expected = bodies(log)
    path = log.folder / f"{end // SEGMENT_BYTES * SEGMENT_BYTES:020d}.seg"
    raw = bytearray(path.read_bytes())
    torn_at = min(rng.randrange(end % SEGMENT_BYTES, end % SEGMENT_BYTES + 300), SEGMENT_BYTES - 65)
    torn = [at for at in range(torn_at, SEGMENT_BYTES - WATERMARK_BYTES) if raw[at]]
    for at in torn[: rng.randrange(1, 400)]:
        raw[at] = 0
    path.write_bytes(raw)
    for later in log.folder.glob("*.seg"):
        if later.name > path.name and rng.random() < 0.5:
            later.unlink()
    again, recovery = open_log(log.folder, SEGMENT_BYTES)
    found = bodies(again)
    assert again.last_index >= synced
    assert found == expected[: len(found)]
    assert recovery.torn_because is not None or len(found) < len(expected) or not torn
    fill(again, 5)
    assert len(bodies(reopened(again))) == len(found) + 5


def test_a_flipped_bit_below_what_was_durable_stops_the_node(log: SegmentedLog) -> None:
    """Corruption of a durable entry is never cut off: opening fails and names the entry."""
    fill(log, 20)
    log.sync()
    fill(log, 1)
    log.sync()
    position = log.entry(7).body_position
    log.write_out()
    path = log.folder / f"{0:020d}.seg"
    raw = bytearray(path.read_bytes())
    raw[position + 5] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CorruptLog, match=r"entry 7 .*the body has CRC"):
        open_log(log.folder, SEGMENT_BYTES)
    assert path.read_bytes() == bytes(raw)


def test_a_cut_removes_a_conflicting_tail_for_good(log: SegmentedLog) -> None:
    """After a cut and new entries, a restart finds the new ones and no trace of the old."""
    fill(log, 90)
    log.sync()
    log.cut(11)
    assert (log.last_index, log.durable_index) == (10, 10)
    fill(log, 7, term=2, size=33)
    expected = bodies(log)
    again = reopened(log)
    assert bodies(again) == expected
    assert [again.header(i).term for i in (10, 11, 17)] == [1, 2, 2]


def test_a_cut_never_takes_back_what_is_committed(log: SegmentedLog) -> None:
    """A cut at or below the commit index is refused."""
    fill(log, 10)
    log.commit_index = 5
    with pytest.raises(StorageError, match="committed up to 5"):
        log.cut(5)
    log.cut(6)
    assert log.last_index == 5


def test_a_sync_covers_only_what_was_written_before_it(log: SegmentedLog) -> None:
    """Entries appended while a sync runs are durable with the next sync, not with this one."""
    fill(log, 5)
    job = log.start_sync()
    assert job is not None
    fill(log, 5)
    job.run()
    log.finish_sync(job)
    assert log.durable_index == 5
    log.sync()
    assert log.durable_index == 10


def test_a_sync_that_a_cut_overtook_counts_for_nothing(log: SegmentedLog) -> None:
    """A sync begun before a cut must not vouch for the entries that took the cut ones' places."""
    fill(log, 10)
    job = log.start_sync()
    assert job is not None
    log.cut(4)
    fill(log, 9, term=2)
    job.run()
    log.finish_sync(job)
    assert log.durable_index <= 3
    log.sync()
    assert log.durable_index == 12


def test_sealed_segments_are_not_read_again(log: SegmentedLog) -> None:
    """With a checkpoint, a restart checks only the entries of the last segment."""
    fill(log, 300)
    log.close()
    again, recovery = open_log(log.folder, SEGMENT_BYTES)
    assert recovery.entries_checked < 30
    assert bytes(again.entry(17).body) == bytes([17]) * 100
    (log.folder / "checkpoint").write_bytes(b"garbage")
    assert open_log(log.folder, SEGMENT_BYTES)[1].entries_checked == 300


class FailingDisk(Disk):
    """A disk whose next sync fails, once."""

    fail = False

    def sync_data(self, descriptor: int) -> None:
        if self.fail:
            self.fail = False
            raise OSError(5, "input/output error")
        super().sync_data(descriptor)


def test_a_failed_sync_fences_the_node_for_ever(tmp_path: Path) -> None:
    """After one failed fsync nothing more is accepted, although the next one would succeed."""
    disk = FailingDisk()
    log = open_log(tmp_path / "log", SEGMENT_BYTES, disk)[0]
    fill(log, 3)
    disk.fail = True
    with pytest.raises(Fenced):
        log.sync()
    with pytest.raises(Fenced, match="input/output error"):
        fill(log, 1)
    assert log.durable_index == 0


def test_an_entry_above_the_limit_is_refused(log: SegmentedLog) -> None:
    """A body that no segment could hold is refused before anything is written."""
    with pytest.raises(TooLarge):
        log.append(1, 1, Kind.MESSAGES, bytes(9 << 20))


def test_a_segment_that_went_missing_is_noticed(log: SegmentedLog) -> None:
    """A hole between segment files stops the node instead of shortening the log."""
    fill(log, 100)
    log.close()
    sorted(log.folder.glob("*.seg"))[1].unlink()
    with pytest.raises(CorruptLog, match="is missing"):
        open_log(log.folder, SEGMENT_BYTES)


def test_another_segment_size_is_refused(log: SegmentedLog) -> None:
    """Positions follow from the segment size, so a log can't be opened with another one."""
    fill(log, 100)
    log.close()
    with pytest.raises(StorageError, match="another segment size|shortened"):
        open_log(log.folder, SEGMENT_BYTES * 2)


def test_term_and_vote_survive_a_torn_write(tmp_path: Path) -> None:
    """Whichever slot a crash spoils, the state of the save before it is still there."""
    path = tmp_path / "term"
    file = HardStateFile(path, Disk())
    file.save(HardState(3, "n1"))
    file.save(HardState(4, None))
    file.close()
    for slot, expected in ((0, HardState(3, "n1")), (1, HardState(4, None))):
        raw = bytearray(path.read_bytes())
        raw[slot * 512 + 20] ^= 0xFF
        torn = tmp_path / f"torn{slot}"
        torn.write_bytes(raw)
        assert HardStateFile(torn, Disk()).state == expected


def test_unreadable_term_and_vote_stop_the_node(tmp_path: Path) -> None:
    """A node that can't read its vote must not start at term 0 and vote twice."""
    path = tmp_path / "term"
    HardStateFile(path, Disk()).save(HardState(3, "n1"))
    path.write_bytes(b"\xff" * 1024)
    with pytest.raises(CorruptLog, match="vote"):
        HardStateFile(path, Disk())


def test_what_was_read_of_the_log_leaves_the_process_again(tmp_path: Path) -> None:
    """A leader reads all that it sends. Mapped pages count for a process until they are forgotten,
    and views that were handed out before stay good."""

    def mapped_mib() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("RssFile")]
        return int(line.split()[1]) / 1024

    log = open_log(tmp_path, 64 << 20)[0]
    for index in range(1, 50):
        log.append(index, 1, 16, bytes([index]) * (1 << 20))
    before = mapped_mib()
    bodies = [log.entry(index).body for index in range(1, 50)]
    assert all(body.tobytes() == bytes([at]) * (1 << 20) for at, body in enumerate(bodies, 1))
    assert mapped_mib() - before > 40
    log.forget_pages()
    assert mapped_mib() - before < 10
    assert bodies[7].tobytes() == bytes([8]) * (1 << 20)
    log.close()
