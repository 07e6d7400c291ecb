"""The units that an entry of messages adds to the queues and the key index, by its bytes alone.
Pure.

An entry's body is message records back to back (see `dledger.remoting.record`), all of one topic
and one store time where one request made the entry. Records of the same queue that stand next to
each other form a run, with consecutive queue offsets.

This runs on every replica for every entry. Many records are taken apart by numpy, column by column
(`many`); for few that would cost more than to go by `Record`, one after the other.

Bytes that can't be such an entry raise Unusable: every field is checked before it is used. Only the
CRCs of message bodies are not checked: the leader has compared them, and the entry has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from dledger.buffers import Buffer
from dledger.errors import RecordError
from dledger.limits import TOPIC_BYTES_MAX
from dledger.remoting.message import REAL_TOPIC, TIMER_OUT_MS
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import RECORD_OVERHEAD_BYTES, Record
from dledger.remoting.record.layout import U32
from mqbroker import limits
from mqbroker.state.aside import Unusable
from mqbroker.state.decisions import STAGED_MARK, StagedNote, decode_staged_note
from mqbroker.state.dedup import dedup_key
from mqbroker.state.derived.entry_index import PACKED_UNIT, Copies, EntryIndex, Run
from mqbroker.state.derived.many import Many, starts_of
from mqbroker.state.derived.properties import (
    TAGS_NAME,
    UNIQUE_NAME,
    Places,
    code_of_tags,
    expires_in,
    keys_of,
    value_in,
)
from mqbroker.state.derived.units import lives
from mqbroker.state.groups.given_up import GIVEN_UP_MARK, GivenUp, decode_given_up
from mqbroker.state.moves import Move, decode_move
from mqbroker.state.once import (
    DECISION_MARK,
    MARK,
    NOTES,
    Once,
    decode_decision,
    decode_once,
)
from mqbroker.state.shares import Owner, owner_name

Noted: TypeAlias = Once | GivenUp | StagedNote
FEW: Final = 14
"""The number of records up to which they are taken apart one by one: 18 us each, and 250 us for a
table of some."""
_TIMER_OUT_MS: Final = TIMER_OUT_MS.encode() + b"\x01"
#: The reader of a note, by its mark.
_NOTES: Final[Mapping[bytes, Callable[[Buffer], Noted]]] = {
    MARK: decode_once,
    DECISION_MARK: decode_decision,
    GIVEN_UP_MARK: decode_given_up,
    STAGED_MARK: decode_staged_note,
}
_MARK_BYTES_MAX: Final = max(map(len, _NOTES)) + 1

Op: TypeAlias = Move | Noted
"""The effect of an entry of messages beside storing them."""


def index_entry(body: memoryview, position: int) -> tuple[Op | None, Sequence[EntryIndex]]:
    """Take apart an entry of messages: of one topic, a move (see `mqbroker.state.moves`), or
    with a note (see `mqbroker.state.once`, `mqbroker.state.groups.given_up`).

    Raises Unusable for bytes that no leader writes.
    """
    first = _record(body, 0, position)
    topic = _topic(first)
    if topic != OP_TOPIC:
        return None, (_index(body, position, first, topic),)
    decode = _NOTES.get(bytes(first.body[:_MARK_BYTES_MAX]))
    if decode is not None:
        return _index_noted(body, position, first, decode)
    return decode_move(first.body), _index_moved(body, position, first)


def _index_moved(body: memoryview, position: int, move: Record) -> list[EntryIndex]:
    """The move itself, and what it moved: many messages are of one topic, as a staged entry's."""
    moved, at = body[move.size :], position + move.size
    starts = starts_of(moved)
    if len(starts) > FEW:
        table = _table(moved, starts, at)
        if table is not None and table[0].topic != OP_TOPIC:
            many, stored_ms = table
            whole = many.index(stored_ms, ())
            if whole is not None:
                own = _index(body[: move.size], position, move, OP_TOPIC)._replace(copies=())
                return [own, whole]
    return [
        index_records(part, position + start)._replace(copies=())
        for _, start, part in _of_one_topic(body, position)
    ]


def index_sends(body: memoryview, position: int) -> Sequence[EntryIndex]:
    """Take apart an entry of sends of a message or a few each, of one topic or several.

    Raises Unusable for bytes that no leader writes.
    """
    starts = starts_of(body)
    if len(starts) <= FEW:
        return _one_by_one(body, position, starts.tolist())
    table = _table(body, starts, position)
    if table is not None:
        many, stored_ms = table
        whole = many.index(stored_ms, None)
        if whole is not None:
            return [whole]
    return [*_sends_of_topics(body, position)]


def _table(body: memoryview, starts: Places, position: int) -> tuple[Many, int] | None:
    """Records as a table, and when the first was stored; None if the last is of another topic."""
    first, last = _record(body, 0, position), _record(body, int(starts[-1]), position)
    topic = _topic(first)
    if topic != _topic(last):
        return None
    return Many(body, starts, position, topic), _time_ms(first)


def _one_by_one(body: memoryview, position: int, starts: Sequence[int]) -> list[EntryIndex]:
    return [
        index_records(body[start:end], position + start)
        for start, end in zip(starts, [*starts[1:], len(body)], strict=True)
    ]


def _sends_of_topics(body: memoryview, position: int) -> Iterator[EntryIndex]:
    for topic, start, part in _of_one_topic(body, position):
        starts = starts_of(part)
        if len(starts) <= FEW:
            yield from _one_by_one(part, position + start, starts.tolist())
        else:
            first = _record(part, 0, position + start)
            many = Many(part, starts, position + start, topic)
            yield _whole(many.index(_time_ms(first), None))


def _whole(index: EntryIndex | None) -> EntryIndex:
    if index is None:
        raise Unusable("its records are of several topics, or of lengths that don't fit")
    return index


def _of_one_topic(body: memoryview, position: int) -> Iterator[tuple[str, int, memoryview]]:
    """The records that follow each other and are of one topic: that, where in `body` they start,
    and their bytes."""
    starts = starts_of(body).tolist()
    topics = [_topic(_record(body, start, position)) for start in starts]
    begins = [n for n, topic in enumerate(topics) if n == 0 or topic != topics[n - 1]]
    for begin, end in zip(begins, [*begins[1:], len(starts)], strict=True):
        last = len(body) if end == len(starts) else starts[end]
        yield topics[begin], starts[begin], body[starts[begin] : last]


def _index_noted(
    body: memoryview, position: int, mark: Record, decode: Callable[[Buffer], Noted]
) -> tuple[Op, Sequence[EntryIndex]]:
    """The note tells where the parts are: messages may be many, and are not looked at one by
    one."""
    note = _record(body, mark.size, position)
    noted = decode(note.body)
    ends = [mark.size + note.size]
    for size in noted.sizes:
        ends.append(ends[-1] + size)
    if ends[-1] != len(body):
        raise Unusable(f"its parts end at {ends[-1]} of {len(body)} bytes")
    parts = [
        index_records(body[start:end], position + start)._replace(copies=())
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    notes = parts[0]
    if notes.topic != OP_TOPIC or sum(run.messages for run in notes.runs) != NOTES:
        raise Unusable("its notes are no two records of the broker's own")
    return noted, parts


def due_ms(record: Record) -> int:
    """When a message with a timer is due. Raises Unusable if it does not say."""
    properties = bytes(record.properties)
    value = value_in(properties, _TIMER_OUT_MS)
    if value is None or not value.isdigit() or len(value) > limits.TIME_DIGITS_MAX:
        raise Unusable("a timed message does not say when it is due")
    return int(value)


def owner_of(record: Record, *names: str) -> Owner:
    """The owner of a message that waits: the values of these properties."""
    properties = bytes(record.properties)
    values = (value_in(properties, name.encode() + b"\x01") or b"" for name in names)
    return tuple(map(owner_name, values))


class Due(NamedTuple):
    """A message with a timer: its offset, its time, whose it is, and when it was born."""

    offset: int
    at_ms: int
    owner: Owner
    born_ms: int


def due_of(offset: int, record: Record) -> Due:
    """When a message with a timer is due, and the topic that it is for."""
    owner = owner_of(record, REAL_TOPIC)
    return Due(offset, due_ms(record), owner, record.born_timestamp_ms)


def index_records(body: memoryview, position: int) -> EntryIndex:
    """Take apart the records in `body`, whose first byte is at `position` of the log.

    Raises Unusable for bytes that no leader can have written.
    """
    first = _record(body, 0, position)
    return _index(body, position, first, _topic(first))


def _index(body: memoryview, position: int, first: Record, topic: str) -> EntryIndex:
    queue_id, offset, at, stored_ms, tries = first.place
    _check_time(stored_ms)
    encoded_topic, properties = topic.encode(), bytes(first.properties)
    unique_key = value_in(properties, UNIQUE_NAME)
    copies: Copies = ()
    if unique_key and tries == 0:  # no further try
        copies = ((dedup_key(encoded_topic, unique_key), (position, len(body))),)
    if (size := first.size) < len(body):
        starts = starts_of(body)
        if len(starts) > FEW:
            return _whole(Many(body, starts, position, topic).index(stored_ms, copies))
        return _joined(_one_by_one(body, position, starts.tolist()), copies)
    if at != position:
        raise Unusable(f"the record at {position} says that it is at another position")
    if queue_id < 0:
        raise Unusable(f"the record at {position} is for queue {queue_id}")
    code = code_of_tags(value_in(properties, TAGS_NAME))
    expires_ms = expires_in(encoded_topic, properties)
    lives_on = lives(expires_ms, stored_ms)
    unit = PACKED_UNIT.pack(position, size, lives_on, code, stored_ms)
    keys = keys_of(encoded_topic, unique_key, properties, position)
    return EntryIndex(topic, stored_ms, copies, [Run(queue_id, offset, unit)], keys)


def _joined(parts: Sequence[EntryIndex], copies: Copies) -> EntryIndex:
    """The units of some records that were sent together."""
    first = parts[0]
    if any(part.topic != first.topic for part in parts):
        raise Unusable("its records are of several topics")
    runs: list[Run] = []
    for part in parts:
        (run,) = part.runs
        last = runs[-1] if runs else None
        if last is None or last.queue_id != run.queue_id:
            runs.append(run)
        elif run.first_offset == last.first_offset + last.messages:
            runs[-1] = last._replace(units=last.units + run.units)
        else:
            raise Unusable(f"it skips queue offsets in queue {run.queue_id} of {first.topic}")
    keys = [key for part in parts for key in part.keys]
    return EntryIndex(first.topic, first.store_timestamp_ms, copies, runs, keys)


def _time_ms(record: Record) -> int:
    """Store time of a record, in unix ms. Raises Unusable if it is out of range."""
    stored_ms = record.store_timestamp_ms
    _check_time(stored_ms)
    return stored_ms


def _check_time(stored_ms: int) -> None:
    if not 0 <= stored_ms <= limits.TIME_MS_MAX:
        raise Unusable(f"it was stored at {stored_ms} ms, which is no time")


def _record(body: memoryview, start: int, position: int) -> Record:
    """The record at `start`, with its lengths checked."""
    if len(body) - start < RECORD_OVERHEAD_BYTES:
        raise Unusable(f"{len(body) - start} bytes at {position + start} are too few for a record")
    record = Record(body[start : start + int(U32.unpack_from(body, start)[0])])
    fault = record.fault
    if fault is not None:
        raise Unusable(f"no record is at {position + start}: {fault}")
    return record


def _topic(record: Record) -> str:
    """A record's topic, which names a directory."""
    try:
        topic = record.topic
    except RecordError:
        topic = ""
    if not _is_name(topic):
        raise Unusable("a record's topic is no name of one")
    return topic


@lru_cache(maxsize=1024)
def _is_name(topic: str) -> bool:
    return 0 < len(topic.encode()) <= TOPIC_BYTES_MAX and not {"/", "\0"} & set(topic)
