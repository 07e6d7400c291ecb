"""Sends that come while entries are on their way share an entry, each on its own terms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from dledger.errors import AppendError, NotLeader, OutcomeUnknown, WrittenByNewer
from dledger.log.entry import Kind
from dledger.raft.appends import Appended
from dledger.remoting.message import properties_encode
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import Record
from dledger.remoting.record.lone import parse_records
from mqbroker import limits
from mqbroker.leader.appending.drafts import BatchDraft, NewRecord, PlainDraft, RecordsDraft
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.appending.together import Send, Together
from mqbroker.leader.assignments import Assignments
from mqbroker.refusal import NotApplied
from mqbroker.state import control
from mqbroker.state.dedup import dedup_key
from mqbroker.state.moves import Move, encode_move
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine
from mqbroker.testing.pictured import ends_of, rows_in


def message(key: str, body: bytes = b"x", *, reconsume_times: int = 0) -> NewRecord:
    """A message with a unique key."""
    return NewRecord(
        body=body,
        properties=properties_encode({"UNIQ_KEY": key}),
        born_timestamp_ms=1,
        born_host=HOST,
        reconsume_times=reconsume_times,
    )


def stock(
    record: NewRecord, topic: str, runs: list[tuple[int, int]], assignments: Assignments
) -> PlainDraft:
    """A draft as a stock client's send becomes it."""
    return RecordsDraft([record], topic, runs, assignments, HOST)


def ours(
    record: NewRecord, topic: str, runs: list[tuple[int, int]], assignments: Assignments
) -> PlainDraft:
    """A draft as a record of our producer becomes it."""
    made = bytearray(record.encode(topic, runs[0][0], HOST))
    return BatchDraft(parse_records(made, topic.encode(), runs), topic, runs, assignments, HOST)


Maker = Callable[[NewRecord, str, list[tuple[int, int]], Assignments], PlainDraft]


@dataclass
class World:
    """A leader's entries on a log in memory, which commits when told to."""

    leading: LeadingMachine
    entries: Entries
    faults: list[Exception]
    makers: Iterator[Maker]
    outcomes: dict[str, Appended | AppendError] = field(default_factory=dict)

    def send(self, key: str, queue_id: int = 0, topic: str = "A", **of_message: int) -> None:
        """Send a message; `outcomes` gets its outcome."""
        record = message(key, **of_message)
        draft = next(self.makers)(record, topic, [(queue_id, 1)], self.leading.assignments)
        self.append(draft, key)

    def append(self, draft: PlainDraft, key: str) -> None:
        """Append a draft, or gather it with others."""
        told = partial(self.told, key)
        if not self.entries.gathers(draft, told):
            self.entries.append_nowait(draft, Kind.MESSAGES, told)

    def told(self, key: str, outcome: Appended | AppendError) -> None:
        """Note the outcome of a send, once."""
        assert key not in self.outcomes
        self.outcomes[key] = outcome

    def kinds(self) -> list[Kind]:
        """Kinds of the entries with messages, so far."""
        entries = self.leading.ledger.entries(1)
        return [Kind(each.kind) for each in entries if each.kind in (Kind.MESSAGES, Kind.SENDS)]

    def commit_all(self) -> None:
        """Commit all, also what is appended when something else is committed."""
        while self.leading.ledger.uncommitted:
            self.leading.ledger.commit()

    def key_at(self, key: str) -> str:
        """The unique key of the record where a send was told that it lies."""
        outcome = self.outcomes[key]
        assert isinstance(outcome, Appended)
        copy = self.leading.machine.dedup.get(dedup_key(b"A", key.encode()))
        assert copy is not None
        assert copy.position == outcome.body_position
        record = Record(self.leading.ledger.view(copy.position, copy.size))
        assert record.physical_offset == copy.position
        return bytes(record.properties).partition(b"UNIQ_KEY\x01")[2].split(b"\x02")[0].decode()

    def queue(self, queue_id: int, topic: str = "A") -> list[str]:
        """The keys of a queue's messages, in the order of their offsets."""
        queue = self.leading.machine.queues.get(topic, queue_id)
        units = queue.read(0, queue.end) if queue is not None else []
        keys = []
        for number, unit in enumerate(units):
            record = Record(self.leading.ledger.view(int(unit["position"]), int(unit["size"])))
            assert (record.queue_id, record.queue_offset) == (queue_id, number)
            assert record.store_timestamp_ms == unit["store_timestamp_ms"]
            keys.append(bytes(record.properties).partition(b"\x01")[2].split(b"\x02")[0].decode())
        return keys


@pytest.fixture(params=[[stock], [ours], [stock, ours]], ids=["stock", "ours", "both"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A leader of two topics, with a clock that goes on at each look; sends of stock clients, of
    our producers, or of both in turn."""
    clock = iter(range(1000, 100_000))
    leading = LeadingMachine(tmp_path, lambda: next(clock), auto=False)
    faults: list[Exception] = []
    leading.change(control.PutTopics([read_write("A", 4), read_write("B", 4)], 1000))
    leading.ledger.commit()
    entries = Entries(leading.ledger, leading.assignments, faults.append)
    yield World(leading, entries, faults, itertools.cycle(request.param))
    leading.machine.close()


def test_a_send_with_nothing_under_way_is_an_entry_at_once(world: World) -> None:
    """A send with nothing under way is an entry at once."""
    for number in range(3):
        world.send(f"k{number}")
        assert len(world.leading.ledger.uncommitted) == 1
        world.leading.ledger.commit()
    assert world.kinds() == [Kind.MESSAGES] * 3


def test_what_comes_meanwhile_is_one_entry_and_each_has_its_own_place(world: World) -> None:
    """Sends that come meanwhile share one entry, in their order and with their keys."""
    for number in range(20):
        world.send(f"k{number}", number % 3)
    assert len(world.leading.ledger.uncommitted) == limits.SENDS_TOGETHER_FROM
    world.commit_all()
    assert world.kinds() == [*[Kind.MESSAGES] * limits.SENDS_TOGETHER_FROM, Kind.SENDS]
    assert [world.key_at(f"k{number}") for number in range(20)] == [f"k{n}" for n in range(20)]
    for queue_id in range(3):
        assert world.queue(queue_id) == [f"k{number}" for number in range(queue_id, 20, 3)]


def test_a_batch_to_several_queues_keeps_each_queues_order(world: World) -> None:
    """A batch stays in one piece, between the sends before and after it."""
    assignments = world.leading.assignments
    for number in range(limits.SENDS_TOGETHER_FROM + 2):
        world.send(f"k{number}", 1)
    runs = [(0, 1), (1, 2)]
    made = b"".join(
        message(f"b{number}").encode("A", queue_id, HOST)
        for number, queue_id in enumerate((0, 1, 1))
    )
    batch = BatchDraft(parse_records(bytearray(made), b"A", runs), "A", runs, assignments, HOST)
    world.append(batch, "b0")
    world.send("first", 0)
    world.send("last", 1)
    world.commit_all()
    assert world.kinds()[-1] == Kind.SENDS
    assert world.queue(0) == ["b0", "first"]
    before = [f"k{number}" for number in range(limits.SENDS_TOGETHER_FROM + 2)]
    assert world.queue(1) == [*before, "b1", "b2", "last"]
    assert world.key_at("b0") == "b0"
    assert batch.offsets == [(0, 0), (1, len(before))]


def test_topics_may_be_several_and_tries_again_have_no_key(world: World) -> None:
    """An entry may hold several topics; a message that was sent back has no dedup key."""
    for number in range(12):
        world.send(f"k{number}", 1, "AB"[number % 2], reconsume_times=number // 6)
    world.commit_all()
    assert world.queue(1) == [f"k{number}" for number in range(0, 12, 2)]
    assert world.queue(1, "B") == [f"k{number}" for number in range(1, 12, 2)]
    window = world.leading.machine.dedup
    found = [
        number
        for number in range(12)
        if window.get(dedup_key(b"AB"[number % 2 : number % 2 + 1], b"k%d" % number)) is not None
    ]
    assert found == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("size_bytes", [1, 10_000])
def test_as_many_as_are_enough_do_not_wait(world: World, size_bytes: int) -> None:
    """An entry is full by its sends' number or bytes, and later sends wait for the next."""
    record_bytes = size_bytes + 120
    enough = min(limits.SENDS_TOGETHER_MAX, limits.SENDS_TOGETHER_BYTES // record_bytes + 1)
    for number in range(limits.SENDS_TOGETHER_FROM + enough):
        record = message(f"k{number}", bytes(size_bytes))
        draft = RecordsDraft([record], "A", [(0, 1)], world.leading.assignments, HOST)
        world.append(draft, f"k{number}")
    assert len(world.leading.ledger.uncommitted) == limits.SENDS_TOGETHER_FROM + 1
    assert world.entries.sends_waiting == 0


def test_a_large_message_is_an_entry_of_its_own(world: World) -> None:
    """A large message is an entry of its own, behind the sends before it."""
    for number in range(4):
        world.send(f"k{number}")
    record = message("large", bytes(limits.SENDS_TOGETHER_BYTES))
    draft = RecordsDraft([record], "A", [(0, 1)], world.leading.assignments, HOST)
    world.append(draft, "large")
    world.send("last")
    world.commit_all()
    assert world.queue(0) == ["k0", "k1", "k2", "k3", "large", "last"]
    together = [Kind.MESSAGES, Kind.MESSAGES, Kind.SENDS, Kind.MESSAGES, Kind.MESSAGES]
    assert world.kinds() == together


@pytest.mark.parametrize("others", [0, 2])
def test_a_fault_in_making_an_entry_never_reaches_the_log(world: World, others: int) -> None:
    """An entry that can't be built never reaches the log; its senders get OutcomeUnknown."""
    for number in range(limits.SENDS_TOGETHER_FROM + others):
        world.send(f"k{number}")

    def fails(position: int, now_ms: int) -> bytes:
        raise ValueError("a bug")

    draft = RecordsDraft([message("odd")], "A", [(0, 1)], world.leading.assignments, HOST)
    draft.fill_in = fails  # type: ignore[method-assign]
    world.append(draft, "odd")
    world.commit_all()
    assert isinstance(world.outcomes["k1"], Appended)
    waited = ["odd", *(f"k{limits.SENDS_TOGETHER_FROM + number}" for number in range(others))]
    assert all(isinstance(world.outcomes[key], OutcomeUnknown) for key in waited)
    assert [str(fault) for fault in world.faults] == ["a bug"]


def test_another_entry_does_not_overtake_them(world: World) -> None:
    """A topic that is deleted after a send has had the message."""
    for number in range(5):
        world.send(f"k{number}")
    body = control.encode_control(control.DeleteTopic("A", 2000))
    world.entries.append_nowait(body, Kind.CONTROL, lambda _: None)
    last = world.leading.ledger.uncommitted[-2:]
    assert [entry.kind for entry in last] == [Kind.SENDS, Kind.CONTROL]
    world.commit_all()
    assert all(isinstance(outcome, Appended) for outcome in world.outcomes.values())
    assert world.queue(0) == []


def test_a_lost_leadership_refuses_those_that_waited(world: World) -> None:
    """Sends that waited are refused; the outcome of those under way is unknown."""
    for number in range(5):
        world.send(f"k{number}")
    world.leading.ledger.follow("n1")
    under_way = limits.SENDS_TOGETHER_FROM
    types = [type(world.outcomes[f"k{number}"]) for number in range(5)]
    assert types == [OutcomeUnknown] * under_way + [NotLeader] * (5 - under_way)
    world.leading.ledger.lead()
    world.leading.assignments.reset()
    world.send("next")
    world.commit_all()
    assert world.queue(0) == ["next"]


def test_a_message_that_can_not_be_applied_takes_no_other_with_it(world: World) -> None:
    """The entry is set aside on all replicas; then each of its sends is judged by itself."""
    for number in range(3):
        world.send(f"k{number}")
    odd = message("odd")
    draft = RecordsDraft([odd], "A", [(0, 1)], world.leading.assignments, HOST)
    draft.fill_in = lambda position, now_ms: b"\0" * draft.size  # type: ignore[method-assign]
    world.append(draft, "odd")
    world.send("last")
    world.commit_all()
    assert isinstance(world.outcomes["odd"], NotApplied)
    others = [world.outcomes[key] for key in ("k0", "k1", "k2", "last")]
    assert all(isinstance(outcome, Appended) for outcome in others)
    assert sorted(world.queue(0)) == ["k0", "k1", "k2", "last"]
    assert world.leading.machine.aside.count == 2


def test_a_fault_in_one_callers_answer_is_no_other_callers(world: World) -> None:
    """A fault in one caller's answer is noted, and the other callers are answered."""
    for number in range(4):
        world.send(f"k{number}")
    world.outcomes["k2"] = NotLeader(None)  # its answer will fail
    world.commit_all()
    assert isinstance(world.outcomes["k3"], Appended)
    assert [type(fault) for fault in world.faults] == [AssertionError]


def test_a_replica_that_replays_has_the_same_state(world: World, tmp_path: Path) -> None:
    """A replica that replays entries of both kinds has the same queues and window."""
    for number in range(40):
        world.send(f"k{number}", number % 4)
        if number % 7 == 0:
            world.leading.ledger.commit()
    world.commit_all()
    assert Kind.SENDS in world.kinds()
    other = LeadingMachine(tmp_path / "other", auto=False).machine
    for entry in world.leading.ledger.entries(1):
        if entry.index > other.applied_index:
            other.apply(entry)
    machine = world.leading.machine
    assert ends_of(other.queues) == ends_of(machine.queues)
    assert rows_in(other.dedup.picture()) == rows_in(machine.dedup.picture())
    other.close()


def test_a_move_out_of_a_queue_that_only_a_newer_version_has_is_not_passed_over(
    world: World,
) -> None:
    """A move out of an unknown queue stops this version: a newer one delivers what it moves."""
    move = message("k", encode_move(Move("A_LATER_QUEUE", 0, ((0, 1),))))
    both = ((move, OP_TOPIC), (message("k"), "A"))
    drafts = [stock(each, topic, [(0, 1)], world.leading.assignments) for each, topic in both]
    entry = Together([Send(draft, lambda _: None) for draft in drafts], world.leading.assignments)
    entry.sends.reverse()  # an entry's first record says what it is
    entry.starts[1] = drafts[0].size
    world.leading.ledger.append_nowait(entry, Kind.MESSAGES, lambda _: None)
    with pytest.raises(WrittenByNewer, match="a move out of 'A_LATER_QUEUE'"):
        world.leading.ledger.commit()
    assert world.queue(0) == []


def test_an_entry_of_a_kind_that_only_a_newer_version_knows_is_not_passed_over(
    world: World,
) -> None:
    """A replica that ignored it would miss what others have."""
    world.leading.ledger.append_nowait(b"", 99, lambda _: None)
    with pytest.raises(WrittenByNewer, match="kind 99"):
        world.leading.ledger.commit()
