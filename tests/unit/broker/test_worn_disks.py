"""A replica's own disk faults have no effect that another replica would notice."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec
import pytest
import trio

from dledger.ledger.config import LedgerStatus
from dledger.log.entry import Entry
from dledger.remoting.message import properties_encode
from dledger.testing.local import LocalLedger
from mqbroker import app, limits
from mqbroker.app import Snapshots
from mqbroker.leader.appending.drafts import NewRecord
from mqbroker.state import control
from mqbroker.state.derived import consume_queue
from mqbroker.state.derived.consume_queue import ConsumeQueues
from mqbroker.state.derived.units import UNIT_BYTES
from mqbroker.state.machine import Machine
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine
from mqbroker.testing.pictured import saved_state_of


class Log:
    """The part of a ledger that saving depends on."""

    state_unsaved = True
    applying_s = 0.0

    def __init__(self, ledger: LocalLedger) -> None:
        self._ledger = ledger

    @property
    def status(self) -> LedgerStatus:
        return self._ledger.status

    def entries(self, first_index: int, last_index: int) -> Iterator[Entry]:
        return self._ledger.entries(first_index, last_index)

    def applying_held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def keep_from(self, index: int) -> None:
        pass

    async def wait_durable(self, index: int) -> None:
        pass


def filled(directory: Path, messages: int, queues: int = 1) -> LeadingMachine:
    """A leading broker's machine, with messages in each queue of a topic."""
    leader = LeadingMachine(directory)
    leader.change(control.PutTopics([read_write("A", queues)], 1))
    for number in range(messages):
        for queue_id in range(queues):
            properties = properties_encode({"UNIQ_KEY": f"k{number}-{queue_id}"})
            leader.append("A", queue_id, [NewRecord(b"body", properties, 1, HOST)])
    return leader


def state_of(machine: Machine) -> dict[str, object]:
    """State that replicas agree on, with the queue's units."""
    state = msgspec.to_builtins(saved_state_of(machine))
    for own in ("ahead_index", "keys"):
        del state[own]
    queue = machine.queues.get("A", 0)
    assert queue is not None
    state["units"] = queue.read(queue.begin, queue.end).tobytes()
    return dict(state)


def test_damaged_files_set_no_entry_aside(tmp_path: Path) -> None:
    """The log's head is dropped by an entry that finds a rotten queue on one replica only. There
    the entry comes again when the queue is made again, and all replicas hold the same."""
    (tmp_path / "replica").mkdir()
    leader, replica = filled(tmp_path / "leader", messages=12), Machine(tmp_path / "replica")
    for entry in leader.ledger.entries(1):
        replica.apply(entry)
    replica.queues.flush()
    (path,) = replica.queues.take_unsynced()
    path.write_bytes(os.urandom(path.stat().st_size))
    (kept,) = leader.ledger.entries(8, 8)
    leader.change(control.DropHead(kept.position, kept.index))
    (drop,) = leader.ledger.entries(leader.machine.applied_index)
    assert replica.apply(drop) is None
    assert replica.aside.count == 0
    assert replica.applied_index == 0
    assert replica.first_index == 1
    while replica.applied_index < drop.index:
        (entry,) = leader.ledger.entries(replica.applied_index + 1, replica.applied_index + 1)
        replica.apply(entry)
    assert replica.first_index == 8
    assert state_of(replica) == state_of(leader.machine)


def test_what_found_no_room_is_written_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends one flush in the middle; the next begins with the queue that failed."""
    queues = ConsumeQueues(tmp_path / "queues")
    for number in range(3):
        queues.append(f"T{number}", 0, bytes(UNIT_BYTES), number)
    steps = queues.flush_steps()
    next(steps)

    def refuse(descriptor: int, data: memoryview, at: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(consume_queue, "_write_all", refuse)
        with pytest.raises(OSError, match="No space left"):
            next(steps)
    assert queues.dirty == 2
    queues.flush()
    assert queues.dirty == 0
    assert [path.stat().st_size for path in queues.take_unsynced()] == [UNIT_BYTES] * 3
    queues.close()


@pytest.mark.usefixtures("virtual_world")
async def test_a_full_disk_costs_a_save_and_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that a full disk prevents is tried every few seconds, until there is room."""
    monkeypatch.setattr(limits, "SYNCED_ONE_BY_ONE_MAX", 2)
    leader = filled(tmp_path, messages=1, queues=4)
    tried_at: list[float] = []

    def refuse(paths: Iterable[Path]) -> None:
        tried_at.append(trio.current_time())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with trio.open_nursery() as nursery:
        with monkeypatch.context() as full:
            full.setattr(app, "make_files", refuse)
            nursery.start_soon(Snapshots(leader.machine, Log(leader.ledger)).run)
            await trio.sleep(10)
        assert 2 < len(tried_at) <= 1 + 10 / limits.SNAPSHOT_INTERVAL_S
        assert leader.machine.saved_index == 0
        await trio.sleep(2 * limits.SNAPSHOT_INTERVAL_S)
        assert leader.machine.saved_index == leader.machine.applied_index
        nursery.cancel_scope.cancel()
