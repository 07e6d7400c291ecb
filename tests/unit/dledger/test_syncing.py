"""Syncs of a log: when they begin, and which tasks hear of their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from dledger.errors import Fenced
from dledger.ledger.syncing import Syncing
from dledger.limits import ASYNC_SYNC_PERIOD_S, SYNC_HERE_S, SYNCS_QUICK_MIN
from dledger.log.disk import Disk
from dledger.log.entry import Kind
from dledger.log.jobs import SyncJob
from dledger.log.recovery.startup import open_log

pytestmark = pytest.mark.usefixtures("virtual_world")

SEGMENT_BYTES = 64 * 1024


class Node:
    """A log and its syncs; how far it was durable at the end of each, and afterwards."""

    def __init__(self, folder: Path, after_s: float) -> None:
        self.log, _ = open_log(folder / "log", SEGMENT_BYTES)
        self.durable: list[int] = []
        self.steps: list[int] = []
        self.syncing = Syncing("n1", self.log, after_s, self._synced, self._step)

    def _synced(self, job: SyncJob, error: OSError | None) -> None:
        self.log.finish_sync(job, error)
        self.durable.append(self.log.durable_index)

    def _step(self) -> None:
        self.steps.append(self.log.durable_index)

    def write(self) -> None:
        """Write one more entry, and report it to the syncing."""
        self.log.append(self.log.last_index + 1, 1, Kind.MESSAGES, b"entry")
        self.log.write_out()
        self.syncing.written()

    def start(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.syncing.begin_loop)
        nursery.start_soon(self.syncing.end_loop)


async def cancelled(loop: Callable[[], Awaitable[None]]) -> None:
    """A loop that has to end at once."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await loop()


async def test_what_is_written_during_a_sync_is_the_next_ones(tmp_path: Path) -> None:
    """Entries that are written during a sync share the next one."""
    node = Node(tmp_path, after_s=0.0)
    async with trio.open_nursery() as nursery:
        node.start(nursery)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(10):
            node.write()
        await trio.testing.wait_all_tasks_blocked()
        assert node.durable == node.steps == [1, 10]
        nursery.cancel_scope.cancel()


async def quick_disk(node: Node) -> None:
    """Make as many quick syncs as let the next one do without a thread."""
    for _ in range(SYNCS_QUICK_MIN):
        node.write()
        await trio.testing.wait_all_tasks_blocked()


async def test_a_quick_disk_is_waited_for(tmp_path: Path) -> None:
    """A single entry is durable when the step that has written it goes on; several are the
    thread's."""
    node = Node(tmp_path, after_s=0.0)
    async with trio.open_nursery() as nursery:
        node.start(nursery)
        node.write()
        assert node.durable == []
        await quick_disk(node)
        node.write()
        assert node.durable[-1] == node.log.last_index

        node.log.append(node.log.last_index + 1, 1, Kind.MESSAGES, b"entry")
        node.write()
        assert node.durable[-1] == node.log.last_index - 2
        nursery.cancel_scope.cancel()


async def test_a_disk_that_was_slow_is_not_waited_for(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow sync moves the next ones to the thread, until many in a row were quick."""
    node = Node(tmp_path, after_s=0.0)
    sync, slow_s = Disk.sync_data, [0.0]

    def take_time(disk: Disk, descriptor: int) -> None:
        sync(disk, descriptor)
        autojump_clock.jump(slow_s[0])

    monkeypatch.setattr(Disk, "sync_data", take_time)
    async with trio.open_nursery() as nursery:
        node.start(nursery)
        await trio.testing.wait_all_tasks_blocked()
        await quick_disk(node)
        slow_s[0] = 2 * SYNC_HERE_S
        node.write()
        assert node.durable[-1] == node.log.last_index
        slow_s[0] = 0.0
        for _ in range(SYNCS_QUICK_MIN):
            node.write()
            assert node.durable[-1] < node.log.last_index
            await trio.testing.wait_all_tasks_blocked()
        node.write()
        assert node.durable[-1] == node.log.last_index
        nursery.cancel_scope.cancel()


async def test_a_sync_within_a_step_that_fails_is_the_steps_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync that fails within a step is the step's error, and nothing is durable."""
    node = Node(tmp_path, after_s=0.0)

    def fail(_disk: Disk, _descriptor: int) -> None:
        raise OSError(5, "the disk is gone")

    async with trio.open_nursery() as nursery:
        node.start(nursery)
        await quick_disk(node)
        durable = [*node.durable]
        monkeypatch.setattr(Disk, "sync_data", fail)
        with pytest.raises(Fenced, match="the disk is gone"):
            node.write()
        assert node.durable == durable
        nursery.cancel_scope.cancel()


async def test_a_sync_that_may_wait_does(tmp_path: Path) -> None:
    """A sync waits for its period, or until a task wants to know that all is durable."""
    node = Node(tmp_path, ASYNC_SYNC_PERIOD_S)
    async with trio.open_nursery() as nursery:
        node.start(nursery)
        node.write()
        await trio.sleep(ASYNC_SYNC_PERIOD_S - 0.1)
        assert node.durable == []
        await trio.sleep(0.2)
        assert node.durable == [1]

        node.write()
        began_s = trio.current_time()
        await node.syncing.more_durable()
        assert node.durable == [1, 2]
        assert trio.current_time() == began_s
        nursery.cancel_scope.cancel()


async def test_who_waits_while_nothing_is_to_be_synced_does_not_wait_for_ever(
    tmp_path: Path,
) -> None:
    """A task that waits with nothing to sync returns, as all may just have become durable."""
    node = Node(tmp_path, after_s=0.0)
    async with trio.open_nursery() as nursery:
        node.start(nursery)
        with trio.fail_after(1):
            await node.syncing.more_durable()
        assert node.durable == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("after_s", [0.0, ASYNC_SYNC_PERIOD_S])
async def test_a_sync_that_fails_ends_the_loop_and_is_not_tried_again(
    after_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed sync ends the loop with an error that fences the node, and is not repeated."""
    node, tries = Node(tmp_path, after_s), list[int]()

    def fail(_disk: Disk, descriptor: int) -> None:
        tries.append(descriptor)
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr(Disk, "sync_data", fail)
    node.write()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.syncing.begin_loop)
        with pytest.raises(Fenced, match="the disk is gone"):
            await node.syncing.end_loop()
        nursery.cancel_scope.cancel()
    assert node.log.durable_index == 0
    node.syncing._begin()
    assert len(tries) == 1


async def test_a_sync_under_way_is_waited_for_at_the_end(tmp_path: Path) -> None:
    """The log's files are closed next."""
    node = Node(tmp_path, after_s=0.0)
    synced: list[int] = []
    sync = Disk.sync_data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "sync_data", lambda disk, fd: (sync(disk, fd), synced.append(fd)))
        node.write()
        async with trio.open_nursery() as nursery:
            node.start(nursery)
            nursery.cancel_scope.cancel()
    assert len(synced) == 1


async def test_a_sync_that_fails_at_the_end_is_not_taken_back_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports lost pages once. A checkpoint by a second sync would vouch for them."""
    node, tries = Node(tmp_path, after_s=0.0), list[int]()

    def fail_once(_disk: Disk, descriptor: int) -> None:
        tries.append(descriptor)
        if len(tries) == 1:
            raise OSError(5, "the disk is gone")

    monkeypatch.setattr(Disk, "sync_data", fail_once)
    node.write()
    node.write()
    with pytest.raises(Fenced, match="the disk is gone"):
        await cancelled(node.syncing.end_loop)
    node.log.close()

    assert (len(tries), node.log.durable_index) == (1, 0)
    assert not (tmp_path / "log" / "checkpoint").exists()


async def test_a_sync_that_ends_with_the_log_counts(tmp_path: Path) -> None:
    """A sync that ends while the log closes makes its entries durable."""
    node = Node(tmp_path, after_s=0.0)
    node.write()
    await cancelled(node.syncing.end_loop)
    assert node.log.durable_index == 1
