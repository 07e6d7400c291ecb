"""Rows of numbers as bytes: what numpy makes at one end of a shuffle, and takes at the other.

To Spark a packet is one row with some kilobytes in it, which it moves without looking into it: from
Python to the JVM, to a file, and back. So bytes are what a packet costs. It has a column for each
field: the least value, and what each row has more, in 0, 1, 2, 4 or 8 bytes. Rows of one source go
together, since most of their columns are all the same, or near.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mqspark.limits import PACKET_ROWS_MAX

Rows = npt.NDArray[Any]
"""Rows of one of the structured types below: each field is a column. `np.take` moves whole rows ten
times as fast as an index does, which moves them field by field."""
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_COUNT: Final = struct.Struct("<q")
_COLUMN: Final = struct.Struct("<qB")
_WIDTHS: Final = (0, 1, 2, 4, 8)
NONE: Final = -(2**63)
"""No value: null."""


def _row(numbers: str, **others: str) -> np.dtype[Any]:
    """A structured type: columns of whole numbers by their names, and others with their types."""
    return np.dtype([*((name, "i8") for name in numbers.split()), *others.items()])


#: The statement of one source on one message. `source` is a place in `testimony.SOURCES`.
STATEMENT: Final = _row(
    "identity t queue queue_offset position crc properties topic holders due",
    source="i1",
    broker="i2",
    outcome="i1",
    damaged="?",
    definite="?",
)
#: The place of one message in a queue. The times are of its first acknowledgement and delivery.
SLOT: Final = _row("queue queue_offset identity send_t ack_t read_t position broker_number")
#: A message that had to wait for its time, or for the end of its transaction.
WAITER: Final = _row(
    "identity send_t due outcome resolved resolved_t waiting_t ack_t read_t versions holders "
    "position_min held_position_min broker_number"
)
SUSPECT: Final = _row("identity")
#: A reading of a group and a queue, by the numbers of their names.
READING: Final = _row("group queue queue_offset t", said="i1")
#: A range of readings: faults within it, its ends, the spread of its values.
READ: Final = _row(
    "group queue part first last t_min t_max commit_min commit_max commit_t_min answer_t_min "
    "answer_t_max answer_max",
    odd="?",
    disorder="?",
    falls="?",
    early="?",
)
#: Doubts about all readings, and the highest offsets that were committed, and answered.
DOUBT: Final = _row("group queue commit_max answer_max", disorder="?", ahead="?", back="?")
#: A message that a group popped, and is through with, by an entry of a log.
LOGGED: Final = _row("group queue queue_offset pop_time")
#: A range of a queue: its ends, and the spread of its values.
QUEUE_RANGE: Final = _row(
    "queue rows doubtful offset_first offset_last position_first position_last send_t_max "
    "ack_t_min read_first read_last read_t_min read_t_max"
)


def rows_of(kind: np.dtype[Any], **columns: Any) -> Rows:
    """Rows of a type, from a value for each of its fields."""
    rows = np.empty(len(columns[kind.names[0]]) if kind.names else 0, kind)
    for name in kind.names or ():
        rows[name] = columns[name]
    return rows


def packed(rows: Rows) -> bytes:
    """The rows as a packet."""
    count, pieces = len(rows), [_COUNT.pack(len(rows))]
    for name in rows.dtype.names or () if count else ():
        column = rows[name].astype(np.int64)
        least = int(column.min())
        more = (column - least).view(np.uint64)  # what overflows comes right again
        width = (int(more.max()).bit_length() + 7) // 8
        width = next(fit for fit in _WIDTHS if width <= fit)
        pieces.append(_COLUMN.pack(least, width))
        pieces.append(more.astype(f"<u{width}").tobytes() if width else b"")
    return b"".join(pieces)


def unpacked(packet: bytes, kind: np.dtype[Any]) -> Rows:
    """The rows of a packet."""
    (count,), at = _COUNT.unpack_from(packet), _COUNT.size
    rows = np.empty(count, kind)
    for name in kind.names or () if count else ():
        least, width = _COLUMN.unpack_from(packet, at)
        at += _COLUMN.size
        more = np.frombuffer(packet, f"<u{width}", count, at) if width else np.uint64(0)
        rows[name] = (np.asarray(more, np.uint64) + np.uint64(least % 2**64)).view(np.int64)
        at += width * count
    return rows


def joined(packets: Iterable[bytes], kind: np.dtype[Any]) -> Rows:
    """The rows of all packets."""
    found = [unpacked(packet, kind) for packet in packets]
    return np.concatenate(found) if found else np.empty(0, kind)


def divided(rows: Rows, places: Numbers) -> Iterator[tuple[int, bytes]]:
    """Packets of the rows that go to the same place, with that place."""
    order = np.argsort(places, kind="stable")
    rows, places = np.take(rows, order), places[order]
    for start, end in pairwise([*run_starts(places).tolist(), len(rows)]):
        for at in range(start, end, PACKET_ROWS_MAX):
            yield int(places[start]), packed(rows[at : min(end, at + PACKET_ROWS_MAX)])


def run_starts(*columns: Numbers) -> Numbers:
    """Where a value differs from the one before it, in any of these columns; the first does."""
    first = np.zeros(len(columns[0]), np.bool_)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(first)


def to_arrow(rows: Rows) -> pa.RecordBatch:
    """The rows as columns of whole numbers, with null where there is no value."""
    names = rows.dtype.names or ()
    columns = [np.ascontiguousarray(rows[name], np.int64) for name in names]
    arrays = [pa.array(column, mask=column == NONE) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def from_arrow(batch: pa.RecordBatch, kind: np.dtype[Any]) -> Rows:
    """The rows of whole numbers."""
    columns = {name: numbers(batch[name]) for name in kind.names or ()}
    return rows_of(kind, **columns)


def numbers(column: pa.Array) -> Numbers:
    """Whole numbers, `NONE` where there is none."""
    whole = column.cast(pa.int64()).fill_null(NONE)
    found: Numbers = whole.to_numpy()
    return found


def ddl(kind: np.dtype[Any]) -> str:
    """The type as Spark's columns."""
    return ", ".join(f"{name} long" for name in kind.names or ())
