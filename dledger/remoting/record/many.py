"""Build the bytes of many records of one topic: alike but for body and key, or rows of columns.

One record, encoded as any other, is the pattern: what lies before its body and what lies behind it
are rows of two tables, in which sizes, checksums and keys are filled in column by column. What is
left for each message is its checksum and its part in one join.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from dledger.checksum import crc32
from dledger.errors import RecordError
from dledger.remoting.record.layout import (
    BODY_CRC_AT,
    BORN_TIMESTAMP_AT,
    CRC_MASK,
    I32,
    I64,
    QUEUE_ID_AT,
    SYS_FLAG_AT,
    U16,
    U32,
    body_at,
)

_U8 = npt.NDArray[np.uint8]
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_DIGIT_BITS = 4


def encode_many(
    pattern: bytes,
    bodies: Sequence[bytes],
    sys_flags: Sequence[int] | None,
    digits_at: int,
    numbers: range,
    digits: int,
) -> tuple[bytes, npt.NDArray[np.int64]]:
    """The records of `bodies`, one behind the other, and where each ends.

    `pattern` is the record of an empty body. From its byte `digits_at` on it has a number of so
    many hexadecimal digits, which in record i becomes numbers[i]. `sys_flags` are added to the
    pattern's. Raises RecordError if a body has another size than its len().
    """
    fronts, backs, sizes = _copies(pattern, bodies, 0)
    if sys_flags is not None:
        flag = U32.unpack_from(pattern, SYS_FLAG_AT)[0]
        _fill(fronts, SYS_FLAG_AT, U32, np.array(sys_flags, np.uint32) | flag)
    number = np.arange(numbers.start, numbers.stop, dtype=np.int64)
    for place in range(digits):
        shift = _DIGIT_BITS * (digits - 1 - place)
        backs[:, digits_at - body_at(pattern) + place] = _DIGITS[(number >> shift) & 0xF]
    return _joined(sizes, _items(fronts), bodies, _items(backs)), np.cumsum(sizes)


def encode_rows(
    pattern: bytes,
    bodies: Sequence[bytes],
    properties: Sequence[bytes],
    queue_ids: npt.NDArray[np.int64],
    born_timestamps_ms: npt.NDArray[np.int64],
) -> bytes:
    """The records of rows, one behind the other.

    `pattern` is the record of an empty body without properties. Raises RecordError if a body or
    properties have another size than their len().
    """
    properties_sizes = np.fromiter(map(len, properties), np.int64, len(bodies))
    fronts, backs, sizes = _copies(pattern, bodies, properties_sizes)
    _fill(fronts, QUEUE_ID_AT, I32, queue_ids)
    _fill(fronts, BORN_TIMESTAMP_AT, I64, born_timestamps_ms)
    _fill(backs, backs.shape[1] - U16.size, U16, properties_sizes)
    return _joined(sizes, _items(fronts), bodies, _items(backs), properties)


def _copies(
    pattern: bytes, bodies: Sequence[bytes], more_bytes: npt.NDArray[np.int64] | int
) -> tuple[_U8, _U8, npt.NDArray[np.int64]]:
    """The bytes before and behind each body, with its checksum and sizes, and the records' sizes:
    `more_bytes` than those of pattern and body."""
    at, count = body_at(pattern), len(bodies)
    body_sizes = np.fromiter(map(len, bodies), np.int64, count)
    sizes = body_sizes + more_bytes + len(pattern)
    fronts, backs = _rows(pattern[:at], count), _rows(pattern[at:], count)
    _fill(fronts, 0, U32, sizes)
    crcs = np.fromiter(map(crc32, bodies), np.uint32, count)
    _fill(fronts, BODY_CRC_AT, U32, crcs & CRC_MASK)
    _fill(fronts, at - U32.size, U32, body_sizes)
    return fronts, backs, sizes


def _joined(sizes: npt.NDArray[np.int64], *columns: Sequence[bytes]) -> bytes:
    records = b"".join(chain.from_iterable(zip(*columns, strict=True)))
    if len(records) != sizes.sum():
        raise RecordError(f"records of {len(records)} bytes, not of {sizes.sum()} as they say")
    return records


def _rows(pattern: bytes, count: int) -> _U8:
    return np.tile(np.frombuffer(pattern, np.uint8), (count, 1))


def _fill(rows: _U8, at: int, kind: struct.Struct, values: npt.NDArray[np.integer]) -> None:
    """Write a column of numbers."""
    column = values.astype(kind.format).view(np.uint8)
    rows[:, at : at + kind.size] = column.reshape(-1, kind.size)


def _items(rows: _U8) -> list[bytes]:
    """Rows of a two-dimensional array, as bytes."""
    items: list[bytes] = rows.view(f"V{rows.shape[1]}").ravel().tolist()
    return items
