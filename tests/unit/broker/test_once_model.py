"""Programs that consume, process and produce; leaders that die; instances that are replaced.

Two things are held, without the broker's own rule. The broker remembers of a producer's name what a
list of all writes says. And whatever happens in which order, each input that the group has passed
has its output once, and no other input has one.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import AppendError
from dledger.remoting.codes import ResponseCode
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import Record
from mqbroker import limits
from mqbroker.leader.appending.append import Appender
from mqbroker.leader.appending.drafts import NewRecord, RecordsDraft
from mqbroker.leader.appending.in_flight import Stored
from mqbroker.leader.definitions import Definitions
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.leader.once import OnceAppender, once_draft
from mqbroker.leader.role import Role
from mqbroker.refusal import Refused
from mqbroker.state import control
from mqbroker.state.machine import Machine
from mqbroker.state.once import OffsetMove, Once
from mqbroker.state.producers import Judged, Producers, Stamp, Written
from mqbroker.state.topics import read_write
from mqbroker.testing.leading import HOST, LeadingMachine, save
from mqbroker.testing.pictured import rows_in

NAMES = ("a", "b", "c")
KEPT_MS = int(limits.PRODUCER_KEPT_S * 1000)

steps = st.one_of(
    st.tuples(st.just("register"), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("write"), st.sampled_from(NAMES), st.integers(0, 9)),
    st.tuples(st.just("forget"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("rest"), st.sampled_from(NAMES), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.just(""), st.just(0)),
)


@given(st.lists(steps, max_size=40))
@settings(max_examples=150, deadline=None)
def test_a_name_remembers_what_its_instance_wrote_last(plan: list[tuple[str, str, int]]) -> None:
    """A name's epochs only grow, also after it was forgotten, and repeats are told apart."""
    producers, now_ms = Producers(names_max=2), 0
    owner: dict[str, tuple[str, int]] = {}
    written: dict[str, list[tuple[int, int, int]]] = {name: [] for name in NAMES}
    used: dict[str, int] = {}
    replaced: dict[str, set[str]] = {}
    highest = 0
    for index, (what, name, number) in enumerate(plan, 1):
        if what == "forget" and name in owner:
            producers.forget([name])
            wrote = any(row[0] == owner[name][1] for row in written[name])
            owner = owner if wrote or replaced[name] > {""} else without(owner, name)
        elif what == "register":
            if name not in owner:
                forgotten = {each for each in owner if used[each] + KEPT_MS < now_ms}
                owner = {each: owner[each] for each in owner if each not in forgotten}
            room = name in owner or len(owner) < 2
            epoch = producers.register(name, f"t{number}", index, now_ms)
            if name not in owner:
                replaced[name] = set()
            if f"t{number}" in replaced[name]:
                assert epoch is Judged.FENCED
            else:
                assert (epoch is not None) == room
            if isinstance(epoch, int):
                again = owner.get(name, ("", 0))[0] == f"t{number}"
                assert epoch == owner[name][1] if again else epoch > highest
                highest = max(highest, epoch)
                replaced[name] |= set() if again else {owner.get(name, ("", 0))[0]}
                owner[name], used[name] = (f"t{number}", epoch), now_ms
        elif what == "write":
            epoch = owner.get(name, ("", max(1, highest)))[1] - (number == 9)
            stamp = Stamp(name, epoch, number % 2, number // 2)
            mine = [row for row in written[name] if row[:2] == (epoch, stamp.stream)]
            last = max((row[2] for row in mine), default=-1)
            assert producers.judge(stamp) is expected(name, owner, stamp, last)
            if producers.judge(stamp) is Judged.NEW:
                producers.check(stamp)
                producers.write(stamp, 100 * index, 10, now_ms)
                written[name].append((epoch, stamp.stream, stamp.sequence))
                used[name] = now_ms
                assert producers.written(name, stamp.stream) == Written(
                    stamp.sequence, 100 * index, 10
                )
        elif what == "rest":
            now_ms += KEPT_MS // 2 + 1 if number else 1000
        elif what == "restart":
            rows, producers = rows_in(producers.picture()), Producers(names_max=2)
            producers.restore(rows)
            assert rows_in(producers.picture()) == rows
        assert {each: producers.epoch(each) for each in NAMES} == {
            each: owner[each][1] if each in owner else None for each in NAMES
        }


def without(owner: dict[str, tuple[str, int]], name: str) -> dict[str, tuple[str, int]]:
    """The names that are left."""
    return {each: owner[each] for each in owner if each != name}


def expected(name: str, owner: dict[str, tuple[str, int]], stamp: Stamp, last: int) -> Judged:
    """The judgement of one more write, by a list of all writes."""
    if name not in owner:
        return Judged.FORGOTTEN
    if owner[name][1] != stamp.epoch:
        return Judged.FENCED
    if stamp.sequence > last:
        return Judged.NEW
    return Judged.REPEATED if stamp.sequence == last else Judged.OVERTAKEN


@dataclass(eq=False)
class Attempt:
    """A write that its program has asked for: inputs from where to where, in one of two streams.

    What is written in stream 1 has no inputs: the program's own remarks.
    """

    stream: int
    sequence: int
    begin: int
    end: int
    tag: bytes
    tries: int = 0
    answers: list[Stored | Refused | AppendError] = field(default_factory=list)


@dataclass(eq=False)
class Instance:
    """A program that reads numbered inputs and writes an output for each, in transactions."""

    name: str
    epochs: list[int | Refused | AppendError] = field(default_factory=list)
    sequence: int = 0
    at: int = 0
    doubts: dict[int, Attempt] = field(default_factory=dict)
    """Writes without an answer, by stream."""


class World:
    """Instances at the broker's own code, on a log in memory."""

    def __init__(self, directory: Path) -> None:
        self.leader = LeadingMachine(directory, lambda: 1000, auto=False)
        machine, ledger = self.leader.machine, self.leader.ledger
        role = Role("n0", {"n0": "127.0.0.1:10911"})
        entries = self.leader.appending
        definitions = Definitions(machine, entries, role, self.leader.assignments, lambda: False)
        self.once = OnceAppender(
            machine,
            ledger,
            definitions,
            Appender(machine, entries),
            OffsetCommits(machine, definitions, lambda _: None),
        )
        topics = [read_write(topic, 1) for topic in ("In", "Out", "Side", OP_TOPIC)]
        self.leader.change(control.PutTopics(topics, 1000))
        ledger.commit()
        self.instances = [Instance("p0"), Instance("p1"), Instance("p0")]
        self.begun = 0
        self.stored: set[bytes] = set()
        self.denied: set[bytes] = set()
        for instance in reversed(self.instances):
            self.begins(instance, 1)

    @property
    def offset(self) -> int:
        """How far the group is."""
        return self.leader.machine.offsets.get("G", "In", 0) or 0

    def bodies(self, topic: str) -> list[bytes]:
        """Bodies that a consumer can read."""
        queue = self.leader.machine.queues.get(topic, 0)
        units = [] if queue is None else queue.read(queue.begin, 10_000)
        view = self.leader.ledger.view
        return [bytes(Record(view(int(u["position"]), int(u["size"]))).body) for u in units]

    def begins(self, instance: Instance, drawn: int) -> None:
        """A program starts, or starts anew: it goes on where the group is."""
        self.begun += 1
        instance.sequence, instance.doubts = 0, {}
        instance.epochs, instance.at = [], self.offset
        self.once.register(instance.name, f"t{self.begun}", 1000, instance.epochs.append)
        if drawn:
            self.leader.ledger.commit()

    def ends_a_transaction(self, instance: Instance, drawn: int) -> None:
        """Write outputs for the next inputs, or the last write again if it was not answered."""
        self.writes(instance, 0, drawn % 4)

    def remarks(self, instance: Instance, drawn: int) -> None:
        """Write one message without an input, or the last one again if it was not answered."""
        self.writes(instance, 1, 0)

    def writes(self, instance: Instance, stream: int, inputs: int) -> None:
        if not instance.epochs or not isinstance(instance.epochs[0], int):
            return
        if stream not in instance.doubts:
            instance.sequence += 1
            tag = b"%d.%d" % (instance.epochs[0], instance.sequence)
            begin, end = instance.at, instance.at + inputs
            instance.doubts[stream] = Attempt(stream, instance.sequence, begin, end, tag)
        self.asks(instance, instance.doubts[stream], instance.epochs[0])

    def asks(self, instance: Instance, attempt: Attempt, epoch: int) -> None:
        topic, numbers = "Side", [-1]
        if attempt.stream == 0:
            topic, numbers = "Out", [*range(attempt.begin, attempt.end)]
        records = [NewRecord(b"%d %s" % (n, attempt.tag), b"", 1, HOST) for n in numbers]
        runs = [(0, len(records))]
        assignments = self.leader.assignments
        parts = [RecordsDraft(records, topic, runs, assignments, HOST)] if records else []
        moves = [OffsetMove("In", 0, attempt.begin, attempt.end)] if attempt.stream == 0 else []
        sizes = [part.size for part in parts]
        stamp = (instance.name, epoch, attempt.stream, attempt.sequence)
        once = Once(*stamp, "G", moves, sizes)
        attempt.answers = []
        attempt.tries += 1
        try:
            self.once.write(
                once_draft(once, parts, assignments, HOST), once, attempt.answers.append
            )
        except (Refused, AppendError) as refused:
            attempt.answers.append(refused)
        self.hears(instance, 0)

    def hears(self, instance: Instance, drawn: int) -> None:
        """An answer that came settles it; a definite refusal sends the program back."""
        for stream, attempt in [*instance.doubts.items()]:
            answer = attempt.answers[0] if attempt.answers else None
            if isinstance(answer, Stored):
                self.stored |= (
                    {attempt.tag} if attempt.stream or attempt.begin < attempt.end else set()
                )
                instance.at = max(instance.at, attempt.end)
                del instance.doubts[stream]
            elif isinstance(answer, Refused) and answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                # A fenced writer can't be told of an earlier try whose answer was lost.
                if attempt.tries == 1 or answer.code != ResponseCode.PRODUCER_FENCED:
                    self.denied.add(attempt.tag)
                instance.at = self.offset
                del instance.doubts[stream]

    def commits(self, instance: Instance, drawn: int) -> None:
        """A majority has some entries."""
        self.leader.ledger.commit(1 + drawn)

    def dies(self, instance: Instance, drawn: int) -> None:
        """Lose the entries that are not committed, with their answers."""
        self.leader.ledger.follow("n1")
        self.leader.ledger.lead()
        self.leader.assignments.reset()

    def check(self) -> None:
        """Each input below the offset has one output; what was told of a write is so."""
        outputs = [body.split() for body in self.bodies("Out")]
        remarks = [body.split() for body in self.bodies("Side")]
        assert [int(number) for number, _ in outputs] == list(range(self.offset))
        assert len({tag for _, tag in remarks}) == len(remarks)
        there = {tag for _, tag in outputs + remarks}
        assert self.stored <= there
        assert not self.denied & there
        assert self.leader.machine.aside.count == 0


PLANS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ends_a_transaction"] * 4
            + ["remarks", "remarks", "commits", "commits", "hears", "begins", "dies"]
        ),
        st.integers(0, 2),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(PLANS)
@settings(max_examples=80, deadline=None)
def test_each_input_has_its_output_once(plan: list[tuple[str, int, int]]) -> None:
    """Two of the three programs have one name; all read the same queue of one group."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        Path(directory, "a").mkdir()
        world = World(Path(directory, "a"))
        for what, number, drawn in plan:
            getattr(world, what)(world.instances[number], drawn)
            world.check()
        for _ in range(2):
            world.leader.ledger.commit()
            for instance in world.instances:
                world.hears(instance, 0)
                for stream, attempt in [*instance.doubts.items()]:
                    world.writes(instance, stream, attempt.end - attempt.begin)
        world.check()
        save(world.leader.machine)
        restored, replayed = Machine(Path(directory, "a")), Machine(Path(directory, "b"))
        restored.restore()
        for entry in world.leader.ledger.entries(1):
            replayed.apply(entry)
        held = rows_in(world.leader.machine.producers.picture())
        assert (
            rows_in(restored.producers.picture()) == rows_in(replayed.producers.picture()) == held
        )
        assert rows_in(replayed.offsets.picture()) == rows_in(
            world.leader.machine.offsets.picture()
        )
        for machine in (world.leader.machine, restored, replayed):
            machine.close()
