"""Turns columns into batches of finished records. Pure.

A row is a message. Its key, if it has one, chooses its queue and is stored as by `Producer.send`
with `keys` and `key`, so rows of a key keep their order. All rows are looked at before the first
batch is made: an error names the row, and means that none was sent. A batch is for one broker
group; its rows are those that come next for it, sorted into runs of a queue each.

Columns are Arrow arrays, chunked ones too, or lists of Python's values. Arrow is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from dledger.errors import BadInput
from dledger.limits import MESSAGE_BODY_BYTES_MAX, PROPERTIES_SENT_BYTES_MAX
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import KEYS, TAGS, UNIQ_KEY, tags_code
from dledger.remoting.names import check_topic_name
from dledger.remoting.record import encode_record
from dledger.remoting.record.many import encode_rows
from mqclient import limits
from mqclient.bulk.models import Column, Columns, RecordsBatch, Sender
from mqclient.connection.identity import numbered_key
from mqclient.errors import BadMessage
from mqclient.producing.encoding import with_key
from mqclient.user_properties import check_properties, encode_properties, keys_text

_Ints: TypeAlias = npt.NDArray[np.int64]
_PER_MS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


class _Rows(NamedTuple):
    """Rows that were found right."""

    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    born_ms: _Ints
    queues: _Ints
    unique_keys: tuple[str, range]


def encode_columns(
    topic: str,
    columns: Columns,
    queues: Sequence[MessageQueue],
    sender: Sender,
    *,
    turn: int = 0,
    batch_bytes_max: int = limits.BULK_BATCH_BYTES_MAX,
    body_bytes_max: int = MESSAGE_BODY_BYTES_MAX,
) -> Iterator[RecordsBatch]:
    """The batches of all rows, for the topic's `queues` in their usual order.

    Rows without a key go to the queues by turns, several rows at a time, from queue `turn` on. A
    batch has at most so many bytes, or a single row. Raises BadMessage naming the first wrong row,
    before the first batch.
    """
    try:
        check_topic_name(topic)
    except BadInput as error:
        raise BadMessage(str(error)) from error
    rows = _examined(topic, columns, queues, sender, turn, body_bytes_max)
    pattern = encode_record(
        topic=topic.encode(),
        queue_id=0,
        body=b"",
        properties=b"",
        born_timestamp_ms=sender.now_ms,
        born_host=sender.born_host,
    )
    return _batches(topic, rows, queues, pattern, batch_bytes_max)


def _examined(
    topic: str,
    columns: Columns,
    queues: Sequence[MessageQueue],
    sender: Sender,
    turn: int,
    body_bytes_max: int,
) -> _Rows:
    bodies = _listed(columns.body)
    count = len(bodies)
    listed: dict[str, Sequence[Any] | None] = {"body": bodies}
    for name in ("key", "tags", "properties"):
        column = getattr(columns, name)
        listed[name] = None if column is None else _listed(column)
    born_ms = np.full(count, sender.now_ms) if columns.born is None else None
    if born_ms is None:
        born_ms = _times(topic, columns.born, sender.now_ms)
    for name, values in (*listed.items(), ("born", born_ms)):
        if values is not None and len(values) != count:
            raise BadMessage(
                f"columns for topic {topic!r}: {name} has {len(values)} rows, body has {count}"
            )
    _check_bodies(topic, bodies, body_bytes_max)
    keys = listed["key"]
    unique = sender.keys.take(count)
    properties = _all_properties(topic, unique, keys, listed["tags"], listed["properties"], count)
    return _Rows(bodies, properties, born_ms, _queues_of(keys, queues, count, turn), unique)


def _listed(column: Column) -> Sequence[Any]:
    """The values of a column as Python's."""
    if hasattr(column, "to_pylist"):
        return cast(Sequence[Any], column.to_pylist())
    return cast(Sequence[Any], column)


def _wrong(topic: str, row: int, reason: str) -> BadMessage:
    return BadMessage(f"row {row} of the columns for topic {topic!r}: {reason}")


def _check_bodies(topic: str, bodies: Sequence[Any], bytes_max: int) -> None:
    """Raise BadMessage for the first body that is none, or too large."""
    if {*map(type, bodies)} <= {bytes} and max(map(len, bodies), default=0) <= bytes_max:
        return
    for row, body in enumerate(bodies):
        if type(body) is not bytes:
            what = "no body" if body is None else f"a body of type {type(body).__name__}"
            raise _wrong(topic, row, f"{what}; a body is bytes (of a text: cast it to binary)")
        if len(body) > bytes_max:
            raise _wrong(
                topic, row, f"a body of {len(body)} bytes; at most {bytes_max} are allowed"
            )


def _times(topic: str, column: Column, now_ms: int) -> _Ints:
    """Times in ms; now for a null."""
    times, after = 1, 1
    if hasattr(column, "type"):
        times, after = _PER_MS.get(getattr(column.type, "unit", "ms"), (1, 1))
        column = column.cast("int64")
    found = []
    for row, value in enumerate(_listed(column)):
        time_ms = now_ms if value is None else value
        if value is not None and type(value) is int:
            time_ms = value * times // after
        if type(time_ms) is not int or not 0 <= time_ms <= limits.END_OF_TIME_MS:
            raise _wrong(topic, row, f"born={value!r:.100}: a time is ms since 1970")
        found.append(time_ms)
    return np.array(found, np.int64)


def _all_properties(
    topic: str,
    unique: tuple[str, range],
    keys: Sequence[Any] | None,
    tags: Sequence[Any] | None,
    maps: Sequence[Any] | None,
    count: int,
) -> list[bytes]:
    """The property string of each row."""
    front, numbers = unique
    begin, end = encode_properties({UNIQ_KEY: "0"}).split(b"0")
    firsts = [begin + numbered_key(front, number).encode() + end for number in numbers]
    if keys is None and tags is None and maps is None:
        return firsts
    none: Sequence[None] = [None] * count
    rows = zip(firsts, keys or none, tags or none, maps or none, strict=True)
    found = []
    for row, (first, key, tag, given) in enumerate(rows):
        try:
            found.append(first + _properties_of_row(key, tag, given))
        except (BadInput, TypeError, ValueError, AttributeError) as error:
            raise _wrong(topic, row, str(error)) from error
        if len(found[-1]) > PROPERTIES_SENT_BYTES_MAX:
            raise _wrong(
                topic,
                row,
                f"properties of {len(found[-1])} bytes, the added ones included; at most "
                f"{PROPERTIES_SENT_BYTES_MAX} are allowed",
            )
    return found


def _properties_of_row(
    key: object, tag: object, given: Mapping[str, str] | Iterable[Any] | None
) -> bytes:
    """The message of a row. Raises BadInput, or TypeError, ValueError."""
    if key is None and tag is None and not given:
        return b""
    own = dict(given or {})
    check_properties(own)
    properties = own
    for name, value in (("key", key), ("tags", tag)):
        if value is not None and (type(value) is not str or not value):
            raise BadInput(f"{name}={value!r:.100}: expected a text that is not empty, or null")
    if isinstance(key, str):
        properties = {**with_key(own, key), KEYS: keys_text(key)}
    if isinstance(tag, str):
        properties[TAGS] = tag
    return encode_properties(properties)


def _queues_of(
    keys: Sequence[Any] | None, queues: Sequence[MessageQueue], count: int, turn: int
) -> _Ints:
    """Which of the queues each row goes to: by its key, as `Producer.send` chooses, or by turns."""
    each = -(-count // len(queues)) or 1
    found: _Ints = (np.arange(count, dtype=np.int64) // each + turn) % len(queues)
    if keys is not None:
        places = {key: abs(tags_code(key)) % len(queues) for key in {*keys} if key is not None}
        for row, key in enumerate(keys):
            if key is not None:
                found[row] = places[key]
    return found


def _batches(
    topic: str,
    rows: _Rows,
    queues: Sequence[MessageQueue],
    pattern: bytes,
    batch_bytes_max: int,
) -> Iterator[RecordsBatch]:
    count = len(rows.bodies)
    sizes = np.fromiter(map(len, rows.bodies), np.int64, count) + len(pattern)
    sizes += np.fromiter(map(len, rows.properties), np.int64, count)
    names = [queue.broker_name for queue in queues]
    queue_ids = np.array([queue.queue_id for queue in queues], np.int64)[rows.queues]
    groups = np.array([names.index(name) for name in names])[rows.queues]
    for group in np.unique(groups):
        for part in _cut(np.flatnonzero(groups == group), sizes, batch_bytes_max):
            order = part[np.argsort(queue_ids[part], kind="stable")]
            chosen = order.tolist()
            ids, counts = np.unique(queue_ids[order], return_counts=True)
            front, numbers = rows.unique_keys
            yield RecordsBatch(
                topic,
                names[group],
                [*zip(ids.tolist(), counts.tolist(), strict=True)],
                encode_rows(
                    pattern,
                    [rows.bodies[row] for row in chosen],
                    [rows.properties[row] for row in chosen],
                    queue_ids[order],
                    rows.born_ms[order],
                ),
                len(chosen),
                int(part[0]),
                numbered_key(front, numbers[chosen[0]]),
            )


def _cut(rows: _Ints, sizes: _Ints, bytes_max: int) -> Iterator[_Ints]:
    """The rows in pieces of at most so many bytes, or one row; and of so many rows."""
    ends = np.cumsum(sizes[rows])
    begin = 0
    while begin < len(rows):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + bytes_max, "right"))
        end = min(max(end, begin + 1), begin + limits.BATCH_RECORDS_MAX)
        yield rows[begin:end]
        begin = end
