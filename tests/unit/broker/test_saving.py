"""Snapshots of a broker's state: when they are made, and which are used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import trio

from dledger.errors import StorageError
from dledger.ledger.config import LedgerStatus
from dledger.log.disk import Disk as RealDisk
from dledger.log.entry import Entry
from dledger.raft.replication.base_state import Hold
from dledger.remoting.message import properties_encode
from dledger.slices import drained
from dledger.testing.local import LocalLedger
from mqbroker import limits
from mqbroker.app import Snapshots
from mqbroker.leader.appending.drafts import NewRecord
from mqbroker.state import control
from mqbroker.state.machine import Machine
from mqbroker.state.rows.picture import Fields
from mqbroker.state.saved.snapshot import FORMAT, PendingSnapshot, PictureSpoiled, State
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine, save


@dataclass
class Disk:
    """The part of a ledger that saving depends on: how far its log is durable."""

    log: LocalLedger
    durable: trio.Event = field(default_factory=trio.Event)
    waited_for: list[int] = field(default_factory=list)
    saved: trio.Event = field(default_factory=trio.Event)
    state_unsaved: bool = False
    applying_s: float = 0.0
    news: trio.Event = field(default_factory=trio.Event)

    async def changed(self) -> None:
        await self.news.wait()

    @property
    def status(self) -> LedgerStatus:
        return self.log.status

    def entries(self, first_index: int, last_index: int | None = None) -> Iterator[Entry]:
        return self.log.entries(first_index, last_index)

    def applying_held(self) -> AbstractContextManager[None]:
        return self.log.applying_held()

    def keep_from(self, index: int) -> None:
        if self.waited_for:  # it is told after every saving, and once at the start
            self.saved.set()

    async def wait_durable(self, index: int) -> None:
        self.waited_for.append(index)
        await self.durable.wait()


def filled(directory: Path, messages: int = 3) -> LeadingMachine:
    """A leading broker's machine with a topic and some messages."""
    leader = LeadingMachine(directory)
    leader.change(control.PutTopics([read_write("A", 1)], 1))
    for number in range(messages):
        properties = properties_encode({"UNIQ_KEY": f"k{number}"})
        leader.append("A", 0, [NewRecord(b"body", properties, 1, HOST)])
    return leader


async def test_a_state_is_saved_only_when_the_log_behind_it_is_on_the_disk(tmp_path: Path) -> None:
    """A state ahead of its durable log is not saved: after a power loss it would be of no use."""
    leader = filled(tmp_path)
    disk = Disk(leader.ledger)
    snapshots = Snapshots(leader.machine, disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(snapshots.save)
        await trio.sleep(10)
        assert disk.waited_for == [leader.machine.applied_index]
        assert leader.machine.saved_index == 0
        assert not (tmp_path / "snapshot.msgpack").exists()
        disk.durable.set()
    assert leader.machine.saved_index == leader.machine.applied_index == 5
    assert (tmp_path / "snapshot.msgpack").exists()


async def test_a_state_that_is_waited_for_is_saved_at_once(tmp_path: Path) -> None:
    """A state that the replica waits for is saved at once, after three messages, too."""
    leader = filled(tmp_path)
    disk = Disk(leader.ledger)
    disk.durable.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Snapshots(leader.machine, disk).run)
        await trio.sleep(0.6)
        assert leader.machine.saved_index == 0
        disk.state_unsaved = True
        disk.news.set()
        with trio.fail_after(30):
            await disk.saved.wait()
        assert leader.machine.saved_index == 5
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("virtual_world")
@pytest.mark.parametrize(
    ("bound", "value"),
    [("SNAPSHOT_LOG_BYTES", 3000), ("SNAPSHOT_ENTRIES", 4), ("SNAPSHOT_APPLY_S", 0.4)],
)
async def test_what_a_start_replays_is_a_reason_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    """A group that is killed again and again, before it has taken enough by itself, would replay
    more at each start."""
    leader = filled(tmp_path)
    save(leader.machine)
    records = [NewRecord(bytes(500), properties_encode({"UNIQ_KEY": "k"}), 1, HOST)] * 2
    for _ in range(4):
        leader.append("A", 0, records)
    monkeypatch.setattr(limits, bound, value)
    restarted = Machine(tmp_path)
    assert restarted.restore() is None
    ledger = leader.ledger
    disk = Disk(ledger)
    disk.durable.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Snapshots(restarted, disk).run)
        await trio.sleep(1)
        for entry in ledger.entries(restarted.applied_index + 1):
            restarted.apply(entry)
            disk.applying_s += 0.1
        disk.news.set()
        await trio.sleep(1)
        assert restarted.saved_index == restarted.applied_index == 9
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("virtual_world")
async def test_a_state_whose_picture_takes_long_is_saved_seldom(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots stop the applying of entries for a tenth of the time at most."""
    leader = filled(tmp_path)
    disk = Disk(leader.ledger)
    picture = leader.machine.begin_snapshot

    def slow() -> Generator[None, None, PendingSnapshot]:
        autojump_clock.jump(5)
        return (yield from picture())

    monkeypatch.setattr(leader.machine, "begin_snapshot", slow)

    async def apply_for(seconds: float) -> None:
        leader.append("A", 0, [NewRecord(b"body", b"", 1, HOST)])
        disk.applying_s += seconds
        disk.news.set()
        await trio.sleep(limits.SNAPSHOT_INTERVAL_S + 1)
        # The picture has jumped over that time; on a slow machine it has more slices to go.
        await trio.testing.wait_all_tasks_blocked()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Snapshots(leader.machine, disk).run)
        await apply_for(limits.SNAPSHOT_APPLY_S)
        assert disk.waited_for == [6]
        await trio.sleep(100)
        disk.durable.set()
        await apply_for(20)
        await apply_for(20)
        assert leader.machine.saved_index == 6
        await apply_for(20)
        await trio.sleep(1)  # the picture has taken the time of the sleep before
        assert leader.machine.saved_index == 9
        nursery.cancel_scope.cancel()


async def test_appends_wait_for_a_picture_and_are_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture is of one entry, whatever is committed between its slices. Then all is applied."""
    leader = filled(tmp_path)
    machine, disk = leader.machine, Disk(leader.ledger)
    disk.durable.set()
    fine, applied = machine._beginning_snapshot, list[int]()

    def appended_to() -> Generator[Hold, None, PendingSnapshot]:
        steps = fine()
        while True:
            leader.append("A", 0, [NewRecord(b"body", b"", 1, HOST)])
            applied.append(machine.applied_index)
            try:
                yield next(steps)
            except StopIteration as end:
                return end.value

    monkeypatch.setattr(machine, "begin_snapshot", appended_to)
    await Snapshots(machine, disk).save()
    assert set(applied) == {5}
    assert len(applied) > 5
    assert (machine.saved_index, machine.applied_index) == (5, 5 + len(applied))
    again = Machine(tmp_path)
    assert again.restore() is None
    assert (again.applied_index, again.queues.end("A", 0)) == (5, 3)


def test_a_picture_that_something_was_applied_under_is_none(tmp_path: Path) -> None:
    """A picture during which an entry was applied is discarded: no replica ever had that state."""
    leader = filled(tmp_path)
    steps = leader.machine._beginning_snapshot()
    next(steps)
    leader.append("A", 0, [NewRecord(b"body", b"", 1, HOST)])
    with pytest.raises(PictureSpoiled):
        drained(steps)


@pytest.mark.usefixtures("virtual_world")
async def test_a_picture_that_is_spoiled_is_taken_anew(tmp_path: Path) -> None:
    """Queues may be made again at any time, when damage was found."""
    leader = filled(tmp_path)
    disk = Disk(leader.ledger)
    disk.durable.set()
    snapshots, pictured = Snapshots(leader.machine, disk), leader.machine.picture

    def spoiled(fields: Fields) -> Generator[None, None, None]:
        yield from pictured(fields)
        leader.machine.generation += 1

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(leader.machine, "picture", spoiled)
        await snapshots.save()
    assert leader.machine.saved_index == 0
    assert sum(snapshots.took.counts) == 0
    await snapshots.save()
    assert leader.machine.saved_index == 5
    assert sum(snapshots.took.counts) == 1


def test_a_state_that_was_taken_over_needs_the_log_that_led_to_it(tmp_path: Path) -> None:
    """A snapshot of a state from the leader needs the log up to that state's entries."""
    (tmp_path / "replica").mkdir()
    leader = filled(tmp_path / "leader")
    replica = Machine(tmp_path / "replica")
    index, payload = drained(leader.machine.capture())
    drained(replica.install(index, payload, 3))
    snapshot = drained(replica.begin_snapshot())
    assert (snapshot.applied_index, snapshot.needed_index) == (2, 5)


def test_a_picture_of_before_another_state_was_taken_over_counts_for_nothing(
    tmp_path: Path,
) -> None:
    """The queues that it claims are gone, so a restart could not use it."""
    (tmp_path / "replica").mkdir()
    leader, replica = filled(tmp_path / "leader"), filled(tmp_path / "replica").machine
    picture = drained(replica.begin_snapshot())
    index, payload = drained(leader.machine.capture())
    drained(replica.install(index, payload, 3))
    with pytest.raises(FileNotFoundError):
        picture.write()
    replica.saved(picture)
    assert replica.saved_index == 0
    save(replica)
    assert replica.saved_index == 2
    again = Machine(tmp_path / "replica")
    assert again.restore() is None
    assert again.applied_index == again.saved_index == 2


@pytest.mark.parametrize("payload", [b"\xc1", msgspec.msgpack.encode(State(format=FORMAT + 1))])
def test_a_state_that_can_not_be_read_is_not_taken_over(tmp_path: Path, payload: bytes) -> None:
    """A state of a newer version, or a damaged one, is refused, and the own one stays."""
    replica = filled(tmp_path).machine
    with pytest.raises(StorageError, match="state"):
        drained(replica.install(7, payload, 3))
    assert (replica.applied_index, replica.generation) == (5, 0)
    assert replica.queues.end("A", 0) == 3


def test_a_picture_that_was_not_written_leaves_its_files_to_the_next_one(tmp_path: Path) -> None:
    """A broker that stops may give up waiting for its log: the files must be synced all the
    same before a snapshot claims them."""
    leader = filled(tmp_path)
    first = drained(leader.machine.begin_snapshot())
    second = drained(leader.machine.begin_snapshot())
    assert first.synced
    assert second.synced == first.synced
    second.write()
    leader.machine.saved(second)
    assert not drained(leader.machine.begin_snapshot()).synced


def test_a_state_that_a_start_finds_is_durable_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process may have given it its name, and not have come to sync the folder."""
    save(filled(tmp_path).machine)
    again, synced = Machine(tmp_path), list[tuple[Path, int]]()
    monkeypatch.setattr(
        RealDisk, "sync_folder", lambda disk, path: synced.append((path, again.saved_index))
    )
    assert again.restore() is None
    assert again.saved_index > 0
    assert synced == [(tmp_path, 0)]


def test_a_state_that_can_not_be_used_is_not_a_saved_one(tmp_path: Path) -> None:
    """A snapshot that is damaged, or ahead of its log, is not used."""
    save(filled(tmp_path).machine)
    again = Machine(tmp_path)
    again.restore()
    assert again.saved_index == 5
    again.forget()
    assert again.saved_index == 0
    path = tmp_path / "snapshot.msgpack"
    path.write_bytes(path.read_bytes()[:-1])
    damaged = Machine(tmp_path)
    assert damaged.restore() is not None
    assert damaged.saved_index == 0
