"""Retention: which old messages a leader drops, and what replicas make of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dledger.log.entry import Entry
from dledger.log.segments.retention import RetentionPolicy, SegmentInfo
from dledger.remoting.bodies import SubscriptionGroupConfig
from dledger.remoting.codes import ResponseCode
from dledger.remoting.message import properties_encode
from dledger.remoting.names import HALF_TOPIC, SCHEDULE_TOPIC
from dledger.slices import drained
from mqbroker.config import BrokerConfig
from mqbroker.leader.appending.drafts import NewRecord
from mqbroker.requests.reading.queue_reading import read_queue
from mqbroker.state import control
from mqbroker.state.groups.popping import PopMessages, PopQueue
from mqbroker.state.machine import Machine
from mqbroker.state.moves import Move
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine, save
from mqbroker.testing.pictured import ends_of, rows_in
from mqbroker.upkeep.retention import needed_index, policy_of

TOPICS = ("A", "B", "C")


class Leader(LeadingMachine):
    """A leader's appends and drops."""

    def send(self, topic: str, queue_id: int, key: str, count: int = 1) -> None:
        properties = properties_encode({"UNIQ_KEY": key})
        self.append(topic, queue_id, [NewRecord(b"x" * 10, properties, 1, HOST)] * count)

    def entries(self, first_index: int = 1) -> list[Entry]:
        return list(self.ledger.entries(first_index))

    def drop_before(self, index: int) -> None:
        self.change(control.DropHead(self.entries(index)[0].position, index))


def queues_of(machine: Machine) -> dict[tuple[str, int], tuple[int, int, list[object]]]:
    """Begin, end and units of each queue."""
    found = {}
    for topic, (_, ends) in ends_of(machine.queues).items():
        for queue_id in ends:
            queue = machine.queues.get(topic, queue_id)
            assert queue is not None
            units = queue.read(queue.begin, queue.end).tolist()
            found[topic, queue_id] = (queue.begin, queue.end, units)
    return found


def fill(leader: Leader, rng: random.Random, count: int) -> None:
    for number in range(count):
        topic = rng.choice(TOPICS)
        leader.send(topic, rng.randrange(3), f"{topic}{number}-{rng.random()}", rng.randrange(1, 4))
        if rng.random() < 0.05:
            leader.change(control.DeleteTopic(rng.choice(TOPICS), 5))


def test_queues_begin_with_the_first_message_that_is_kept(tmp_path: Path) -> None:
    """A consumer that asks below is told where to go on; offsets keep their meaning."""
    leader = Leader(tmp_path)
    for number in range(10):
        leader.send("A", 0, f"k{number}")
    leader.drop_before(8)
    queue = leader.machine.queues.get("A", 0)
    assert queue is not None
    assert (queue.begin, queue.end) == (6, 10)
    found = read_queue(queue, 2, messages_max=32, bytes_max=1 << 20, selection=None)
    assert (found.code, found.next_offset, found.min_offset) == (
        ResponseCode.PULL_OFFSET_MOVED,
        6,
        6,
    )
    found = read_queue(queue, 6, messages_max=32, bytes_max=1 << 20, selection=None)
    assert (found.code, found.messages) == (ResponseCode.SUCCESS, 4)
    assert queue.first_at(0) == 6


def test_a_queue_whose_messages_are_all_gone_keeps_its_end(tmp_path: Path) -> None:
    """A queue that lost all messages keeps its end, so that no offset is given twice."""
    leader = Leader(tmp_path)
    leader.send("A", 0, "k1", 3)
    leader.send("B", 0, "k2")
    leader.drop_before(3)
    queue = leader.machine.queues.get("A", 0)
    assert queue is not None
    assert (queue.begin, queue.end) == (3, 3)
    save(leader.machine)
    again = Machine(tmp_path)
    assert again.restore() is None
    assert queues_of(again) == queues_of(leader.machine)


def test_what_was_dropped_is_forgotten_by_the_dedup_window(tmp_path: Path) -> None:
    """The dedup window forgets a dropped message; a second copy of it is stored."""
    leader = Leader(tmp_path)
    leader.send("A", 0, "k1")
    key = next(key for chunk in leader.machine.dedup._chunks for key in chunk.copies)
    assert leader.machine.dedup.get(key) is not None
    leader.send("A", 0, "k2")
    leader.drop_before(3)
    assert leader.machine.dedup.get(key) is None
    leader.send("A", 0, "k1")
    copy = leader.machine.dedup.get(key)
    assert copy is not None
    assert copy.position > leader.machine.first_position


def test_dropping_twice_or_backwards_changes_nothing(tmp_path: Path) -> None:
    """A drop that is repeated, or goes back, changes nothing: two leaders may decide."""
    leader = Leader(tmp_path)
    for number in range(6):
        leader.send("A", 0, f"k{number}")
    leader.drop_before(5)
    before = queues_of(leader.machine)
    leader.drop_before(3)
    leader.drop_before(5)
    assert queues_of(leader.machine) == before
    assert leader.machine.first_index == 5


@pytest.mark.parametrize("seed", range(8))
def test_a_state_taken_over_with_a_log_without_its_head_is_the_same_state(
    seed: int, tmp_path: Path
) -> None:
    """A replica that gets a state and the kept entries has the others' queues."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    leader = Leader(tmp_path / "leader")
    fill(leader, rng, 120)
    first_index = rng.randrange(2, 120)
    leader.drop_before(first_index)
    if rng.random() < 0.5:
        fill(leader, rng, 30)
    index, payload = drained(leader.machine.capture())
    fill(leader, rng, 30)
    (tmp_path / "replica").mkdir()
    replica = Machine(tmp_path / "replica")
    replica.restore()
    old = Leader(tmp_path / "old")
    fill(old, rng, 20)
    for entry in old.entries():  # of a life that ended long ago
        replica.apply(entry)
    save(replica)
    drained(replica.install(index, payload, first_index))
    assert replica.applied_index == first_index - 1
    for entry in leader.entries(first_index):
        replica.apply(entry)
        if rng.random() < 0.05:
            save(replica)
            replica.close()
            replica = Machine(tmp_path / "replica")
            assert replica.restore() is None
            for again in leader.entries(replica.applied_index + 1):
                if again.index > entry.index:
                    break
                replica.apply(again)
    assert replica.applied_index == leader.machine.applied_index
    assert queues_of(replica) == queues_of(leader.machine)
    assert drained(replica.capture())[1] != b""
    assert rows_in(replica.offsets.picture()) == rows_in(leader.machine.offsets.picture())
    assert rows_in(replica.dedup.picture()) == rows_in(leader.machine.dedup.picture())


def test_a_delayed_message_that_waits_is_kept_however_old(tmp_path: Path) -> None:
    """A delayed message is kept until its time, however old it is."""
    leader = Leader(tmp_path)
    leader.change(control.PutTopics([read_write(SCHEDULE_TOPIC, 4)], 1))
    for number in range(5):
        leader.send("A", 0, f"k{number}")
    leader.send(SCHEDULE_TOPIC, 2, "later")
    for number in range(5, 10):
        leader.send("A", 0, f"k{number}")
    segments = [
        SegmentInfo(entry.position, entry.index, 1, 0.0)
        for entry in leader.entries()
        if entry.index % 3 == 1
    ]
    assert needed_index(segments, leader.machine, 12) == 7
    assert needed_index(segments, leader.machine, 5) == 5


def test_a_transaction_that_has_not_ended_is_kept_however_old(tmp_path: Path) -> None:
    """A half message is kept until its transaction ends, since a commit stores it once more."""
    leader = Leader(tmp_path)
    leader.send(HALF_TOPIC, 0, "half")
    for number in range(9):
        leader.send("A", 0, f"k{number}")
    segments = [SegmentInfo(entry.position, entry.index, 1, 0.0) for entry in leader.entries()]
    half = leader.entries()[1]
    assert needed_index(segments, leader.machine, 12) == half.index
    leader.machine.halves.take(Move(HALF_TOPIC, 0, ((0, 1),)))
    assert needed_index(segments, leader.machine, 9) == 9


def test_the_config_says_how_much_is_kept() -> None:
    """Bounds of retention are in RocketMQ's units, and 0 switches one off."""
    config = BrokerConfig(file_reserved_time=2, commit_log_size_max=1 << 30)
    assert policy_of(config) == RetentionPolicy(7200.0, 1 << 30)
    assert policy_of(BrokerConfig(file_reserved_time=0)) == RetentionPolicy()
    assert policy_of(BrokerConfig()) == RetentionPolicy(72 * 3600.0)


def test_messages_that_were_popped_go_with_the_segment(tmp_path: Path) -> None:
    """Popped messages go with their segment: acks do nothing, and the group goes on."""
    leader = Leader(tmp_path)
    leader.change(control.PutTopics([read_write("A", 1)], 1))
    leader.change(control.PutGroups([SubscriptionGroupConfig("C")], 1))
    for number in range(10):
        leader.send("A", 0, f"k{number}")
    leader.change(PopMessages("C", "A", [PopQueue(0, -1, 8, 0, b"\xff")], 5, 60))
    leader.drop_before(8)
    machine = leader.machine
    queue, messages = machine.popped.queue("C", "A", 0), machine.queues.get("A", 0)
    assert queue is not None
    assert messages is not None
    begin = messages.begin
    assert 0 < begin < 8
    assert [each.base for each in queue.deliveries()] == [begin]
    assert (queue.count, queue.cursor) == (8 - begin, 8)
    assert machine.offsets.get("C", "A", 0) == begin
    replica = Machine(tmp_path / "b")
    replica.restore()
    for entry in leader.entries():
        replica.apply(entry)
    assert rows_in(replica.popped.picture()) == rows_in(machine.popped.picture())
    replica.close()
