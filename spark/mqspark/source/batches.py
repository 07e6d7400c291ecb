"""Batches that are stored whole, as a log has them: staged rows, decisions, and ends. Pure.

A staged entry is a half message whose body is records, behind a mark and a note. A decision is a
named producer's write, whose note has the number of the batch and the places of the staged entries
that count. An end is a move out of the queue of half messages: the records behind it become
messages, or the half message is dropped (docs/explanation/spark-sink.md). Other half messages end
alike, so an end means something only beside the staged entry that it is about.

Bytes that say none of this are passed over: whoever reads them finds out (properties 2 and 5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from dledger.checksum import crc32
from dledger.errors import BadInput
from dledger.remoting.message import REAL_TOPIC, STAGED, properties_decode
from dledger.remoting.names import HALF_TOPIC
from dledger.remoting.numbers import INT64_MAX
from dledger.remoting.record.layout import QUEUE_OFFSET_AT
from mqspark.source.records import Place, RecordColumns, RecordWalk

STAGED_MARK: Final = b"STAGED 0"
DECISION_MARK: Final = b"WRITTEN-ONCE 1"
CLOSING: Final = INT64_MAX
"""The batch whose decision says that no other one of its name will come."""
_END: Final = re.compile(HALF_TOPIC.encode() + rb" 0 ([0-9]{1,18})-([0-9]{1,18})")
END_BYTES_MAX: Final = len(HALF_TOPIC) + 2 + 2 * 19
"""The longest text that says that one half message ends."""
#: Places in a decision's note: name, epoch, batch and content.
_NOTED: Final = (0, 1, 7, 8)
_PLACES: Final = dict[str, list[tuple[int, int]]]
_STAGED: Final = re.compile(r"([^ ]+) ([0-9]{1,19}) ([0-9]{1,19}) ([^ ]+)")


class Rows(msgspec.Struct, frozen=True, array_like=True):
    """A staged entry: its offset among the half messages, its position, and for whom it waits.
    `crc` is of its rows: topics, bodies and properties."""

    offset: int
    position: int
    name: str
    epoch: int
    batch: int
    home: str
    topic: str
    crc: int


class End(msgspec.Struct, frozen=True, array_like=True):
    """The entry at `position` ends a half message. `crc` is of the messages that it becomes; None
    if it is dropped."""

    offset: int
    position: int
    crc: int | None


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """A decision at `position` of the home group's log. `places` are broker group, offset and
    position of the staged entries that count, in order."""

    name: str
    epoch: int
    batch: int
    position: int
    places: list[tuple[str, int, int]]


class StagedBatches(msgspec.Struct):
    """Staged rows, ends and decisions in entries of one log."""

    rows: list[Rows] = msgspec.field(default_factory=list)
    ends: list[End] = msgspec.field(default_factory=list)
    decisions: list[Decision] = msgspec.field(default_factory=list)

    def add(self, other: StagedBatches) -> None:
        """Add those of other entries."""
        self.rows += other.rows
        self.ends += other.ends
        self.decisions += other.decisions

    def take(self, records: RecordColumns, raw: memoryview, base_position: int) -> None:
        """Take in an entry that begins with a note of the broker, by its records in `raw`."""
        bodies = [bytes(raw[at : at + size]) for at, size in records.bodies[:2]]
        position = base_position + records.starts[0]
        if (end := _END.fullmatch(bodies[0])) is not None:
            first, behind = int(end[1]), int(end[2])
            if behind == first + 1:
                crc = crc_of(records, raw, 1) if len(records) > 1 else None
                self.ends.append(End(first, position, crc))
        elif bodies[0] == DECISION_MARK and len(bodies) > 1:
            self.decisions += _decisions(bodies[1], position)
        elif bodies[0] == STAGED_MARK:
            self.rows += _staged(records, raw, base_position)


def crc_of(records: RecordColumns, raw: memoryview, first: int) -> int:
    """The CRC of what readers see of records, from the `first` on, but for their places."""
    crc = 0
    for number in range(first, len(records)):
        crc = crc32((records.topics[number] or "").encode(), crc)
        for at, size in (records.bodies[number], records.properties[number]):
            crc = crc32(raw[at : at + size], crc)
    return crc


def _staged(records: RecordColumns, raw: memoryview, base_position: int) -> Iterator[Rows]:
    """The staged entry behind a mark and a note."""
    for number in range(2, len(records)):
        named = _properties(records, raw, number)
        waits = _STAGED.fullmatch(named.get(STAGED, ""))
        if waits is None:
            continue
        start, (at, size) = records.starts[number], records.bodies[number]
        own = RecordColumns()
        walk = RecordWalk(raw, base_position, verify=False)
        walk.walk(own, Place(None, None, 0), at, at + size)
        yield Rows(
            int.from_bytes(raw[start + QUEUE_OFFSET_AT :][:8], "big"),
            base_position + start,
            *(waits[1], int(waits[2]), int(waits[3]), waits[4]),
            named.get(REAL_TOPIC, ""),
            crc_of(own, raw, 0),
        )


def _properties(records: RecordColumns, raw: memoryview, number: int) -> dict[str, str]:
    at, size = records.properties[number]
    try:
        return properties_decode(bytes(raw[at : at + size]))
    except BadInput:
        return {}


def _decisions(note: bytes, position: int) -> Iterator[Decision]:
    """The decision of a note, if it is one."""
    try:
        fields = msgspec.msgpack.decode(note)
        name, epoch, batch, content = (fields[at] for at in _NOTED)
        places = msgspec.msgpack.decode(content, type=_PLACES) if content else {}
    except (msgspec.MsgspecError, TypeError, LookupError, ValueError, RecursionError):
        return
    if type(name) is str and type(epoch) is int and type(batch) is int:
        named = [
            (group, *place)
            for group, found in places.items()
            for place in found
            if all(0 <= each <= INT64_MAX for each in place)
        ]
        yield Decision(name, epoch, batch, position, named)
