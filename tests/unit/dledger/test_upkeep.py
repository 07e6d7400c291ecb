"""The loop of a log's upkeep: its tasks, and its retries."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio

from dledger.errors import NoSpace, Rot
from dledger.ledger.config import LedgerConfig
from dledger.ledger.upkeep import Upkeep
from dledger.limits import NO_SPACE_RETRY_S, SCRUB_AGAIN_S, UPKEEP_AGAIN_S
from dledger.log.disk import Disk
from dledger.log.entry import Kind
from dledger.log.recovery.repair import DamagedLog
from dledger.log.recovery.startup import open_log
from dledger.log.store import SegmentedLog
from dledger.testing.planted.catalogue import plant

pytestmark = pytest.mark.usefixtures("virtual_world")

SEGMENT_BYTES = 64 * 1024
FULL_FOR_S = 10.0


def node(folder: Path) -> tuple[SegmentedLog, LedgerConfig]:
    """An empty log of small segments, and what its node was told."""
    log, _ = open_log(folder / "log", SEGMENT_BYTES)
    peers = {"n1": ("127.0.0.1", 1)}
    return log, LedgerConfig("g", "n1", peers, folder, segment_bytes=SEGMENT_BYTES)


async def test_a_full_disk_is_tried_now_and_then_however_much_the_log_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing segment is tried once a second on a full disk, and made when there is room."""
    log, config = node(tmp_path)
    upkeep = Upkeep(config, log, lambda: False, trio.lowlevel.checkpoint)
    log.append(1, 1, Kind.MESSAGES, bytes(SEGMENT_BYTES // 2))
    log.sync()
    create, tried_at = Disk.create, list[float]()

    def creating(disk: Disk, path: Path, size_bytes: int) -> int:
        tried_at.append(trio.current_time())
        if trio.current_time() < started_at + FULL_FOR_S:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return create(disk, path, size_bytes)

    monkeypatch.setattr(Disk, "create", creating)
    started_at = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.housekeeping_loop)
        while trio.current_time() < started_at + FULL_FOR_S - 1:
            await trio.sleep(0.01)
            upkeep.look()
        assert log.space.lacking is not None
        assert len(tried_at) <= FULL_FOR_S / NO_SPACE_RETRY_S
        await trio.sleep(1 + NO_SPACE_RETRY_S + UPKEEP_AGAIN_S)
        assert log.space.lacking is None
        assert not log.wants_segment
        nursery.cancel_scope.cancel()
    log.close()


async def test_room_for_an_entry_that_did_not_fit_is_looked_for_however_empty_the_segment_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node looks for room for a large entry that did not fit, however empty its segment is."""
    log, config = node(tmp_path)
    upkeep = Upkeep(config, log, lambda: False, trio.lowlevel.checkpoint)
    log.append(1, 1, Kind.MESSAGES, bytes(SEGMENT_BYTES // 8))
    log.sync()

    def full(disk: Disk, path: Path, size_bytes: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "create", full)
        with pytest.raises(NoSpace):
            log.space.check(SEGMENT_BYTES - 1000, Kind.MESSAGES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.housekeeping_loop)
        upkeep.look()
        await trio.sleep(NO_SPACE_RETRY_S + UPKEEP_AGAIN_S)
        assert log.space.lacking is None
        log.space.check(SEGMENT_BYTES - 1000, Kind.MESSAGES)
        nursery.cancel_scope.cancel()
    log.close()


async def test_bytes_that_are_removed_with_old_segments_are_counted(tmp_path: Path) -> None:
    """Reclaimed bytes are those by which the log begins later."""
    log, config = node(tmp_path)
    upkeep = Upkeep(config, log, lambda: False, trio.lowlevel.checkpoint)
    for index in range(1, 7):
        log.append(index, 1, Kind.MESSAGES, bytes(SEGMENT_BYTES // 2))
    log.sync()
    log.commit_index = log.last_index
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.housekeeping_loop)
        await trio.sleep(UPKEEP_AGAIN_S)
        assert (upkeep.reclaimed_bytes, log.first_position) == (0, 0)
        upkeep.keep_from(5)
        await trio.sleep(UPKEEP_AGAIN_S)
        assert upkeep.reclaimed_bytes == log.first_position > 0
        nursery.cancel_scope.cancel()
    log.close()


async def test_a_scrub_waits_for_descriptors_and_stops_for_what_the_disk_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrub waits if no file can be opened, which proves no damage, and ends at a lost sector."""
    log, config = node(tmp_path)
    for index in range(1, 5):
        log.append(index, 1, Kind.MESSAGES, bytes(SEGMENT_BYTES // 2))
    log.sync()
    log.commit_index = 4
    errors = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO]
    tried = list[int]()

    def read(disk: Disk, path: Path, offset: int, size_bytes: int) -> bytes:
        tried.append(errors[len(tried)])
        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", fail)
            return read_part(disk, path, offset, size_bytes)

    def fail(*_: object) -> bytes:
        raise OSError(tried[-1], os.strerror(tried[-1]))

    read_part = Disk.read_part
    monkeypatch.setattr(Disk, "read_part", read)
    upkeep = Upkeep(config, log, lambda: True, trio.lowlevel.checkpoint)
    began_at = trio.current_time()
    with pytest.raises(Rot, match=f"can't read .*{os.strerror(errno.EIO)}"):
        await upkeep.scrub_loop()
    assert tried == errors
    assert trio.current_time() - began_at >= 3 * SCRUB_AGAIN_S
    log.close()


async def test_a_young_logs_only_segment_is_missed_from_its_first_commit_on(tmp_path: Path) -> None:
    """A start without the file says that the log is damaged; were the checkpoint left for later, it
    would take the log for a new one."""
    assert await _starts_without_its_segment(tmp_path / "noted") is False
    with plant("note no new segment"):
        assert await _starts_without_its_segment(tmp_path / "planted") is True


async def _starts_without_its_segment(folder: Path) -> bool:
    """Commit an entry in a new log, look after it for a moment, lose its segment in a crash."""
    log, _ = open_log(folder / "log", SEGMENT_BYTES)
    config = LedgerConfig("g", "n1", {"n1": ("127.0.0.1", 1)}, folder, segment_bytes=SEGMENT_BYTES)
    upkeep = Upkeep(config, log, lambda: False, trio.lowlevel.checkpoint)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.housekeeping_loop)
        await trio.sleep(0.01)
        log.append(1, 1, Kind.MESSAGES, b"acknowledged")
        log.sync()
        log.commit_index = 1
        upkeep.look()
        await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    log.close_files()
    (folder / "log" / f"{0:020d}.seg").unlink()
    try:
        again, _ = open_log(folder / "log", SEGMENT_BYTES)
    except DamagedLog:
        return False
    again.close()
    return True
