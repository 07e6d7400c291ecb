"""Faults planted in the batches of a sink.

A query's rows are staged, decided and ended, behind a run, in a topic that no client tells of.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from dledger.remoting.message import REAL_QID, REAL_TOPIC, STAGED
from mqspark.testing.declaring import Plants
from mqspark.testing.small_runs import HALF_TOPIC, NODES, OP_TOPIC, Entry, SmallRun, Stored

PLANTS: Final = Plants[SmallRun]()

SUNK: Final = "Sunk"
HERE: Final = ""
"""The run's own broker group decides."""
_LAST: Final = 2**63 - 1
Place = tuple[int, int]


class Query:
    """A query's batches, step by step."""

    def __init__(self, run: SmallRun, home: str = HERE) -> None:
        self.run, self.home = run, home or run.broker
        known = {message.own for message in run.messages if message.own}
        self.name, self.epoch = f"spark-{len(known)}", 7
        self.rows: dict[Place, list[Stored]] = {}
        self.count = 0

    def next_offset(self, topic: str) -> int:
        """The first free offset of a topic's queue 0."""
        entries = self.run.logs["n0"]
        own = [
            (number, m.offset)
            for number, entry in enumerate(entries)
            for m in entry.messages
            if m.topic == topic
        ]
        deleted = msgspec.msgpack.encode(("delete_topic", {"topic": topic}))
        since = max((n for n, entry in enumerate(entries) if entry.control == deleted), default=-1)
        return max((offset for number, offset in own if number > since), default=-1) + 1

    def note(self, *bodies: bytes) -> list[Stored]:
        """The broker's own records before what an entry is about."""
        first = self.next_offset(OP_TOPIC)
        return [
            Stored("", OP_TOPIC, 0, first + number, body, bare={}, own=self.name)
            for number, body in enumerate(bodies)
        ]

    def stage(self, batch: int, count: int = 2) -> Place:
        """Stage `count` new rows of a batch as one entry; returns its place."""
        rows = [
            Stored(f"{self.run.broker}-{self.name}-{self.count + n:03}", SUNK, 0, 0, b"row %d" % n)
            for n in range(count)
        ]
        self.count += count
        waits = f"{self.name} {self.epoch} {batch} {self.home}"
        named = {REAL_TOPIC: SUNK, REAL_QID: "-1", STAGED: waits}
        body = b"".join(row.raw(0) for row in rows)
        half = Stored("", HALF_TOPIC, 0, self.next_offset(HALF_TOPIC), body, bare=named)
        *_, position = self.run.add(*self.note(b"STAGED 0", b"note"), half)
        self.rows[half.offset, position] = rows
        return half.offset, position

    def decide(self, batch: int, *places: Place) -> None:
        """The entries that count of a batch."""
        content = msgspec.msgpack.encode({self.run.broker: places}) if places else b""
        note = [self.name, self.epoch, 0, batch, "", [], [], batch, content]
        self.run.add(*self.note(b"WRITTEN-ONCE 1", msgspec.msgpack.encode(note)))

    def show(self, place: Place, rows: Sequence[Stored] | None = None) -> None:
        """Make the staged rows messages."""
        first = self.next_offset(SUNK)
        rows = self.rows[place] if rows is None else rows
        shown = [replace(row, offset=first + n) for n, row in enumerate(rows)]
        self.run.add(*self.note(self.end_of(place)), *shown)

    def drop(self, place: Place) -> None:
        """End a staged entry without showing its rows."""
        self.run.add(*self.note(self.end_of(place)))

    @staticmethod
    def end_of(place: Place) -> bytes:
        """The note that a half message ends."""
        return f"{HALF_TOPIC} 0 {place[0]}-{place[0] + 1}".encode()

    def batch(self, batch: int) -> list[Place]:
        """A batch as it should be: two tasks, of which one ran twice."""
        places = [self.stage(batch), self.stage(batch, 1), self.stage(batch)]
        counting = [places[0], places[2]]
        self.decide(batch, *counting)
        for place in counting:
            self.show(place)
        self.drop(places[1])
        return counting


def begun(run: SmallRun, home: str = HERE) -> Query:
    """A query that has stored a batch."""
    query = Query(run, home)
    query.batch(0)
    return query


@PLANTS.fault(19, "undecided")
def undecided(run: SmallRun, draw: random.Random) -> None:
    """An attempt that lost became messages."""
    query = begun(run)
    lost, counts = query.stage(1), query.stage(1)
    query.decide(1, counts)
    query.show(counts)
    query.show(lost)


@PLANTS.fault(19, "undecided")
def never_decided(run: SmallRun, draw: random.Random) -> None:
    """Rows of a driver that never came back became messages."""
    query = begun(run)
    query.show(query.stage(1))


@PLANTS.fault(19, "undecided")
def shown_too_early(run: SmallRun, draw: random.Random) -> None:
    """Rows became messages a moment before they were decided."""
    query = begun(run)
    place = query.stage(1)
    query.show(place)
    query.decide(1, place)


@PLANTS.fault(19, "undecided")
@PLANTS.fault(19, "decided again")
def decided_in_vain(run: SmallRun, draw: random.Random) -> None:
    """A decision that came too late named what then became messages."""
    query = begun(run)
    place = query.stage(0)
    query.decide(0, place)
    query.show(place)


@PLANTS.fault(19, "dropped")
def dropped(run: SmallRun, draw: random.Random) -> None:
    """Rows that counted were dropped."""
    query = begun(run)
    place = query.stage(1)
    query.decide(1, place)
    query.drop(place)


@PLANTS.fault(19, "dropped")
def dropped_before(run: SmallRun, draw: random.Random) -> None:
    """Rows that were to count were dropped; and another topic was deleted."""
    query = begun(run)
    place, other = query.stage(1), query.stage(1)
    run.add(control=("delete_topic", {"topic": "Sun"}))
    query.drop(place)
    query.decide(1, place, other)
    query.show(other)


@PLANTS.fault(19, "missing")
def missing(run: SmallRun, draw: random.Random) -> None:
    """The next batch was decided while rows of the one before still waited."""
    query = begun(run)
    place, other = query.stage(1), query.stage(1)
    query.decide(1, place, other)
    query.show(other)
    query.batch(2)


@PLANTS.fault(19, "missing")
def missing_at_the_end(run: SmallRun, draw: random.Random) -> None:
    """A name was closed while rows of its last batch waited."""
    query = begun(run)
    query.decide(1, query.stage(1))
    query.decide(_LAST)


@PLANTS.fault(19, "twice")
def shown_twice(run: SmallRun, draw: random.Random) -> None:
    """The rows of one staged entry became messages twice."""
    query = Query(run)
    query.show(query.batch(0)[draw.randrange(2)])


@PLANTS.fault(19, "twice")
def shown_and_dropped(run: SmallRun, draw: random.Random) -> None:
    """A half message that had become messages was dropped, too."""
    query = Query(run)
    query.drop(query.batch(0)[1])


@PLANTS.fault(19, "altered")
def other_row(run: SmallRun, draw: random.Random) -> None:
    """A row is not as it was staged."""
    query = begun(run)
    place = query.stage(1, 3)
    rows = query.rows[place]
    number = draw.randrange(3)
    change = draw.choice(({"body": b"other"}, {"keys": "another"}, {"topic": f"{SUNK}en"}))
    query.decide(1, place)
    query.show(place, [*rows[:number], replace(rows[number], **change), *rows[number + 1 :]])


@PLANTS.fault(19, "altered")
def lacking_row(run: SmallRun, draw: random.Random) -> None:
    """A row of a decided batch is missing among the messages."""
    query = begun(run)
    place = query.stage(1, 3)
    query.decide(1, place)
    query.show(place, query.rows[place][:2])


@PLANTS.fault(19, "disordered")
def turned_round(run: SmallRun, draw: random.Random) -> None:
    """Rows of a partition became messages in another order."""
    query = begun(run)
    first, second = query.stage(1), query.stage(1)
    query.decide(1, first, second)
    query.show(second)
    query.show(first)


@PLANTS.fault(19, "disordered")
def batches_turned_round(run: SmallRun, draw: random.Random) -> None:
    """Rows of a batch became messages before those of the batch before it."""
    query = begun(run)
    first, second = query.stage(1), query.stage(2)
    query.decide(1, first)
    query.decide(2, second)
    query.show(second)
    query.show(first)


@PLANTS.fault(19, "decided again")
def decided_again(run: SmallRun, draw: random.Random) -> None:
    """A batch was decided twice, or one before it."""
    query = begun(run)
    query.batch(2)
    query.decide(draw.randrange(1, 3))


@PLANTS.fault(19, "fenced")
def fenced(run: SmallRun, draw: random.Random) -> None:
    """An older instance has decided."""
    query = begun(run)
    query.epoch -= 1
    query.decide(1)


@PLANTS.fault(19, "misnamed")
def of_another_batch(run: SmallRun, draw: random.Random) -> None:
    """A decision names what was staged for another batch."""
    query = begun(run)
    query.decide(1, query.stage(2))


@PLANTS.fault(19, "misnamed")
def of_another_run(run: SmallRun, draw: random.Random) -> None:
    """A decision names what an older instance has staged."""
    query = begun(run)
    place = query.stage(1)
    query.epoch += 1
    query.decide(1, place)


@PLANTS.fault(19, "misnamed")
def of_nothing(run: SmallRun, draw: random.Random) -> None:
    """A decision names a place where nothing is staged."""
    query = begun(run)
    offset, position = query.stage(1)
    query.decide(1, (offset, position - 8))


@PLANTS.innocent
def whole_batches(run: SmallRun, draw: random.Random) -> None:
    """Batches one after the other, with gaps in their numbers, of two queries."""
    first, second = Query(run), Query(run)
    second.name += "b"
    for number in (0, 1, 5):
        first.batch(number)
        second.batch(number + 3)


@PLANTS.innocent
def repeated_batch(run: SmallRun, draw: random.Random) -> None:
    """A driver that came back has staged a batch again, which was decided: all of it is dropped."""
    query = Query(run)
    counts = query.stage(0)
    query.decide(0, counts)
    query.epoch += 1
    again = query.stage(0, 3)
    query.show(counts)
    query.drop(again)
    query.batch(1)


@PLANTS.innocent
def driver_gone(run: SmallRun, draw: random.Random) -> None:
    """A driver never came back: its rows are dropped, or wait."""
    query = begun(run)
    waits, goes = query.stage(1), query.stage(1)
    query.drop(draw.choice([waits, goes]))


@PLANTS.innocent
def under_way(run: SmallRun, draw: random.Random) -> None:
    """The run ended between the messages of a batch."""
    query = begun(run)
    first, second = query.stage(1), query.stage(1)
    query.decide(1, first, second)
    query.show(first)


@PLANTS.innocent
def topic_gone(run: SmallRun, draw: random.Random) -> None:
    """The topic was deleted while rows that count waited."""
    query = begun(run)
    place = query.stage(1)
    query.decide(1, place)
    run.add(control=("delete_topic", {"topic": SUNK}))
    query.drop(place)
    query.batch(2)


@PLANTS.innocent
def closed(run: SmallRun, draw: random.Random) -> None:
    """A name was closed, and begins anew."""
    query = begun(run)
    query.decide(_LAST)
    query.batch(0)


@PLANTS.innocent
def decided_elsewhere(run: SmallRun, draw: random.Random) -> None:
    """Another broker group decides, whose logs are not here."""
    query = Query(run, "elsewhere")
    query.show(query.stage(0))
    query.drop(query.stage(1))


@PLANTS.innocent
def shown_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """Rows became messages in the log of one node, in a tail that no client knows of."""
    query = begun(run)
    place = query.stage(1)
    first = query.next_offset(SUNK)
    rows = [replace(row, offset=first + n) for n, row in enumerate(query.rows[place])]
    entry = Entry(3, (*query.note(query.end_of(place)), *rows))
    run.logs["n1"] = [*run.logs["n1"], entry]


@PLANTS.innocent
def half_removed(run: SmallRun, draw: random.Random) -> None:
    """Old segments were removed, with some of what batches consist of."""
    query = begun(run)
    for number in range(1, 5):
        query.batch(number)
    run.removed = dict.fromkeys(NODES, draw.randint(1, 12))


@PLANTS.innocent
def transactions(run: SmallRun, draw: random.Random) -> None:
    """Other half messages ended, and a write of a named producer decided nothing."""
    query = begun(run)
    half = next(message for message in run.messages if message.topic == HALF_TOPIC)
    query.drop((half.offset, 0))
    note = [query.name, 7, 0, 9, "", [], []]
    query.run.add(*query.note(b"WRITTEN-ONCE 0", msgspec.msgpack.encode(note)))
    query.batch(1)
