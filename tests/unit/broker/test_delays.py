"""Delayed messages: each arrives once when it is due, whoever leads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dledger.errors import ConfigError
from dledger.remoting.message import properties_decode, properties_encode
from dledger.remoting.names import OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from dledger.remoting.record import Record
from mqbroker import limits
from mqbroker.leader.appending.drafts import NewRecord
from mqbroker.leader.definitions import Definitions
from mqbroker.leader.role import Role
from mqbroker.leader.waiting.delays import DEFAULT_LEVELS, DelayLevels
from mqbroker.leader.waiting.deliveries import Deliveries, Old, due_units
from mqbroker.refusal import Refused
from mqbroker.state.aside import Unusable
from mqbroker.state.derived.consume_queue import ConsumeQueues
from mqbroker.state.derived.units import UNIT
from mqbroker.state.machine import Machine
from mqbroker.state.moves import Delays, Move, decode_move, encode_move, ranges_of
from mqbroker.state.topics import read_write
from mqbroker.state.waiting import Waiting
from mqbroker.testing.leading import HOST, LeadingMachine, save
from mqbroker.testing.pictured import rows_in

LEVELS = DelayLevels.parse("1s 5s 10s")


class Leader(LeadingMachine):
    """A leader's parts that deliver delayed messages, on a ledger in memory and virtual time."""

    def __init__(self, directory: Path, *, auto: bool = True) -> None:
        self.now_ms = 1_000_000
        super().__init__(directory, lambda: self.now_ms, auto=auto)
        role = Role("n0", {"n0": "127.0.0.1:10911"})
        self.definitions = Definitions(
            self.machine, self.appending, role, self.assignments, auto_create=lambda: True
        )
        self.deliveries = Deliveries(
            self.machine, self.appending, self.definitions, self.assignments, LEVELS, HOST
        )
        self.definitions.put_topics([read_write("Orders", 4)], lambda _: None)
        self.ledger.commit()

    def send(
        self, body: bytes, level: int, queue_id: int = 1, topic: str = "Orders", **timer: str
    ) -> None:
        """Send a message to Orders, delayed by a level, or by a timer with level 0."""
        wanted = {"DELAY": str(level), "UNIQ_KEY": body.decode()} | timer
        first_topic, first_queue, properties = LEVELS.detour(topic, queue_id, wanted, self.now_ms)
        record = NewRecord(body, properties_encode(properties), self.now_ms, HOST)
        self.append(first_topic, first_queue, [record])

    def deliver(self) -> bool:
        """Append one delivery, if something is due."""
        return self.deliveries.deliver(lambda _: None)

    def lose_leadership(self) -> None:
        """Lose what is not committed, and lead anew from what is applied."""
        self.ledger.follow("n1")
        self.ledger.lead()
        self.assignments.reset()
        self.definitions.reset()

    def arrived(self, queue_id: int = 1, topic: str = "Orders") -> list[Record]:
        """The messages in a queue of a topic."""
        queue = self.machine.queues.get(topic, queue_id)
        if queue is None:
            return []
        units = queue.read(0, queue.end)
        pairs = zip(units["position"].tolist(), units["size"].tolist(), strict=True)
        return [Record(self.ledger.view(position, size)) for position, size in pairs]


def test_the_levels_of_the_reference() -> None:
    """The reference has 18 levels; a higher one waits as long as the last."""
    levels = DelayLevels.parse(DEFAULT_LEVELS)
    assert len(levels) == 18
    assert (levels.delay_ms(0), levels.delay_ms(17)) == (1000, 7_200_000)
    assert levels.detour("T", 3, {"DELAY": "99"}, 0) == (
        SCHEDULE_TOPIC,
        17,
        {"DELAY": "99", "REAL_TOPIC": "T", "REAL_QID": "3"},
    )
    for none in ({}, {"DELAY": "0"}, {"DELAY": "-1"}):
        assert levels.detour("T", 3, none, 0) == ("T", 3, none)


@pytest.mark.parametrize("text", ["", "10", "5x", "1s 2 3s", "-1s"])
def test_levels_that_are_none_are_refused_by_name(text: str) -> None:
    """The broker does not start with a table that it would misread."""
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        DelayLevels.parse(text)


def test_a_level_that_is_no_number_is_refused() -> None:
    """A level that is not a number is named with its value, and certainly not stored."""
    with pytest.raises(Refused, match="'soon'"):
        LEVELS.detour("T", 0, {"DELAY": "soon"}, 0)


def test_the_due_messages_are_the_first_of_their_queue(tmp_path: Path) -> None:
    """Messages of a level are due once their store time is the delay ago, to the millisecond."""
    queues = ConsumeQueues(tmp_path)
    units = np.array([(number, 100, 0, 0, 0, 1000 + number) for number in range(10)], UNIT)
    queues.append(SCHEDULE_TOPIC, 0, units.tobytes(), 1)
    queue = queues.get(SCHEDULE_TOPIC, 0)
    assert queue is not None
    assert len(due_units(queue, 0, 500, 1499)) == 0
    assert due_units(queue, 0, 500, 1500)["position"].tolist() == [0]
    assert due_units(queue, 3, 500, 1505)["position"].tolist() == [3, 4, 5]


def test_a_delayed_message_arrives_in_its_queue_when_it_is_due(tmp_path: Path) -> None:
    """A delayed message arrives when it is due, with its body and key, and no trace of delay."""
    leader = Leader(tmp_path)
    assert leader.deliveries.wait_ms() is None
    leader.send(b"m", level=2)
    assert leader.deliveries.wait_ms() == 5000
    leader.now_ms += 4999
    assert not leader.deliver()
    assert leader.deliveries.wait_ms() == 1
    leader.now_ms += 1
    assert leader.deliver()
    (record,) = leader.arrived()
    assert (bytes(record.body), record.topic, record.queue_id) == (b"m", "Orders", 1)
    assert properties_decode(record.properties) == {"DELAY": "2", "UNIQ_KEY": "m"}
    assert record.store_timestamp_ms == leader.now_ms
    assert not leader.deliver()


@pytest.mark.parametrize("seed", range(20))
def test_each_arrives_once_and_none_early_whatever_the_leadership(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message arrives once and not early, however leaders lose deliveries and copies.

    A replica that is killed ends with the same state.
    """
    print(f"seed {seed}")
    rng = random.Random(seed)
    leader = Leader(tmp_path / "leader", auto=False)
    replica = Machine(tmp_path / "replica")
    (tmp_path / "replica").mkdir()
    sent: dict[bytes, int] = {}
    renewed = 0
    monkeypatch.setattr(limits, "RENEWED_AHEAD_MS", 1000)
    for number in range(200):
        leader.now_ms += rng.randrange(500)
        level, timer_ms = rng.randrange(4), rng.randrange(1, 9000)
        body = f"{level} {number}".encode()
        leader.send(body, level, TIMER_DELAY_MS=str(timer_ms))
        if rng.random() < 0.7:
            leader.ledger.commit()
            delay_ms = LEVELS.delay_ms(level - 1) if level else timer_ms
            sent[body] = leader.now_ms + delay_ms
        else:
            leader.lose_leadership()
        if leader.deliver():
            leader.lose_leadership() if rng.random() < 0.3 else leader.ledger.commit()
        old = Old(leader.now_ms - 3000, 0)
        if rng.random() < 0.3 and leader.deliveries.renew(old, lambda _: None):
            renewed += 1
            leader.lose_leadership() if rng.random() < 0.3 else leader.ledger.commit()
        if rng.random() < 0.2:
            for entry in leader.ledger.entries(replica.applied_index + 1):
                replica.apply(entry)
            if rng.random() < 0.5:
                save(replica)
            replica.close()
            replica = Machine(tmp_path / "replica")
            assert replica.restore() is None
    assert renewed
    leader.now_ms += 10_000
    while leader.deliver():
        leader.ledger.commit()
    records = leader.arrived()
    assert sorted(bytes(record.body) for record in records) == sorted(sent)
    assert all(record.store_timestamp_ms >= sent[bytes(record.body)] for record in records)
    for prefix in (b"1", b"2", b"3"):
        bodies = [bytes(each.body) for each in records if bytes(each.body).startswith(prefix)]
        assert bodies == [body for body in sent if body.startswith(prefix)]
    for entry in leader.ledger.entries(replica.applied_index + 1):
        replica.apply(entry)
    assert replica.delays.dump() == leader.machine.delays.dump()
    assert len(replica.timers) == len(leader.machine.timers) == 0
    assert replica.queues.end("Orders", 1) == len(records)
    replica.close()


def test_a_message_with_a_timer_arrives_when_it_says(tmp_path: Path) -> None:
    """A message arrives after its timer's seconds, milliseconds, or at its time."""
    leader = Leader(tmp_path)
    begin_ms = leader.now_ms
    leader.send(b"last", 0, TIMER_DELAY_SEC="3", TIMER_DELAY_MS="1")
    leader.send(b"middle", 0, TIMER_DELAY_MS="2000")
    leader.send(b"first", 0, TIMER_DELIVER_MS=str(begin_ms + 1000))
    leader.send(b"at once", 0, TIMER_DELIVER_MS=str(begin_ms - 1))
    assert [bytes(each.body) for each in leader.arrived()] == [b"at once"]
    for body in (b"first", b"middle", b"last"):
        wait_ms = leader.deliveries.wait_ms()
        assert wait_ms == 1000
        leader.now_ms += wait_ms - 1
        assert not leader.deliver()
        leader.now_ms += 1
        assert leader.deliver()
        assert bytes(leader.arrived()[-1].body) == body
    assert leader.deliveries.wait_ms() is None
    properties = properties_decode(leader.arrived()[1].properties)
    assert properties["TIMER_OUT_MS"] == str(begin_ms + 1000)


@pytest.mark.parametrize("timer", [{"TIMER_DELAY_SEC": "3456001"}, {"TIMER_DELIVER_MS": "noon"}])
def test_a_timer_that_makes_no_sense_is_refused(timer: dict[str, str]) -> None:
    """A timer above three days, RocketMQ's most, makes no sense and is refused."""
    with pytest.raises(Refused):
        LEVELS.detour("T", 0, timer, 1_000_000)


def test_what_waits_is_taken_once() -> None:
    """Waiting messages are due in order of time, and stay until a move takes them."""
    waiting = Waiting()
    for offset, at_ms in ((5, 300), (6, 100), (7, 200), (9, 400)):
        waiting.add(offset, at_ms)
    assert waiting.due(250, 10) == waiting.due(250, 10) == [6, 7]
    assert waiting.due(250, 1) == [6]
    waiting.take(Move("T", 0, ((5, 7),)))
    assert (waiting.next_ms(), waiting.first_offset(), len(waiting)) == (200, 7, 2)
    for again_taken in (((6, 7),), ((7, 8), (7, 8)), ((0, 10**17),)):
        with pytest.raises(Unusable, match="it takes"):
            waiting.check(Move("T", 0, again_taken))
    again = Waiting()
    again.restore(*map(rows_in, waiting.picture()))
    assert again.due(1000, 10) == [7, 9]


def test_many_due_messages_share_an_entry(tmp_path: Path) -> None:
    """Due messages of several topics and queues share one entry, in the order of their level."""
    leader = Leader(tmp_path)
    leader.definitions.put_topics([read_write("Bills", 2)], lambda _: None)
    for number in range(50):
        leader.send(b"%d" % number, 1, number % 2, "Bills" if number % 3 else "Orders")
    leader.now_ms += 1000
    before = leader.ledger.status.last_index
    assert leader.deliver()
    assert not leader.deliver()
    assert leader.ledger.status.last_index == before + 1
    assert leader.machine.queues.end(OP_TOPIC, 0) == 1
    found = [
        int(bytes(record.body))
        for topic in ("Orders", "Bills")
        for queue_id in (0, 1)
        for record in leader.arrived(queue_id, topic)
    ]
    assert sorted(found) == list(range(50))


@pytest.mark.parametrize("others", [{"level": 2}, {"level": 0, "TIMER_DELAY_MS": "1500"}])
def test_what_is_always_due_keeps_nothing_else_waiting(
    tmp_path: Path, others: dict[str, Any]
) -> None:
    """Levels take turns: none waits because another always has due messages."""
    leader = Leader(tmp_path)
    leader.send(b"first", level=1)
    leader.send(b"other", queue_id=2, **others)
    for _ in range(200):
        leader.send(b"first", level=1)
        leader.now_ms += 50
        leader.deliver()
    assert [bytes(record.body) for record in leader.arrived(queue_id=2)] == [b"other"]


def test_what_was_delivered_can_not_be_taken_again() -> None:
    """An op record that takes a message again was written by no leader, and is unusable."""
    delays = Delays()
    delays.take(Move(SCHEDULE_TOPIC, 2, ((0, 5),)))
    for ranges in (((4, 6),), ((5, 6), (5, 7)), ((6, 6),)):
        with pytest.raises(Unusable, match="already"):
            delays.check(Move(SCHEDULE_TOPIC, 2, ranges))
    assert delays.dump() == {2: 5}


def test_an_op_record_says_what_it_takes() -> None:
    """An op record is text that a person can read; other text is refused."""
    move = Move(SCHEDULE_TOPIC, 2, ranges_of([7, 8, 9, 12]))
    assert encode_move(move) == b"SCHEDULE_TOPIC_XXXX 2 7-10 12-13"
    assert decode_move(encode_move(move)) == move
    with pytest.raises(Unusable, match="op record"):
        decode_move(b"nonsense")


def timed(leader: Leader) -> int:
    """A message that is due in 10 s; where it waits."""
    leader.send(b"m", 0, TIMER_DELAY_MS="10000")
    leader.ledger.commit()
    ((offset, _),) = leader.machine.timers.items()
    return offset


def test_a_message_whose_delivery_is_on_its_way_is_not_taken_back(tmp_path: Path) -> None:
    """A message whose delivery is on its way can't be recalled: two moves would stop replicas."""
    leader = Leader(tmp_path, auto=False)
    offset = timed(leader)
    leader.now_ms += 10_000
    assert leader.deliver()
    assert not leader.deliveries.recall(offset, lambda _: None)
    leader.ledger.commit()
    assert [bytes(record.body) for record in leader.arrived()] == [b"m"]
    assert not leader.deliveries.recall(offset, lambda _: None)


def test_a_message_that_is_being_taken_back_is_not_delivered(tmp_path: Path) -> None:
    """A message that is being recalled is neither delivered nor recalled twice."""
    leader = Leader(tmp_path, auto=False)
    offset = timed(leader)
    assert leader.deliveries.recall(offset, lambda _: None)
    assert not leader.deliveries.recall(offset, lambda _: None)
    leader.now_ms += 10_000
    assert not leader.deliver()
    leader.ledger.commit()
    assert (leader.arrived(), len(leader.machine.timers)) == ([], 0)


def test_a_recall_that_was_lost_with_the_leadership_changes_nothing(tmp_path: Path) -> None:
    """The message waits on, and is delivered or taken back later."""
    leader = Leader(tmp_path, auto=False)
    offset = timed(leader)
    assert leader.deliveries.recall(offset, lambda _: None)
    leader.lose_leadership()
    leader.ledger.commit()
    leader.now_ms += 10_000
    assert leader.deliver()
    leader.ledger.commit()
    assert [bytes(record.body) for record in leader.arrived()] == [b"m"]


def test_a_message_for_much_later_does_not_keep_the_log(tmp_path: Path) -> None:
    """A message that waits for weeks is copied to the log's end, so its old part can go."""
    leader = Leader(tmp_path)
    offset = timed(leader)
    leader.now_ms += 5000
    leader.send(b"later", 0, TIMER_DELAY_SEC=str(40 * 86_400))
    due_ms = leader.now_ms + 40 * 86_400_000
    leader.now_ms += 36 * 3_600_000
    old = Old(leader.now_ms - 36 * 3_600_000, 0)
    assert not leader.deliveries.renew(old, lambda _: None), "what is due soon is delivered instead"
    before = Old(leader.now_ms, 0)

    assert leader.deliveries.renew(before, lambda _: None)
    assert not leader.deliveries.renew(before, lambda _: None)
    assert dict(leader.machine.timers.items()) == {offset: 1_010_000, offset + 2: due_ms}
    assert leader.deliver()
    leader.now_ms = due_ms - 1
    assert not leader.deliver()
    leader.now_ms = due_ms
    assert leader.deliver()
    first, second = leader.arrived()
    assert (bytes(first.body), bytes(second.body)) == (b"m", b"later")
    properties = {"TIMER_DELAY_SEC", "TIMER_OUT_MS", "UNIQ_KEY"}
    assert {*properties_decode(second.properties)} - {"DELAY"} == properties


def test_a_part_of_the_log_is_old_by_its_place_too(tmp_path: Path) -> None:
    """A part of the log is old by its position, too, if the log's size is bounded."""
    leader = Leader(tmp_path)
    leader.send(b"a", 0, TIMER_DELAY_SEC="86400")
    leader.send(b"b", 0, TIMER_DELAY_SEC="86400")
    queue = leader.machine.queues.get(TIMER_TOPIC, 0)
    assert queue is not None
    second = int(queue.read(1, 1)["position"][0])

    assert not leader.deliveries.renew(Old(0, 0), lambda _: None)
    assert leader.deliveries.renew(Old(0, second), lambda _: None)
    assert [offset for offset, _ in leader.machine.timers.items()] == [1, 2]
