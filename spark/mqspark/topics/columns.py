"""Pulled records as Arrow columns, without a Python object for each message.

Bodies and properties lie scattered in the pulled bytes. Arrow sees the bytes as one column of twice
as many values, what lies between and what is wanted by turns, and gathers every other one by
itself. Keys, tags and the map of properties are found by Arrow's own functions in the property
strings. Only what can't be had so is looked at message by message: bodies that are compressed or
elsewhere, and property strings that no sender of ours or RocketMQ's writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dledger.checksum import crc32
from dledger.errors import BadInput, ConfigError, RecordError
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import KEYS, TAGS, UNIQ_KEY, properties_decode
from dledger.remoting.record import COMPRESSED, CRC_MASK
from dledger.remoting.record.table import RecordTable
from mqclient.models import ReceivedMessage
from mqspark.limits import FETCHED_BYTES_MAX, TIME_MS_MAX

Ints = npt.NDArray[np.int64]

_TIME: Final = pa.timestamp("us", tz="UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())
#: The columns, in the order in which they come.
COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "key": pa.string(),
    "value": pa.binary(),
    "topic": pa.string(),
    "broker": pa.string(),
    "queue": pa.int32(),
    "offset": pa.int64(),
    "storeTimestamp": _TIME,
    "bornTimestamp": _TIME,
    "tags": pa.string(),
    "messageId": pa.string(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "properties": _MAP,
}
PROPERTIES: Final = "properties"
BODY: Final = "value"
#: Stand between a property's name and its value, and between two properties.
_NAME_END: Final = b"\x01"
_BETWEEN: Final = 2
_US_PER_MS: Final = 1000


def arrow_schema(columns: Sequence[str], *, headers: bool) -> pa.Schema:
    """The columns of a read: the named ones, or all; the map of properties only if it is wanted.

    Raises ConfigError for a column that there is not.
    """
    for name in columns:
        if name not in COLUMNS:
            raise ConfigError(
                f"option columns: there is no {name!r}; there are {', '.join(COLUMNS)}"
            )
    if len(set(columns)) < len(columns):
        raise ConfigError(f"option columns names one twice: {', '.join(columns)}")
    names = [*columns] or [name for name in COLUMNS if name != PROPERTIES]
    if headers and PROPERTIES not in names:
        names.append(PROPERTIES)
    return pa.schema([(name, COLUMNS[name]) for name in names])


class BatchMaker:
    """Makes batches of the messages of one queue.

    `body_of` gives the body of a message that is compressed or elsewhere. With `tags`, other
    messages are left out.
    """

    def __init__(
        self,
        queue: MessageQueue,
        schema: pa.Schema,
        body_of: Callable[[ReceivedMessage], bytes],
        tags: frozenset[str] = frozenset(),
    ) -> None:
        self._queue = queue
        self._schema = schema
        self._body_of = body_of
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None

    def batches(self, table: RecordTable) -> Iterator[pa.RecordBatch]:
        """The batches of all records of a table: one, or more if many bodies are inflated or
        fetched. Raises RecordError for damage."""
        columns = _Columns(table, self._queue, self._body_of)
        names = self._schema.names
        begin = 0
        for bodies in columns.bodies() if BODY in names else [None]:
            rows = slice(begin, len(table) if bodies is None else begin + len(bodies))
            arrays = [bodies if name == BODY else columns.column(name)[rows] for name in names]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            if self._tags is not None:
                batch = batch.filter(pc.is_in(columns.column("tags")[rows], self._tags))
            yield batch
            begin = rows.stop


class _Columns:
    """The columns of one table."""

    def __init__(
        self, table: RecordTable, queue: MessageQueue, body_of: Callable[[ReceivedMessage], bytes]
    ) -> None:
        self._table = table
        self._queue = queue
        self._body_of = body_of
        self._made: dict[str, pa.Array] = {}

    @cached_property
    def _properties(self) -> _Properties:
        """Read only if a column needs them: that takes a quarter of the time of bodies alone."""
        return _Properties(self._table)

    def column(self, name: str) -> pa.Array:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> pa.Array:
        table, queue = self._table, self._queue
        constants = {"topic": queue.topic, "broker": queue.broker_name}
        if name in constants:
            return _repeated(constants[name], len(table))
        found = {"key": KEYS, "tags": TAGS, "messageId": UNIQ_KEY}
        if name in found:
            return self._properties.value(found[name])
        if name == PROPERTIES:
            return self._properties.maps()
        makers: dict[str, Callable[[], pa.Array]] = {
            "queue": lambda: numbers(np.full(len(table), queue.queue_id), pa.int32()),
            "offset": lambda: numbers(table.queue_offsets, pa.int64()),
            "storeTimestamp": lambda: _times(table.store_timestamps_ms),
            "bornTimestamp": lambda: _times(table.born_timestamps_ms),
            "flag": lambda: numbers(table.flags, pa.int32()),
            "sysFlag": lambda: numbers(table.sys_flags, pa.int32()),
        }
        return makers[name]()

    def bodies(self) -> Iterator[pa.Array]:
        """The bodies, each compared with its CRC. Those that are inflated or fetched make a new
        array whenever they pass FETCHED_BYTES_MAX."""
        table = self._table
        begins, ends, _, _ = table.spans
        odd = (table.sys_flags & COMPRESSED != 0) | (begins == ends)
        plain = gather(table.buffer, begins, np.where(odd, begins, ends))
        pieces = map(slice, np.where(odd, 0, begins).tolist(), np.where(odd, 0, ends).tolist())
        crcs = np.fromiter(map(crc32, map(table.buffer.__getitem__, pieces)), np.int64, len(table))
        wrong = (crcs & CRC_MASK != table.body_crcs) & ~odd
        if wrong.any():
            raise self._damaged(int(np.flatnonzero(wrong)[0]))
        begin, size_bytes, fetched = 0, 0, dict[int, bytes]()
        for row in np.flatnonzero(odd).tolist():
            fetched[row] = self._odd_body(row)
            size_bytes += len(fetched[row])
            if size_bytes >= FETCHED_BYTES_MAX:
                yield _merged(plain, begin, row + 1, fetched)
                begin, size_bytes, fetched = row + 1, 0, {}
        if begin < len(table):
            yield _merged(plain, begin, len(table), fetched)

    def _odd_body(self, number: int) -> bytes:
        message = ReceivedMessage(None, self._queue.broker_name, self._table, number)
        try:
            return self._body_of(message)
        except RecordError as error:
            raise RecordError(
                f"message {message.queue_offset} of {self._queue}: {error}"
            ) from error

    def _damaged(self, number: int) -> RecordError:
        return RecordError(
            f"the body of message {self._table.offsets[number]} of {self._queue} does not match "
            "its CRC: it was damaged on the way here, or on the broker's disk"
        )


class _Properties:
    """The property strings of a table."""

    def __init__(self, table: RecordTable) -> None:
        _, _, begins, ends = table.spans
        raw = gather(table.buffer, begins, ends)
        try:
            self._text: pa.Array | None = raw.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            self._text = None
        self._raw = raw
        _, offsets, data = raw.buffers()
        places = np.frombuffer(offsets, np.int32, len(raw) + 1).astype(np.int64)
        self._begins, self._ends = places[:-1], places[1:]
        self._bytes = memoryview(data)[: places[-1]].tobytes() if data is not None else b""
        self._data = np.frombuffer(self._bytes, np.uint8)
        self._separators = np.flatnonzero(self._data == _BETWEEN)

    def value(self, name: str) -> pa.Array:
        """The property of this name, null without it: the last one, as `properties_decode` has
        it."""
        if self._text is None:
            return pa.array([each.get(name) for each in self._decoded()], pa.string())
        if not len(self._data):
            return pa.nulls(len(self._raw), pa.string())
        wanted = name.encode() + _NAME_END
        found = pc.find_substring(self._raw, wanted)
        within = np.frombuffer(found.buffers()[1], np.int32, len(found)).astype(np.int64)
        there = within >= 0
        begins = self._begins + within
        odd = (within > 0) & (self._data[begins - 1] != _BETWEEN)
        if odd.any() or self._bytes.count(wanted) != there.sum():
            pattern = f"(?s)^(?:.*\\x02)?{name}\\x01(?P<value>[^\\x02]+)"
            return pc.struct_field(pc.extract_regex(self._text, pattern), "value")
        begins = np.where(there, begins + len(wanted), self._begins)
        ends = np.append(self._separators, len(self._data))[
            np.searchsorted(self._separators, begins)
        ]
        ends = np.where(there, np.minimum(ends, self._ends), begins)
        return _texts(self._bytes, begins, ends, ends > begins)

    def maps(self) -> pa.Array:
        """A map from name to value for each message, of all its properties."""
        if self._text is None:
            return self._slow_maps()
        lists = pc.split_pattern(self._text, "\x02")
        parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        pairs = pc.extract_regex(
            pc.list_flatten(lists), "(?s)^(?P<name>[^\\x01]*)\\x01(?P<value>.+)$"
        )
        there = pairs.is_valid()
        pairs = pairs.filter(there)
        parents = parents[there.to_numpy(zero_copy_only=False)]
        names = pc.struct_field(pairs, "name")
        codes = pc.dictionary_encode(names)
        numbered = parents.astype(np.int64) * (len(codes.dictionary) + 1)
        numbered += codes.indices.to_numpy(zero_copy_only=False)
        if len(np.unique(numbered)) < len(numbered):  # a name twice in one message
            return self._slow_maps()
        counts = np.bincount(parents, minlength=len(self._raw))
        offsets = numbers(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return pa.MapArray.from_arrays(offsets, names, pc.struct_field(pairs, "value"))

    def _slow_maps(self) -> pa.Array:
        return pa.array([[*each.items()] for each in self._decoded()], _MAP)

    def _decoded(self) -> list[dict[str, str]]:
        """Properties of each message, decoded one by one; none of a message that has them not in
        UTF-8."""
        found = []
        for each in self._raw:
            try:
                found.append(properties_decode(each.as_py()))
            except BadInput:
                found.append({})
        return found


def _merged(plain: pa.Array, begin: int, end: int, fetched: Mapping[int, bytes]) -> pa.Array:
    """The bodies of the rows from `begin` to `end`: of some, those that were fetched."""
    rows = plain[begin:end]
    if not fetched:
        return rows
    places = np.arange(len(rows))
    places[np.array([*fetched]) - begin] = len(rows) + np.arange(len(fetched))
    both = pa.concat_arrays([rows, pa.array([*fetched.values()], pa.binary())])
    return both.take(numbers(places, pa.int64()))


def gather(buffer: memoryview, begins: Ints, ends: Ints) -> pa.Array:
    """The bytes of the buffer from each of `begins` to its end; these ascend."""
    places = np.empty(2 * len(begins) + 1, np.int32)
    places[0] = 0
    places[1::2] = begins
    places[2::2] = ends
    buffers = [None, pa.py_buffer(places), pa.py_buffer(buffer)]
    both = pa.Array.from_buffers(pa.binary(), 2 * len(begins), buffers)
    return both.take(numbers(np.arange(1, 2 * len(begins), 2), pa.int64()))


def numbers(values: npt.NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    """Numbers as Arrow has them. `pa.array` and `pa.scalar` would load pandas first, which takes
    longer than reading some 100,000 messages."""
    stored = np.ascontiguousarray(values, np.int32 if kind == pa.int32() else np.int64)
    return pa.Array.from_buffers(kind, len(stored), [None, pa.py_buffer(stored)])


def _texts(data: bytes, begins: Ints, ends: Ints, there: npt.NDArray[np.bool_]) -> pa.Array:
    """Pieces of text of which some are not there."""
    count = len(begins)
    _, offsets, found = gather(memoryview(data), begins, ends).buffers()
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [valid, offsets, found])


def _repeated(text: str, count: int) -> pa.Array:
    """A column that repeats one text."""
    data = text.encode()
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    one = pa.Array.from_buffers(pa.string(), 1, buffers)
    return one.take(numbers(np.zeros(count, np.int64), pa.int64()))


def _times(values_ms: Ints) -> pa.Array:
    """Milliseconds since 1970 as timestamps; null if no calendar has them."""
    known = np.abs(values_ms) <= TIME_MS_MAX
    stored = np.where(known, values_ms, 0) * _US_PER_MS
    valid = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(_TIME, len(stored), [valid, pa.py_buffer(stored)])
