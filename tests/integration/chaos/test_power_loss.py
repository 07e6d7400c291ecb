"""Power losses on real file systems: of one replica, of a majority, of all at one moment.

The long form: `python -m mqchaos.faults.power_loss --rounds 100`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import trio

from mqchaos.cluster.ext4 import mounted, why_not
from mqchaos.faults.power_loss import run_rounds


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """A folder in which ext4 images can be mounted and lose their power; skips where they can't."""
    problem = why_not(tmp_path)
    if problem is not None:
        pytest.skip(problem)
    return tmp_path


def loop_devices() -> str:
    argv = ["/usr/sbin/losetup", "-a"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_what_was_not_synced_is_gone_and_what_was_is_not(disks: Path) -> None:
    """A write without a sync does not survive the cut, and one with a sync does."""
    with mounted(disks / "one.img", disks / "one") as disk:
        kept, lost = disk.mount_point / "kept", disk.mount_point / "lost"
        with kept.open("wb") as file:
            file.write(b"durable")
            file.flush()
            subprocess.run(["/bin/sync", str(kept)], check=True)
        lost.write_bytes(b"in memory")
        disk.cut_power()
        disk.unmount()
        disk.mount()
        assert kept.read_bytes() == b"durable"
        assert not lost.exists()
    assert not disk.mount_point.is_mount()
    assert str(disks) not in loop_devices()


def test_nothing_acknowledged_is_lost_with_the_power(disks: Path) -> None:
    """Acknowledged appends survive power losses of one, two and all three replicas under load."""
    report = trio.run(run_rounds, disks, 3, 1)
    print(report)
    assert report.clean
    assert report.rounds == {1: 1, 2: 1, 3: 1}
    assert len(report.acknowledged) > 500


def test_a_flush_that_does_not_wait_for_the_disk_loses_what_it_says(disks: Path) -> None:
    """A power loss of all three replicas loses the last moments of ASYNC_FLUSH.

    Ten cuts at most, as one may come just behind a sync, or while a slow machine's group has no
    leader.
    """

    async def lost(seed: int) -> int:
        folder = disks / str(seed)
        folder.mkdir()
        report = await run_rounds(folder, 1, seed, victims=(3,), flush="ASYNC_FLUSH")
        print(report)
        return len(report.lost)

    assert any(trio.run(lost, seed) for seed in range(1, 11))
