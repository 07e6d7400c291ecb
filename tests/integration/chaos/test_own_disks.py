"""Disks that are broken for real: a file system of a node's own fails with the kernel's errors."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import new_cluster

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.own_disk import OwnDisk, own_disks, remove_leftovers
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults.fault import FAULTS
from mqchaos.faults.kinds import KILL, LOST_FILE, OF_OWN_DISKS, POWER_LOSS, SHORT_FILE, WIPE
from mqchaos.faults.machine import no_own_disks

from .levels import level

BROKER = "broker-a"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[OwnDisk]:
    """A disk for one store."""
    skip_without_disks()
    disks: dict[str, OwnDisk] = {}
    with own_disks(tmp_path, {"n0": tmp_path / "store"}, disks):
        yield disks["n0"]


def skip_without_disks() -> None:
    problem = no_own_disks()
    if problem is not None:
        pytest.skip(problem)


def synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def error_of(path: Path, content: bytes = bytes(1 << 20)) -> int | None:
    """The error of a write with its sync, or None."""
    try:
        synced(path, content)
    except OSError as error:
        return error.errno
    return None


def test_a_full_file_system_takes_nothing_until_it_has_room(disk: OwnDisk) -> None:
    """A full file system takes neither a new file nor more of an old one, and keeps the rest."""
    store = disk.inner.mount_point
    synced(store / "kept", b"kept")
    disk.fill()
    assert disk.full()
    assert error_of(store / "new", b"x") == errno.ENOSPC
    assert error_of(store / "kept2") == errno.ENOSPC
    disk.relieve()
    assert not disk.full()
    assert error_of(store / "new") is None
    assert (store / "kept").read_bytes() == b"kept"


def test_a_disk_without_room_below_fails_what_is_written_to_new_places(disk: OwnDisk) -> None:
    """A full disk below fails writes to new places, and a start of the machine mends it."""
    store = disk.inner.mount_point
    synced(store / "kept", b"kept")
    disk.starve()
    assert disk.starved()
    assert not disk.full()
    assert error_of(store / "new", os.urandom(64 << 20)) in (errno.EIO, errno.ENOSPC, errno.EROFS)
    disk.mount_again(checked=True)
    assert error_of(store / "newer") is None
    assert (store / "kept").read_bytes() == b"kept"


def test_a_file_system_that_found_an_error_takes_nothing_more(disk: OwnDisk) -> None:
    """An aborted file system is read-only, and has what was synced before."""
    store = disk.inner.mount_point
    synced(store / "kept", b"kept")
    disk.inner.abort()
    assert error_of(store / "new", b"x") == errno.EROFS
    disk.mount_again(checked=True)
    assert error_of(store / "new", b"x") is None
    assert (store / "kept").read_bytes() == b"kept"


def test_what_lies_there_in_the_end_is_in_a_plain_folder(tmp_path: Path) -> None:
    """A run's end leaves plain folders for the audit, without mounts and images."""
    skip_without_disks()
    store = tmp_path / "cluster" / "store"
    store.parent.mkdir()
    disks: dict[str, OwnDisk] = {}
    with own_disks(tmp_path, {"n0": store}, disks):
        (store / "log").mkdir()
        synced(store / "log" / "segment", b"x" * 100)
        assert store.is_mount()
    assert not store.is_mount()
    assert disks == {}
    assert [path.name for path in store.rglob("*")] == ["log", "segment"]
    assert [path.name for path in tmp_path.iterdir()] == ["cluster"]


def test_a_disk_that_is_wrecked_in_the_end_hides_no_error(tmp_path: Path) -> None:
    """A run that ends amid a power loss raises its cause, with a note of what was not kept."""
    skip_without_disks()
    disks: dict[str, OwnDisk] = {}
    store = tmp_path / "store"

    def run() -> None:
        with own_disks(tmp_path, {"n0": store}, disks):
            synced(store / "segment", b"x")
            disks["n0"].inner.cut_power()
            raise ClusterError("the cause")

    with pytest.raises(ClusterError, match="the cause") as ended:
        run()
    assert f"not all of {store} could be kept" in ended.value.__notes__[0]
    assert not store.is_mount()


KILLED = """
import sys, time
from pathlib import Path
from mqchaos.cluster.own_disk import own_disks
folder = Path(sys.argv[1])
with own_disks(folder, {"n0": folder / "store"}, {}):
    print("mounted", flush=True)
    time.sleep(60)
"""


def test_the_next_harness_unmounts_what_a_killed_one_left(disk: OwnDisk, tmp_path: Path) -> None:
    """The next harness unmounts a dead one's disks, and leaves a living one's alone."""
    left = tmp_path / "left"
    left.mkdir()
    argv = [sys.executable, "-c", KILLED, str(left)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"mounted\n"
        assert remove_leftovers() == []
        harness.send_signal(signal.SIGKILL)
    assert (left / "store").is_mount()

    assert str(left / "store") in remove_leftovers()

    assert not (left / "store").is_mount()
    assert disk.inner.mount_point.is_mount()
    devices = subprocess.check_output(["/usr/sbin/losetup", "-a"], text=True)
    assert str(left) not in devices


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and three replicas, each on a disk of its own."""
    folder = tmp_path_factory.mktemp("chaos")
    skip_without_disks()
    cluster = new_cluster(folder, segment_bytes=1 << 20)
    stores = {node.name: cluster.store(node) for node in cluster.layout.nodes}
    with own_disks(folder, stores, cluster.disks), cluster.running():
        yield cluster


OF_FILES = {kind.name for kind in (WIPE, LOST_FILE, SHORT_FILE)}


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(OF_OWN_DISKS | OF_FILES))
async def test_a_wrecked_disk_takes_effect_and_is_healed(cluster: Cluster, name: str) -> None:
    """A wrecked disk of the leader takes effect, its group goes on, and it comes level again."""
    hurt, fault = await level(cluster), FAULTS[name]
    assert fault.why_not(cluster, hurt) is None
    await fault.inject(cluster, hurt)
    assert await fault.took_effect(cluster, hurt)
    if fault.kind.state == "down":
        other = next(node for node in cluster.layout.nodes if node not in hurt)
        why = FAULTS[KILL.name].why_not(cluster, (other,))
        assert why == "broker-a would lose its majority"
    await fault.heal(cluster, hurt)
    await level(cluster)


async def test_a_node_that_was_started_before_its_power_is_back_is_healed_too(
    cluster: Cluster,
) -> None:
    """The end of another fault starts it, on a file system that the kernel has shut down."""
    hurt, fault = await level(cluster), FAULTS[POWER_LOSS.name]
    await fault.inject(cluster, hurt)
    assert cluster.start([hurt[0].name]) == [hurt[0].name]
    await fault.heal(cluster, hurt)
    await level(cluster)
