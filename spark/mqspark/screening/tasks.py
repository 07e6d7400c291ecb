"""Tasks of Spark's workers: reading parts, digesting messages, looking at queues.

Rows between them have three columns: `place` says which task gets the row, `kind` what its `data`
is: rows of numbers, Arrow's own form of a table, or JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqspark.history.events import NOTE_FIELDS, OF_MESSAGES
from mqspark.limits import BATCH_ROWS_MAX
from mqspark.screening.changes import DELETE_TOPIC, Deletion, GroupsLogged, Lives, logged_numbers
from mqspark.screening.digest import digest
from mqspark.screening.hashing import hashed
from mqspark.screening.large import Large, large_in
from mqspark.screening.lines import LinesLook, without_times, writer_of
from mqspark.screening.logs import OtherQueues, QueuesLook, look_at_others
from mqspark.screening.packets import (
    NONE,
    READING,
    SLOT,
    STATEMENT,
    Numbers,
    Rows,
    divided,
    from_arrow,
    joined,
    numbers,
    packed,
    rows_of,
    to_arrow,
    unpacked,
)
from mqspark.screening.parts import HistoryPart
from mqspark.screening.queues import range_numbers, ranges
from mqspark.screening.readings import COMMITTED, DELIVERED, read_numbers, read_ranges
from mqspark.screening.statements import statements
from mqspark.screening.testimony import (
    DELIVER,
    RECORD_COLUMNS,
    SEND,
    SENDER_CRC,
    SOURCES,
    of_events,
    of_records,
    queue_number,
)
from mqspark.source.batches import StagedBatches
from mqspark.source.derived import look_at
from mqspark.source.planning import Replica, Task
from mqspark.source.reader import SegmentLook, SegmentReader, Tally
from mqspark.source.schema import MESSAGES, row_schema

#: The kinds of rows.
SAID, NOTED, SUMMARY, TOTALS, SUSPECTS, SLOTS, WAITERS, RANGES, READINGS, READ, DONE = range(11)
#: Where a topic was deleted, for every task that digests.
GONE: Final = 11
#: Differences of the derived files from the logs, replica by replica.
DERIVED: Final = 12
PACKETS: Final = "place int, kind int, data binary"
_PACKETS: Final = pa.schema({"place": pa.int32(), "kind": pa.int32(), "data": pa.binary()}.items())
#: An event about no single message, and the number of the queue that it names.
NOTE: Final = pa.schema([*NOTE_FIELDS.items(), ("queue", pa.int64())])
#: The notes that say where a group is, in the order of `readings.COMMITTED` and what follows it.
COMMIT, GROUP_OFFSET, RESET = POSITIONS = ("commit", "group_offset", "reset")
#: Where a queue ends; and what a tool did.
QUEUE_END: Final = "queue_end"
ACT: Final = "act"
#: The harness has started a client, which said so itself.
STARTED: Final = "started"
Batches = Iterable[pa.RecordBatch]
Packet = tuple[int, int, bytes]


class Summary(msgspec.Struct):
    """Findings that are about no single message, of a part or of all.

    `groups`: those that anything was delivered to; `readers`: those that said where they are. How
    many messages were `popped`, how many of them were `new` to their group, and how many have an
    end of their own (`ending`). `notes`: how many events of each kind are about no single message.
    `logged`: broker, group, topic, queue, and the highest offset at which a log has the group go
    on. `acts` of tools by the logs: broker, act, whom it is about, its value, and where. `batches`:
    staged rows, decisions and ends in the logs, by broker. `through`: groups that by a log are
    through with what they popped. `segments` and `lines`: what these look like. `large`: bodies in
    parts, and the parts. `others`: queues of topics that the history is not about. `unsure`: groups
    and queues that were read by somebody whose clock fell. `started`: clients that the harness has
    started; `clients`: those that say something.
    """

    groups: set[str | None] = msgspec.field(default_factory=set)
    readers: set[str | None] = msgspec.field(default_factory=set)
    popped: int = 0
    new: int = 0
    ending: int = 0
    notes: dict[str, int] = msgspec.field(default_factory=dict)
    logged: list[tuple[str, str, str, int, int]] = msgspec.field(default_factory=list)
    acts: set[tuple[str, str, str, int, int]] = msgspec.field(default_factory=set)
    batches: dict[str, StagedBatches] = msgspec.field(default_factory=dict)
    through: set[str] = msgspec.field(default_factory=set)
    segments: list[SegmentLook] = msgspec.field(default_factory=list)
    large: list[Large] = msgspec.field(default_factory=list)
    others: list[QueuesLook] = msgspec.field(default_factory=list)
    lines: list[LinesLook] = msgspec.field(default_factory=list)
    unsure: set[tuple[str, int]] = msgspec.field(default_factory=set)
    started: set[str] = msgspec.field(default_factory=set)
    clients: set[str] = msgspec.field(default_factory=set)

    def add(self, other: Summary) -> None:
        """Add the findings of another part."""
        for name in self.__struct_fields__:
            own, more = getattr(self, name), getattr(other, name)
            if isinstance(own, set):
                own |= more
            elif isinstance(own, list):
                own += more
            elif isinstance(own, int):
                setattr(self, name, own + more)
        for kind, count in other.notes.items():
            self.notes[kind] = self.notes.get(kind, 0) + count
        for broker, batches in other.batches.items():
            self.batches.setdefault(broker, StagedBatches()).add(batches)


@dataclass(frozen=True)
class Reading:
    """The parts to read, and which of their contents count. Task number n reads part n."""

    parts: Sequence[HistoryPart | Task]
    replicas: Sequence[Replica]
    topics: Sequence[str]
    brokers: Sequence[str]
    full_masks: Sequence[int]
    begins: Sequence[Sequence[int]]
    digest_tasks: int
    queue_tasks: int
    properties: bool = False
    unsure: Mapping[str, int] = field(default_factory=dict)

    def testimony(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The testimony in the parts whose numbers come."""
        for part in self._parts(batches):
            for table, _ in self._of(part, Summary()):
                yield from table.to_batches()

    def packets(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Testimony as statements, for the tasks that digest them; and the other contents of
        events."""
        for part in self._parts(batches):
            said, summary = [], Summary()
            logged: list[Packet] = []
            for table, events in self._of(part, summary, logged):
                said.append(statements(table, self.brokers))
                if events is not None:
                    delivered = table.filter(pc.equal(table["source"], DELIVER))
                    summary.groups |= set(pc.unique(delivered["group"]).to_pylist())
                    summary.popped += len(delivered) - delivered["pop_time"].null_count
                    summary.new += len(delivered) - delivered["asked"].null_count
                    summary.ending += len(table) - table["expires"].null_count
                    notes = _notes(events, summary)
                    yield _of_notes(notes)
                    yield self._to_readings(delivered, notes, summary)
            yield _batch(
                [(0, SUMMARY, msgspec.json.encode(summary)), *logged, *self._gone(summary)]
            )
            rows = np.concatenate(said) if said else np.empty(0, STATEMENT)
            places = (rows["identity"].view(np.uint64) % self.digest_tasks).astype(np.int64)
            packets = divided(rows, places * len(SOURCES) + rows["source"])
            yield _batch((place // len(SOURCES), SAID, data) for place, data in packets)

    def _gone(self, summary: Summary) -> list[Packet]:
        """Which of the topics were deleted, and where."""
        gone = deletions(summary.acts, self.topics)
        data = msgspec.json.encode(gone)
        return [(place, GONE, data) for place in range(self.digest_tasks) if gone]

    def digests(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Findings in all statements about some messages; other rows as they are."""
        said: list[bytes] = []
        gone: list[Deletion] = []
        for batch in batches:
            of_messages = pc.equal(batch["kind"], SAID)
            said += batch.filter(of_messages)["data"].to_pylist()
            for data in batch.filter(pc.equal(batch["kind"], GONE))["data"].to_pylist():
                gone += msgspec.json.decode(data, type=list[Deletion])
            yield batch.filter(pc.invert(of_messages))
        found = digest(joined(said, STATEMENT), np.array(self.full_masks, np.int64), self.begins)
        if gone:
            found = replace(found, queue=Lives(gone).in_lives(found.queue, found.position_min))
        said.clear()
        totals = msgspec.json.encode(found.totals(self.full_masks))
        yield _batch([(0, TOTALS, totals)])
        for kind, rows in ((SUSPECTS, found.suspects()), (WAITERS, found.waiters())):
            yield _batch((0, kind, data) for _, data in divided(rows, np.zeros(len(rows), int)))
        yield from self._to_queues(found.slots())

    def slots(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Places in queues, for the tasks that look at queues."""
        for batch in batches:
            yield from self._to_queues(from_arrow(batch, SLOT))

    def _to_queues(self, slots: Rows) -> Iterator[pa.RecordBatch]:
        packets = divided(slots, range_numbers(slots, self.queue_tasks))
        yield _batch((place, SLOTS, data) for place, data in packets)

    def _to_readings(
        self, delivered: pa.Table, notes: pa.Table, summary: Summary
    ) -> pa.RecordBatch:
        """Deliveries to groups and the offsets they say they are at, for the tasks that look at
        readings.

        What members popped is none of it: they are given messages in any order.
        """
        own = notes.filter(pc.is_in(notes["topic"], value_set=pa.array(self.topics, pa.string())))
        said = pc.index_in(own["kind"], value_set=pa.array(POSITIONS))
        own = own.append_column("said", said).filter(pc.is_valid(said))
        # Without an offset a reading is doubtful: so it shall be if a clock went back.
        odd = pc.fill_null(pc.greater(own["began"], own["t"]), False)
        own = own.append_column("at", pc.if_else(odd, None, own["offset"]))
        summary.readers |= set(pc.unique(own["group"]).to_pylist())
        read = delivered.filter(pc.is_null(delivered["pop_time"]))
        rows = np.concatenate(
            [
                _readings(read, "queue_offset", np.full(len(read), DELIVERED)),
                _readings(own, "at", COMMITTED + numbers(own["said"])),
            ]
        )
        packets = divided(rows, read_numbers(rows, self.queue_tasks))
        return _batch((place, READINGS, data) for place, data in packets)

    def _of_lines(self, part: HistoryPart, summary: Summary) -> Iterator[tuple[pa.Table, pa.Table]]:
        """The testimony in lines, of those that say something."""
        look = LinesLook(part.file.name, part.start)
        summary.lines.append(look)
        fall_ns = self.unsure.get(writer_of(part.file.name))
        for events, is_end in with_last(part.events()):
            sound = look.take(events, is_end=is_end and part.is_last)
            if fall_ns is not None:
                sound = without_times(sound, fall_ns)
            testimony = of_events(sound, self.topics)
            if fall_ns is not None:
                read = testimony.filter(pc.equal(testimony["source"], DELIVER))
                summary.unsure |= set(
                    zip(read["group"].to_pylist(), read["queue"].to_pylist(), strict=True)
                )
            are_started = pc.equal(sound["kind"], STARTED)
            if pc.any(are_started).as_py():
                summary.started |= set(sound.filter(are_started)["client"].to_pylist()) - {None}
            said = sound["client"].filter(pc.invert(are_started))
            summary.clients |= set(pc.unique(said).to_pylist()) - {None}
            yield testimony, sound

    def _parts(self, batches: Batches) -> Iterator[HistoryPart | Task]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self.parts[number]

    def _of(
        self, part: HistoryPart | Task, summary: Summary, logged: list[Packet] | None = None
    ) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """The testimony in a part, and the events that it is from. `logged` gets what members of
        groups are through with by entries of a log."""
        if isinstance(part, HistoryPart):
            yield from self._of_lines(part, summary)
            return
        for batches, looks in self._of_segments(part, summary, logged):
            look_at_others(looks, batches, self.topics)
            records = pa.Table.from_batches(batches).combine_chunks()
            summary.large += large_in(records)
            yield of_records(records, self.topics), None

    def _of_segments(
        self, part: Task, summary: Summary, logged: list[Packet] | None
    ) -> Iterator[tuple[list[pa.RecordBatch], list[OtherQueues]]]:
        """Records of segments, those of small ones together, each with the look at its segment."""
        batches: list[pa.RecordBatch] = []
        looks: list[OtherQueues] = []
        columns = (*RECORD_COLUMNS, *([SENDER_CRC] if self.properties else ()))
        schema = row_schema(MESSAGES, columns)
        reader = SegmentReader(self.replicas, MESSAGES, schema, verify=True, merge=True)
        by_broker: dict[str, GroupsLogged] = {}
        for segment in part.segments:
            groups = by_broker.setdefault(segment.broker, GroupsLogged())
            others = OtherQueues(segment)
            tally = Tally(segment, None if logged is None else groups.take)
            for records in reader.segment(segment, tally):
                batches.append(records)
                looks.append(others)
                if sum(map(len, batches)) >= BATCH_ROWS_MAX:
                    yield batches, looks
                    batches, looks = [], []
            summary.others.append(others.look)
            summary.segments.append(tally.look)
        if batches:
            yield batches, looks
        for broker, groups in by_broker.items():
            _add_changes(broker, groups, summary, logged)


def _add_changes(
    broker: str, groups: GroupsLogged, summary: Summary, logged: list[Packet] | None
) -> None:
    """Add the changes of groups and topics that a broker's log has."""
    summary.logged += [(broker, *queue, offset) for queue, offset in groups.offsets.items()]
    summary.acts |= {(broker, *act) for act in groups.acts}
    summary.batches.setdefault(broker, StagedBatches()).add(groups.batches)
    if logged is not None and groups.done:
        summary.through |= {group for group, *_ in groups.done}
        done = logged_numbers(broker, groups)
        logged += [(0, DONE, data) for _, data in divided(done, np.zeros(len(done), int))]


def deletions(
    acts: Iterable[tuple[str, str, str, int, int]], topics: Sequence[str]
) -> list[Deletion]:
    """Acts that deleted one of these topics."""
    return [
        (broker, topic, position)
        for broker, act, topic, _, position in acts
        if act == DELETE_TOPIC and topic in topics
    ]


def look_at_queues(settled_end: Numbers) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A task that looks at the ranges of queues whose places come.

    `settled_end` says for each broker up to which position its log is settled.
    """

    def look(batches: Batches) -> Iterator[pa.RecordBatch]:
        slots = joined((data for batch in batches for data in batch["data"].to_pylist()), SLOT)
        found = ranges(settled(slots, settled_end))
        yield _batch([(0, RANGES, packed(found))])

    return look


def look_at_readings(batches: Batches) -> Iterator[pa.RecordBatch]:
    """A task that looks at the ranges of readings of which something comes."""
    said = joined((data for batch in batches for data in batch["data"].to_pylist()), READING)
    yield _batch([(0, READ, packed(read_ranges(said)))])


def settled(slots: Rows, settled_end: Numbers) -> Rows:
    """Without the places that only an unsettled tail names."""
    known = (slots["ack_t"] != NONE) | (slots["read_t"] != NONE)
    kept: Rows = slots[known | (slots["position"] < settled_end[slots["broker_number"]])]
    return kept


def with_last(tables: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, bool]]:
    """Each table, and whether it is the last."""
    before: pa.Table | None = None
    for table in tables:
        if before is not None:
            yield before, False
        before = table
    if before is not None:
        yield before, True


def columns_of(kind: np.dtype[Any]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A task that makes columns of packets' rows."""

    def unpack(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch["data"].to_pylist():
                yield to_arrow(unpacked(data, kind))

    return unpack


def noted(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The events about no single message, as columns."""
    for batch in batches:
        for data in batch["data"].to_pylist():
            yield from pa.ipc.open_stream(data)


def derived(replicas: Sequence[Replica]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A task that compares the derived files of those replicas whose numbers come with their
    logs."""

    def look(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = msgspec.json.encode(look_at(replicas[number]))
                yield _batch([(number, DERIVED, found)])

    return look


def rows_of_segments(reader: SegmentReader) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A task that reads those of the reader's partitions whose numbers come."""
    partitions = reader.partitions()

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from reader.read(partitions[number])

    return read


def sent_topics(parts: Sequence[HistoryPart]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A task that yields the topics of the sends in the parts whose numbers come."""

    def look(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for events in parts[number].events():
                    sent = events.filter(pc.equal(events["kind"], SEND))
                    topics = pc.unique(sent["topic"]).drop_null()
                    yield pa.RecordBatch.from_arrays([topics], names=["topic"])

    return look


def _readings(rows: pa.Table, offset: str, said: Numbers) -> Rows:
    return rows_of(
        READING,
        group=hashed(pc.fill_null(rows["group"], "")),
        queue=numbers(rows["queue"]),
        queue_offset=numbers(rows[offset]),
        t=numbers(rows["t"]),
        said=said,
    )


def _notes(events: pa.Table, summary: Summary) -> pa.Table:
    """The events about no single message, which are counted."""
    of_messages = pc.is_in(events["kind"], value_set=pa.array(OF_MESSAGES))
    others = events.filter(pc.and_(pc.is_valid(events["kind"]), pc.invert(of_messages)))
    for count in pc.value_counts(pa.chunked_array(others["kind"]).combine_chunks()).to_pylist():
        summary.notes[count["values"]] = summary.notes.get(count["values"], 0) + count["counts"]
    return others.append_column("queue", queue_number(others)).select(NOTE.names).cast(NOTE)


def _of_notes(notes: pa.Table) -> pa.RecordBatch:
    if not len(notes):
        return _batch([])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, NOTE) as writer:
        writer.write_table(notes)
    return _batch([(0, NOTED, sink.getvalue().to_pybytes())])


def _batch(packets: Iterable[Packet]) -> pa.RecordBatch:
    places, kinds, data = zip(*packets, strict=True) if (packets := list(packets)) else ((),) * 3
    columns = [
        pa.array(places, pa.int32()),
        pa.array(kinds, pa.int32()),
        pa.array(data, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PACKETS)
