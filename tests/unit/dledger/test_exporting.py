"""Copies of a replica are whole or absent, whatever happens during the copying."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from dledger import LedgerConfig, open_ledger
from dledger.errors import ConfigError, StorageError
from dledger.ledger.exporting import Export, ExportPlan
from dledger.log.entry import Kind
from dledger.log.head import LogHead, encode_head
from dledger.log.recovery.verify import verify_replica
from dledger.log.replica import MANIFEST_FILE, PARTIAL_FILE, describe_replica, hold_replica
from dledger.testing.local import KeepsNothing
from mqchaos.cluster.processes import free_ports

SEGMENT_BYTES = 16_384
BODY_BYTES = 1_000
ENTRIES = 60


async def exported(tmp_path: Path, entries: int = ENTRIES) -> tuple[ExportPlan, Export]:
    """A replica with several segments, and a copy made while it served."""
    peers = {"n0": ("127.0.0.1", free_ports(1)[0])}
    folder = tmp_path / "store"
    config = LedgerConfig("g", "n0", peers, folder, segment_bytes=SEGMENT_BYTES)
    machine = KeepsNothing()
    with trio.fail_after(30):
        async with open_ledger(config, machine) as ledger:
            await machine.led.wait()
            for number in range(entries):
                await ledger.append(bytes([number]) * BODY_BYTES, Kind.CONTROL)
            plan = ledger.export_plan()
            await ledger.append(b"later", Kind.CONTROL)
            export = Export(plan, tmp_path / "copies" / "one")
            await trio.to_thread.run_sync(export.run, 1_000)
            await ledger.append(b"later still", Kind.CONTROL)
    return plan, export


@pytest.fixture
async def copied(tmp_path: Path) -> tuple[ExportPlan, Export]:
    return await exported(tmp_path)


def inode(path: Path) -> int:
    return path.stat().st_ino


async def test_a_copy_is_the_committed_prefix_and_checks_whole(
    copied: tuple[ExportPlan, Export],
) -> None:
    """Old segments are the same files; the last one is cut where the copy was begun."""
    plan, export = copied
    log, copy = plan.folder / "log", export.target / "log"
    names = sorted(path.name for path in copy.glob("*.seg"))
    *old, last = names

    assert len(old) >= 3
    assert all(inode(log / name) == inode(copy / name) for name in old)
    assert inode(log / last) != inode(copy / last)
    checked = verify_replica(export.target)
    assert (checked.last_index, checked.end_position) == (plan.last_index, plan.end_position)
    assert (checked.damaged, checked.torn) == (0, 0)
    manifest = describe_replica(export.target).manifest
    assert manifest is not None
    assert (manifest.last_index, manifest.linked) == (plan.last_index, len(old))
    assert verify_replica(plan.folder).last_index == plan.last_index + 2


async def test_a_node_does_not_start_on_a_copy(copied: tuple[ExportPlan, Export]) -> None:
    """A node does not start on a copy, which lacks what was promised later."""
    _, export = copied
    with (
        pytest.raises(StorageError, match="take back what it has promised"),
        hold_replica(export.target, "g", "n0", SEGMENT_BYTES),
    ):
        raise AssertionError("it started")


async def test_half_a_copy_is_not_taken_for_one(copied: tuple[ExportPlan, Export]) -> None:
    """A copy without its end, as after a crash, or with a damaged manifest is refused."""
    _, export = copied
    (export.target / MANIFEST_FILE).write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        describe_replica(export.target)
    (export.target / MANIFEST_FILE).rename(export.target / PARTIAL_FILE)
    with pytest.raises(ConfigError, match="half a copy: its export was not finished"):
        describe_replica(export.target)


@pytest.mark.parametrize("name", ["replica.json", "export.json", "log/term", "log/{:020}.seg"])
async def test_a_pipe_in_a_copy_is_not_waited_for(
    copied: tuple[ExportPlan, Export], name: str
) -> None:
    """A pipe in a copy is an error with its name, and is not read."""
    path = copied[1].target / name.format(0)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=f"{path.name} is a pipe, not a file"):
        verify_replica(copied[1].target)


async def test_what_is_there_is_left_alone(copied: tuple[ExportPlan, Export]) -> None:
    """A copy never goes into a folder that exists."""
    plan, export = copied
    before = sorted(export.target.rglob("*"))

    with pytest.raises(StorageError, match="exists already"):
        Export(plan, export.target).run(0)

    assert sorted(export.target.rglob("*")) == before


def refuse(number: int) -> Callable[..., None]:
    """Stands in for a call of the system that fails."""

    def call(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK])
async def test_where_there_are_no_links_files_are_copied(
    number: int, copied: tuple[ExportPlan, Export], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are copied on another file system, without hard links, or with too many."""
    plan, _ = copied
    monkeypatch.setattr(os, "link", refuse(number))
    export = Export(plan, plan.folder.with_name("other"))

    manifest = export.run(0)

    assert manifest.linked == 0
    assert manifest.copied_bytes > SEGMENT_BYTES * (len(plan.bases) - 1)
    assert verify_replica(export.target).last_index == plan.last_index


@pytest.mark.parametrize("call", ["link", "fsync"])
async def test_a_full_disk_leaves_nothing(
    call: str, copied: tuple[ExportPlan, Export], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is gone again, and the replica as it was."""
    plan, _ = copied
    monkeypatch.setattr(os, call, refuse(errno.ENOSPC))
    export = Export(plan, plan.folder.with_name("other"))

    with pytest.raises(StorageError, match="No space left on device; the replica itself"):
        export.run(0)

    assert not export.target.exists()


async def test_a_disk_without_room_to_go_on_is_refused_at_once(
    copied: tuple[ExportPlan, Export], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that would leave the log too little room is refused."""
    plan, _ = copied
    usage = shutil.disk_usage(plan.folder)
    little = usage._replace(free=3 * SEGMENT_BYTES - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: little)

    with pytest.raises(StorageError, match="make room or export to another disk"):
        Export(plan, plan.folder.with_name("other")).run(0)


async def test_a_copy_that_is_broken_off_leaves_nothing(
    copied: tuple[ExportPlan, Export],
) -> None:
    """A copy that a stopping broker breaks off is removed."""
    plan, _ = copied
    export = Export(plan, plan.folder.with_name("other"))
    export.cancelled = True

    with pytest.raises(StorageError, match="broken off"):
        export.run(0)

    assert not export.target.exists()


async def test_what_retention_takes_meanwhile_is_not_in_the_copy(
    copied: tuple[ExportPlan, Export],
) -> None:
    """Segments that retention removes meanwhile are missing in the copy, which begins later."""
    plan, _ = copied
    first, second, third = plan.bases[:3]
    before = verify_replica(plan.folder)
    whole = Export(plan, plan.folder.with_name("whole"))
    whole.run(0)
    head = _head_at(plan, third)
    (plan.folder / "log" / "head").write_bytes(encode_head(head))
    for base in (first, second):
        (plan.folder / "log" / f"{base:020}.seg").unlink()
    export = Export(plan, plan.folder.with_name("other"))

    manifest = export.run(0)

    assert manifest.first_position == third
    checked = verify_replica(export.target)
    assert (checked.first_index, checked.damaged) == (head.first_index, 0)
    assert checked.last_index == plan.last_index < before.last_index
    assert verify_replica(whole.target).first_index == 1


def _head_at(plan: ExportPlan, base: int) -> LogHead:
    """The head of the log once its segments before `base` are gone."""
    from dledger.log.scanning.scan import scan_entries  # noqa: PLC0415 - of this helper alone

    def headers(at: int) -> list[tuple[int, int]]:
        raw = memoryview((plan.folder / "log" / f"{at:020}.seg").read_bytes())
        found = scan_entries(raw, at, SEGMENT_BYTES, None, verify=False)
        return [(each.header.index, each.header.chain_crc) for each in found if each.header]

    return LogHead(base, headers(base)[0][0], headers(base - SEGMENT_BYTES)[-1][1])


async def test_a_log_that_was_replaced_meanwhile_is_not_copied(
    copied: tuple[ExportPlan, Export],
) -> None:
    """A replica that was away for too long begins anew, behind all that it had."""
    plan, _ = copied
    (plan.folder / "log" / "head").write_bytes(encode_head(LogHead(1 << 30, 10_000, 7)))
    for base in plan.bases[:-1]:
        (plan.folder / "log" / f"{base:020}.seg").unlink()
    moved = replace(plan, folder=plan.folder)

    with pytest.raises(StorageError, match="was replaced meanwhile"):
        Export(moved, plan.folder.with_name("other")).run(0)


async def test_a_log_with_nothing_in_it_has_no_copy(tmp_path: Path) -> None:
    """A log without an entry, of a node never in a group, has no copy."""
    ports = free_ports(2)
    peers = {f"n{number}": ("127.0.0.1", port) for number, port in enumerate(ports)}
    config = LedgerConfig("g", "n0", peers, tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    async with open_ledger(config, KeepsNothing()) as ledger:
        with pytest.raises(StorageError, match="nothing committed yet"):
            ledger.export_plan()
