"""The state machine: the same log gives the same state, however often it was stopped on the way."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dledger.errors import CorruptLog
from dledger.log.entry import Entry, Kind
from dledger.remoting.bodies import SubscriptionGroupConfig
from dledger.remoting.message import properties_encode
from dledger.slices import drained
from mqbroker.leader.appending.drafts import NewRecord
from mqbroker.state import control
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.machine import Machine
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine, save
from mqbroker.testing.pictured import ends_of, rows_in


class Log(LeadingMachine):
    """A leader's appends, by a clock in the test's hands."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 1000
        super().__init__(directory, lambda: self.now_ms)

    def send(self, topic: str, queue_id: int, count: int, key: str) -> None:
        properties = properties_encode({"UNIQ_KEY": key, "TAGS": f"T{count}"})
        self.append(topic, queue_id, [NewRecord(b"x" * count, properties, 1, HOST)] * count)


def state_of(machine: Machine) -> dict[str, object]:
    """State that replicas must agree on."""
    units = {
        (topic, queue_id): queue.read(0, queue.end).tolist()
        for topic, (_, ends) in ends_of(machine.queues).items()
        for queue_id in ends
        if (queue := machine.queues.get(topic, queue_id)) is not None
    }
    return {
        "index": machine.applied_index,
        "clock": machine.clock_ms,
        "topics": sorted(machine.topics, key=lambda topic: topic.topic_name),
        "versions": (machine.topics.version, machine.groups.version),
        "groups": sorted(machine.groups, key=lambda group: group.group_name),
        "offsets": rows_in(machine.offsets.picture()),
        "locks": sorted(zip(*map(rows_in, machine.locks.picture()), strict=True)),
        "dedup": rows_in(machine.dedup.picture()),
        "queues": units,
        "keys": [list(machine.keys.find("A", f"k{number}")) for number in range(50)],
    }


def random_operation(log: Log, rng: random.Random) -> None:
    topic = rng.choice(["A", "B", "C"])
    log.now_ms += rng.randrange(-20, 100)  # the wall clock may go back
    change: Callable[[], None] = rng.choice(
        [
            lambda: log.send(topic, rng.randrange(4), rng.randrange(1, 5), f"k{rng.randrange(50)}"),
            lambda: log.send(topic, rng.randrange(4), 1, f"k{rng.randrange(50)}"),
            lambda: log.change(control.PutTopics([read_write(topic, 4)], log.now_ms)),
            lambda: log.change(control.CommitOffsets([("G", topic, 1, rng.randrange(9))])),
            lambda: log.change(control.LockQueues("G", "c1", [(topic, 1)], log.now_ms)),
            lambda: log.change(control.UnlockQueues("G", "c1", [(topic, 1)])),
            lambda: log.change(control.PutGroups([SubscriptionGroupConfig(topic)], log.now_ms)),
        ]
    )
    if rng.random() < 0.05:
        log.change(control.DeleteTopic(topic, log.now_ms))
    else:
        change()


@pytest.mark.parametrize("seed", range(12))
def test_stopping_and_replaying_gives_the_same_state(seed: int, tmp_path: Path) -> None:
    """A replica killed at random, with snapshots at random, ends like one that never was."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    log = Log(tmp_path / "leader")
    (tmp_path / "replica").mkdir()
    replica = Machine(tmp_path / "replica")
    replica.restore()
    for _ in range(150):
        random_operation(log, rng)
        if rng.random() < 0.3:
            for entry in log.ledger.entries(replica.applied_index + 1):
                replica.apply(entry)
        if rng.random() < 0.1:
            save(replica)
        if rng.random() < 0.1:  # SIGKILL: what is in memory only is gone
            replica.close()
            replica = Machine(tmp_path / "replica")
            assert replica.restore() is None
    for entry in log.ledger.entries(replica.applied_index + 1):
        replica.apply(entry)
    assert state_of(replica) == state_of(log.machine)


def test_store_times_never_go_back(tmp_path: Path) -> None:
    """Store times never go back, as searches rely on that, though the leader's clock may."""
    log = Log(tmp_path)
    for now_ms in (500, 400, 600, 100):
        log.now_ms = now_ms
        log.send("A", 0, 1, f"k{now_ms}")
    queue = log.machine.queues.get("A", 0)
    assert queue is not None
    assert queue.read(0, 9)["store_timestamp_ms"].tolist() == [500, 500, 600, 600]


def test_deleting_a_topic_takes_its_queues_locks_and_offsets_with_it(tmp_path: Path) -> None:
    """A deleted topic's queues, locks and offsets go; a new one starts from offset 0."""
    log = Log(tmp_path)
    log.change(control.PutTopics([read_write("A", 4)], 1))
    log.send("A", 0, 3, "k")
    log.change(control.CommitOffsets([("G", "A", 0, 3)]))
    log.change(control.LockQueues("G", "c", [("A", 0)], 1))
    log.change(control.DeleteTopic("A", 2))
    machine = log.machine
    assert machine.topics.get("A") is None
    assert machine.queues.end("A", 0) == 0
    assert machine.offsets.get("G", "A", 0) is None
    assert machine.locks.acquire("other", [QueueKey("G", "A", 0)], 3, 9)
    log.change(control.PutTopics([read_write("A", 4)], 3))
    log.send("A", 0, 1, "k2")
    assert machine.queues.end("A", 0) == 1


def test_an_offset_for_a_topic_that_is_gone_is_dropped(tmp_path: Path) -> None:
    """A commit that comes after the deletion must not leave an orphan."""
    log = Log(tmp_path)
    log.change(control.CommitOffsets([("G", "Gone", 0, 3)]))
    assert log.machine.offsets.get("G", "Gone", 0) is None


def test_a_damaged_snapshot_is_not_used_and_costs_nothing(tmp_path: Path) -> None:
    """A damaged snapshot is reported and not used; the log has all that it held."""
    log = Log(tmp_path)
    log.send("A", 0, 3, "k")
    save(log.machine)
    path = tmp_path / "snapshot.msgpack"
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    expected = state_of(log.machine)
    replica = Machine(tmp_path)
    reason = replica.restore()
    assert reason is not None
    assert "checksum" in reason
    for entry in log.ledger.entries(1):
        replica.apply(entry)
    assert state_of(replica) == expected


def test_a_snapshot_claims_only_what_is_durable_in_the_queue_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old snapshot stays if the queue files can't be synced."""
    log = Log(tmp_path)
    log.send("A", 0, 3, "k1")
    save(log.machine)
    before = (tmp_path / "snapshot.msgpack").read_bytes()
    log.send("A", 0, 3, "k2")
    pending = drained(log.machine.begin_snapshot())

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        pending.write()
    assert (tmp_path / "snapshot.msgpack").read_bytes() == before


def test_a_snapshot_beyond_the_logs_end_can_be_forgotten(tmp_path: Path) -> None:
    """A log that lost its unsynced tail in a power failure is the truth, not the snapshot."""
    log = Log(tmp_path)
    log.send("A", 0, 3, "k1")
    save(log.machine)
    expected = state_of(log.machine)
    replica = Machine(tmp_path)
    replica.restore()
    assert replica.applied_index == 2
    replica.forget()
    assert replica.applied_index == 0
    for entry in log.ledger.entries(1):
        replica.apply(entry)
    assert state_of(replica) == expected


def test_an_entry_out_of_order_stops_the_replica(tmp_path: Path) -> None:
    """An entry out of order stops the replica, which would else have another state."""
    machine = Machine(tmp_path)
    with pytest.raises(CorruptLog, match="entry 2"):
        machine.apply(Entry(2, 1, Kind.NOOP, 0, memoryview(b"")))


def test_messages_that_skip_queue_offsets_are_set_aside(tmp_path: Path) -> None:
    """A gap in a queue's offsets is set aside: a (queue, offset) names one message for ever."""
    log = Log(tmp_path)
    log.send("A", 0, 1, "k1")
    log.assignments.take("A", 0, 1)
    log.send("A", 0, 1, "k2")
    assert log.machine.queues.end("A", 0) == 1
    assert log.machine.aside.count == 1
    ((index, reason),) = log.machine.aside.last
    assert index == log.machine.applied_index
    assert "offset 2, but the queue ends at 1" in reason


def test_a_watcher_is_told_of_the_role_that_it_missed(tmp_path: Path) -> None:
    """The ledger may have become leader before the broker was put together."""
    told: list[tuple[str, object]] = []

    class Watcher:
        def messages_arrived(self, index: object, origin: str) -> None:
            told.append(("messages", index))

        def topics_changed(self, topics: Sequence[str]) -> None:
            told.append(("topics", None))

        def leading(self, term: int) -> None:
            told.append(("leading", term))

        def following(self, leader: str | None, term: int) -> None:
            told.append(("following", (leader, term)))

    log = Log(tmp_path)
    log.machine.watch(Watcher())
    assert told == [("leading", 1)]
    log.ledger.follow("n1")
    log.ledger.lead()
    log.change(control.PutTopics([read_write("A", 4)], 3))
    assert told[1:] == [("following", ("n1", 2)), ("leading", 3), ("topics", None)]
