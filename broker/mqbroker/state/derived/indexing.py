"""What an entry of messages adds to the queues and the key index, by its bytes alone. Pure.

An entry's body is message records back to back (see `dledger.remoting.record`), all of one topic
and one store time, since one request makes one entry. Records of the same queue that stand next to
each other form a run, with consecutive queue offsets.

This runs on every replica for every entry. A batch is taken apart by numpy: the fixed fields of all
records are read at once. Tags and keys are looked for one by one, unless the records have a unique
key and nothing else, as our producers' plain messages do. Most entries of stock producers hold one
record, for which numpy's fixed cost is too much: they go by `Record`.

Bytes that can't be such an entry raise Unusable: every field is checked before it is used. Only the
CRCs of message bodies are not checked: the leader has compared them, and the entry has its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dledger.buffers import Buffer
from dledger.errors import RecordError
from dledger.limits import TOPIC_BYTES_MAX
from dledger.remoting.message import (
    DLQ_PREFIX,
    EXPIRES_AT_MS,
    KEYS,
    TAGS,
    TIMER_OUT_MS,
    UNIQ_KEY,
    tags_code,
)
from dledger.remoting.record import (
    BORN_HOST_IPV6,
    RECORD_OVERHEAD_BYTES,
    STORE_HOST_IPV6,
    Record,
)
from dledger.remoting.record.batch import record_starts
from dledger.remoting.record.layout import (
    BODY_AT,
    BODY_LENGTH_AT,
    BORN_HOST_AT,
    HOST_IPV6_EXTRA_BYTES,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from mqbroker import limits
from mqbroker.state.aside import Unusable
from mqbroker.state.dedup import StoredCopy, dedup_key
from mqbroker.state.derived.keys import Hashes, Key, Keys, key_hashes, key_units
from mqbroker.state.derived.units import UNIT, Units, lives
from mqbroker.state.groups.given_up import GIVEN_UP_MARK, GivenUp, decode_given_up
from mqbroker.state.moves import OP_TOPIC, Move, decode_move
from mqbroker.state.once import MARK, NOTES, Once, decode_once

_HEAD: Final = np.dtype(
    {
        "names": ["size", "queue_id", "queue_offset", "physical_offset", "sys_flag"],
        "formats": [">u4", ">i4", ">i8", ">i8", ">i4"],
        "offsets": [0, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT],
        "itemsize": BORN_HOST_AT,
    }
)
_U32: Final = np.dtype(">u4")
_UNIT: Final = struct.Struct(">QI4xIiq")
_SIZE: Final = struct.Struct(">I")
_TAGS: Final = TAGS.encode() + b"\x01"
_UNIQ_KEY: Final = UNIQ_KEY.encode() + b"\x01"
_TIMER_OUT_MS: Final = TIMER_OUT_MS.encode() + b"\x01"
_EXPIRES_AT_MS: Final = EXPIRES_AT_MS.encode() + b"\x01"
_DLQ_PREFIX: Final = DLQ_PREFIX.encode()
_KEYS: Final = KEYS.encode() + b"\x01"
_VALUE_END: Final = 0x02
#: What a mark says the note is.
_NOTES: Final[Mapping[bytes, Callable[[Buffer], Once | GivenUp]]] = {
    MARK: decode_once,
    GIVEN_UP_MARK: decode_given_up,
}
_MARK_BYTES_MAX: Final = max(map(len, _NOTES)) + 1

assert _UNIT.size == UNIT.itemsize


class Run(NamedTuple):
    """Consecutive messages of one queue: the first one's offset, and their units as bytes."""

    queue_id: int
    first_offset: int
    units: bytes

    def decoded(self) -> Units:
        """The units as an array."""
        return np.frombuffer(self.units, UNIT)

    @property
    def messages(self) -> int:
        """How many there are."""
        return len(self.units) // _UNIT.size

    @property
    def size_bytes(self) -> int:
        """The size of their records, which lie back to back."""
        first, *_ = _UNIT.unpack_from(self.units)
        last, size, *_ = _UNIT.unpack_from(self.units, len(self.units) - _UNIT.size)
        return int(last) + int(size) - int(first)


class EntryIndex(NamedTuple):
    """An entry of messages, taken apart."""

    topic: str
    store_timestamp_ms: int
    copies: Sequence[tuple[bytes, StoredCopy]]
    """For the dedup window: the key of each send, and where what was sent lies."""
    runs: Sequence[Run]
    keys: Keys = ()
    """The keys for the key index."""


Op: TypeAlias = Move | Once | GivenUp
"""What an entry of messages does beside storing them."""


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
    parts = [
        index_records(part, position + start)._replace(copies=())
        for start, part, _ in _of_one_topic(body, position)
    ]
    return decode_move(first.body), parts


def index_sends(body: memoryview, position: int) -> Sequence[EntryIndex]:
    """Take apart an entry of sends of one message each, of one topic or several.

    Raises Unusable for bytes that no leader writes.
    """
    return [
        index_records(part, position + start)._replace(copies=_copies(records, position + start))
        for start, part, records in _of_one_topic(body, position)
    ]


def _of_one_topic(
    body: memoryview, position: int
) -> Iterator[tuple[int, memoryview, Sequence[Record]]]:
    """The records that follow each other and are of one topic: where in `body` they start, their
    bytes, and they one by one."""
    starts = _starts(body).tolist()
    records = [_record(body, start, position) for start in starts]
    topics = [_topic(record) for record in records]
    begins = [n for n, topic in enumerate(topics) if n == 0 or topic != topics[n - 1]]
    for begin, end in zip(begins, [*begins[1:], len(starts)], strict=True):
        last = len(body) if end == len(starts) else starts[end]
        yield starts[begin], body[starts[begin] : last], records[begin:end]


def _copies(records: Sequence[Record], position: int) -> list[tuple[bytes, StoredCopy]]:
    """Those of sends of one message each, all of one topic; the first one lies at `position`."""
    copies = []
    topic = records[0].topic.encode()
    for record in records:
        key = _dedup_key(record, topic, bytes(record.properties))
        if key is not None:
            copies.append((key, StoredCopy(position, record.size)))
        position += record.size
    return copies


def _dedup_key(record: Record, topic: bytes, properties: bytes) -> bytes | None:
    """The key of a send that begins with this record; None if it is a further try, or has none."""
    key = _property(properties, _UNIQ_KEY, 0, len(properties))
    return dedup_key(topic, key) if key and record.reconsume_times == 0 else None


def _index_noted(
    body: memoryview, position: int, mark: Record, decode: Callable[[Buffer], Once | GivenUp]
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
    value = _property(properties, _TIMER_OUT_MS, 0, len(properties))
    if value is None or not value.isdigit() or len(value) > limits.TIME_DIGITS_MAX:
        raise Unusable("a timed message does not say when it is due")
    return int(value)


def index_records(body: memoryview, position: int) -> EntryIndex:
    """Take apart the records in `body`, whose first byte is at `position` of the log.

    Raises Unusable for bytes that no leader can have written.
    """
    first = _record(body, 0, position)
    return _index(body, position, first, _topic(first))


def _index(body: memoryview, position: int, first: Record, topic: str) -> EntryIndex:
    if not 0 <= first.store_timestamp_ms <= limits.TIME_MS_MAX:
        raise Unusable(f"it was stored at {first.store_timestamp_ms} ms, which is no time")
    encoded_topic = topic.encode()
    properties = bytes(first.properties)
    key = _dedup_key(first, encoded_topic, properties)
    keys: Keys
    if first.size == len(body):
        runs = [_only_run(first, position, encoded_topic, properties)]
        keys = _keys(encoded_topic, properties, 0, len(properties), position)
    else:
        runs, keys = _many(body, position, first)
    return EntryIndex(
        topic=topic,
        store_timestamp_ms=first.store_timestamp_ms,
        copies=() if key is None else ((key, StoredCopy(position, len(body))),),
        runs=runs,
        keys=keys,
    )


def _record(body: memoryview, start: int, position: int) -> Record:
    """The record at `start`, with its lengths checked."""
    if len(body) - start < RECORD_OVERHEAD_BYTES:
        raise Unusable(f"{len(body) - start} bytes at {position + start} are too few for a record")
    record = Record(body[start : start + int(_SIZE.unpack_from(body, start)[0])])
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


def _starts(body: memoryview) -> npt.NDArray[np.int64]:
    try:
        return record_starts(body)
    except RecordError as error:
        raise Unusable(str(error)) from error


def _only_run(record: Record, position: int, topic: bytes, properties: bytes) -> Run:
    if record.physical_offset != position:
        raise Unusable(f"the record at {position} says that it is at another position")
    if record.queue_id < 0:
        raise Unusable(f"the record at {position} is for queue {record.queue_id}")
    code = _tags_code(_property(properties, _TAGS, 0, len(properties)))
    expires_ms = _expires_ms(topic, properties, 0, len(properties))
    lives_on = lives(expires_ms, record.store_timestamp_ms)
    unit = _UNIT.pack(position, record.size, lives_on, code, record.store_timestamp_ms)
    return Run(record.queue_id, record.queue_offset, unit)


def _many(body: memoryview, position: int, first: Record) -> tuple[list[Run], Keys]:
    starts = _starts(body)
    heads: Units = np.ndarray(len(body) - _HEAD.itemsize, _HEAD, body, strides=(1,))[starts]
    positions = starts + position
    if not np.array_equal(heads["physical_offset"], positions):
        raise Unusable(f"the entry at {position} holds records of another position")
    topic = first.topic.encode()
    tags_codes, ends_ms, keys = _read_properties(body, starts, heads, topic, position)
    units = np.zeros(len(starts), UNIT)
    units["position"] = positions
    units["size"] = heads["size"]
    units["tags_code"] = tags_codes
    units["store_timestamp_ms"] = first.store_timestamp_ms
    for number, expires_ms in ends_ms:
        units["lives"][number] = lives(expires_ms, first.store_timestamp_ms)

    queue_ids = heads["queue_id"]
    offsets = heads["queue_offset"].astype(np.int64)
    same_queue = queue_ids[1:] == queue_ids[:-1]
    if (queue_ids < 0).any() or not (offsets[1:] - offsets[:-1] == 1)[same_queue].all():
        raise Unusable(f"the entry at {position} skips queue offsets, or is for no queue")
    begins = [0, *(np.flatnonzero(~same_queue) + 1).tolist()]
    ends = [*begins[1:], len(starts)]
    runs = [
        Run(int(queue_ids[begin]), int(offsets[begin]), units[begin:end].tobytes())
        for begin, end in zip(begins, ends, strict=True)
    ]
    return runs, keys


def _property_begins(
    body: memoryview, starts: npt.NDArray[np.int64], heads: Units, topic: bytes
) -> npt.NDArray[np.int64]:
    """Where the properties of each record begin. Raises Unusable unless all lengths are right."""
    flags, sizes = heads["sys_flag"], heads["size"].astype(np.int64)
    extra = np.where(flags & BORN_HOST_IPV6, HOST_IPV6_EXTRA_BYTES, 0)
    extra += np.where(flags & STORE_HOST_IPV6, HOST_IPV6_EXTRA_BYTES, 0)
    room = sizes - (RECORD_OVERHEAD_BYTES + len(topic)) - extra
    if (room >= 0).all():
        lengths: Units = np.ndarray(len(body) - 3, _U32, body, strides=(1,))
        body_lengths = lengths[starts + extra + BODY_LENGTH_AT].astype(np.int64)
        room -= body_lengths
        if (room >= 0).all():
            tail = _tail(len(topic))
            tails_at = starts + extra + BODY_AT + body_lengths
            tails: Units = np.ndarray(len(body) - tail.itemsize + 1, tail, body, strides=(1,))[
                tails_at
            ]
            same_topic = tails["topic"] == np.void(bytes((len(topic),)) + topic)
            if same_topic.all() and (tails["properties_length"] == room).all():
                return tails_at + tail.itemsize
    raise Unusable("its records are of several topics, or of lengths that don't fit")


@lru_cache(maxsize=TOPIC_BYTES_MAX)
def _tail(topic_bytes: int) -> np.dtype[np.void]:
    """The fields between body and properties: the topic with its length byte, a length."""
    return np.dtype([("topic", f"V{1 + topic_bytes}"), ("properties_length", ">u2")])


def _read_properties(
    body: memoryview, starts: npt.NDArray[np.int64], heads: Units, topic: bytes, position: int
) -> tuple[list[int] | int, list[tuple[int, int]], Keys]:
    """The tags codes, the numbers of those that expire with their times, and the keys."""
    begins = _property_begins(body, starts, heads, topic)
    ends = starts + heads["size"]
    hashes = _hashes_of_unique_keys_only(body, begins, ends, topic)
    if hashes is not None:
        return 0, [], [key_units(hashes, starts + position)]
    data = bytes(body)  # find() in one copy beats a slice for each record
    codes: list[int] = []
    ends_ms: list[tuple[int, int]] = []
    keys: list[Key | bytes] = []
    may_expire = data.find(_EXPIRES_AT_MS) >= 0
    for start, begin, end in zip(starts.tolist(), begins.tolist(), ends.tolist(), strict=True):
        codes.append(_tags_code(_property(data, _TAGS, begin, end)))
        keys += _keys(topic, data, begin, end, position + start)
        expires_ms = _expires_ms(topic, data, begin, end) if may_expire else None
        if expires_ms is not None:
            ends_ms.append((len(codes) - 1, expires_ms))
    return codes, ends_ms, keys


def _hashes_of_unique_keys_only(
    body: memoryview, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], topic: bytes
) -> Hashes | None:
    """The key hashes of records whose only property is a unique key, all of one length.

    Our producers' plain messages are like that, and are hashed all at once. None for others.
    """
    widths = ends - begins
    width = int(widths[0])
    name_bytes = len(_UNIQ_KEY)
    if width < name_bytes + 2 or not (widths == width).all():
        return None
    rows: npt.NDArray[np.void] = np.ndarray(len(body) - width + 1, f"V{width}", body, strides=(1,))
    properties = rows[begins].view(np.uint8).reshape(len(begins), width)
    separators = properties <= _VALUE_END
    if (
        not (properties[:, :name_bytes] == np.frombuffer(_UNIQ_KEY, np.uint8)).all()
        or separators[:, name_bytes:-1].any()
        or not (properties[:, -1] == _VALUE_END).all()
    ):
        return None
    return key_hashes(topic, properties[:, name_bytes:-1])


def _keys(topic: bytes, data: bytes, begin: int, end: int, position: int) -> list[Key]:
    """One record's keys: the unique one, and each word of KEYS."""
    unique_key = _property(data, _UNIQ_KEY, begin, end)
    words = _property(data, _KEYS, begin, end)
    keys = [Key(topic, unique_key, position)] if unique_key else []
    if words:
        distinct = dict.fromkeys(words.split()[: limits.KEYS_PER_MESSAGE_MAX])
        keys += [Key(topic, word, position) for word in distinct]
    return keys


def _property(data: bytes, name: bytes, begin: int, end: int) -> bytes | None:
    """The value of a property in the properties string data[begin:end]; `name` ends in 0x01."""
    at = data.find(name, begin, end)
    while at > begin and data[at - 1] != _VALUE_END:  # the end of a longer name, or in a value
        at = data.find(name, at + 1, end)
    if at < 0:
        return None
    value_end = data.find(b"\x02", at, end)
    return data[at + len(name) : value_end if value_end >= 0 else end]


def _expires_ms(topic: bytes, data: bytes, begin: int, end: int) -> int | None:
    """When one record expires; None for never. Dead letters don't, nor does what says no time."""
    value = _property(data, _EXPIRES_AT_MS, begin, end)
    if value is None or topic.startswith(_DLQ_PREFIX):
        return None
    return int(value) if value.isdigit() and len(value) <= limits.TIME_DIGITS_MAX else None


@lru_cache(maxsize=1024)
def _tags_code(tag: bytes | None) -> int:
    return tags_code(tag.decode(errors="replace")) if tag else 0  # as Java reads it
