"""The log on disk: its files, torn ones, missing ones, term and vote, open descriptors.

Promises of any log, on files or not, are in `tests/contracts/`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from dledger.errors import CorruptLog, Rot, StorageError
from dledger.log.disk import Disk
from dledger.log.hard_state import HardState, HardStateFile
from dledger.log.recovery.startup import open_log
from dledger.log.scanning.tail import WATERMARK_BYTES
from dledger.log.segments import contents
from dledger.log.store import SegmentedLog
from dledger.testing.log_store import SEGMENT_BYTES, copy_to, entries_of, fill


def reopened(log: SegmentedLog) -> SegmentedLog:
    log.close()
    return open_log(log.folder, SEGMENT_BYTES)[0]


@pytest.fixture
def log(tmp_path: Path) -> SegmentedLog:
    return open_log(tmp_path / "log", SEGMENT_BYTES)[0]


def test_a_copy_has_the_same_files(log: SegmentedLog, tmp_path: Path) -> None:
    """The files of a follower that takes a leader's raw entries are those of the leader."""
    fill(log, 80)
    copy = open_log(tmp_path / "copy", SEGMENT_BYTES)[0]
    copy_to(copy, log, 80)
    log.sync()
    copy.sync()
    files = sorted(path.name for path in log.folder.glob("*.seg"))
    assert files == sorted(path.name for path in copy.folder.glob("*.seg"))
    for name in files:
        mine = (log.folder / name).read_bytes()[:-WATERMARK_BYTES]
        assert mine == (copy.folder / name).read_bytes()[:-WATERMARK_BYTES]


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
    expected = entries_of(log)
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
    found = entries_of(again)
    assert again.last_index >= synced
    assert found == expected[: len(found)]
    assert recovery.torn_because is not None or len(found) < len(expected) or not torn
    fill(again, 5)
    assert len(entries_of(reopened(again))) == len(found) + 5


def test_sealed_segments_are_not_read_again(log: SegmentedLog) -> None:
    """A restart with a checkpoint checks only the entries of the last segment."""
    fill(log, 300)
    log.close()
    again, recovery = open_log(log.folder, SEGMENT_BYTES)
    assert recovery.entries_checked < 30
    assert again.reader.entry(17) == log.reader.entry(17)
    (log.folder / "checkpoint").write_bytes(b"garbage")
    assert open_log(log.folder, SEGMENT_BYTES)[1].entries_checked == 300


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
        # Pages of files on a disk, and of files in shared memory.
        mapped = [line for line in lines if line.startswith(("RssFile", "RssShmem"))]
        return sum(int(line.split()[1]) for line in mapped) / 1024

    log = open_log(tmp_path, 64 << 20)[0]
    for index in range(1, 50):
        log.append(index, 1, 16, bytes([index]) * (1 << 20))
    before = mapped_mib()
    bodies = [log.reader.entry(index).body for index in range(1, 50)]
    assert all(body.tobytes() == bytes([at]) * (1 << 20) for at, body in enumerate(bodies, 1))
    assert mapped_mib() - before > 40
    log.forget_pages()
    assert mapped_mib() - before < 10
    assert bodies[7].tobytes() == bytes([8]) * (1 << 20)
    log.close()


def test_a_page_that_is_lost_is_told_and_not_looked_into(
    log: SegmentedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old entry whose page the disk can't read any more is rotten: a look through the mapping
    would end the process. Its position is known without it."""
    monkeypatch.setattr(contents, "RECENT_HEADERS", 4)
    fill(log, 80)
    log.sync()
    oldest = min(log.folder.glob("*.seg"))
    position = log.reader.header(2).position
    os.truncate(oldest, 0)
    for read in (log.reader.header, log.reader.checked_header, log.reader.chain_crc_before):
        with pytest.raises(Rot, match="the disk can't read"):
            read(3)
    assert log.reader.position(2) == position
    assert log.reader.bytes_behind(1) == log.end_position - position
