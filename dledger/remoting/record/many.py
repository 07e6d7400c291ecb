"""Build the bytes of many records of one topic: alike but for body and key, or rows of columns.

One record, encoded as any other, is the pattern: what lies before its body and what lies behind it
are rows of two tables, in which sizes, checksums and keys are filled in column by column. What is
left for each message is its checksum and its part in one join.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from dledger.checksum import crc32
from dledger.errors import RecordError
from dledger.remoting.record.layout import (
    BODY_AT,
    BODY_CRC_AT,
    BODY_LENGTH_AT,
    BORN_HOST_IPV6,
    BORN_TIMESTAMP_AT,
    CRC_MASK,
    HOST_IPV6_EXTRA_BYTES,
    QUEUE_ID_AT,
    SYS_FLAG_AT,
    SYS_FLAG_LOW_BYTE_AT,
    U16,
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
    extra = HOST_IPV6_EXTRA_BYTES if pattern[SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6 else 0
    body_at = BODY_AT + extra
    sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
    crcs = np.fromiter(map(crc32, bodies), np.uint32, len(bodies)) & CRC_MASK
    fronts = _rows(pattern[:body_at], len(bodies))
    backs = _rows(pattern[body_at:], len(bodies))
    _fill(fronts, 0, sizes + len(pattern))
    _fill(fronts, BODY_CRC_AT, crcs)
    _fill(fronts, BODY_LENGTH_AT + extra, sizes)
    if sys_flags is not None:
        flag = int.from_bytes(pattern[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
        _fill(fronts, SYS_FLAG_AT, np.array(sys_flags, np.uint32) | flag)
    number = np.arange(numbers.start, numbers.stop, dtype=np.int64)
    for place in range(digits):
        shift = _DIGIT_BITS * (digits - 1 - place)
        backs[:, digits_at - body_at + place] = _DIGITS[(number >> shift) & 0xF]
    pieces = chain.from_iterable(zip(_items(fronts), bodies, _items(backs), strict=True))
    ends: npt.NDArray[np.int64] = np.cumsum(sizes + len(pattern))
    records = b"".join(pieces)
    if len(records) != ends[-1]:
        raise RecordError(f"bodies of {len(records)} bytes in all, not of {ends[-1]} as they say")
    return records, ends


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
    extra = HOST_IPV6_EXTRA_BYTES if pattern[SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6 else 0
    body_at, count = BODY_AT + extra, len(bodies)
    body_sizes = np.fromiter(map(len, bodies), np.int64, count)
    properties_sizes = np.fromiter(map(len, properties), np.int64, count)
    sizes = body_sizes + properties_sizes + len(pattern)
    crcs = np.fromiter(map(crc32, bodies), np.uint32, count) & CRC_MASK
    fronts, backs = _rows(pattern[:body_at], count), _rows(pattern[body_at:], count)
    _fill(fronts, 0, sizes)
    _fill(fronts, BODY_CRC_AT, crcs)
    _fill(fronts, QUEUE_ID_AT, queue_ids)
    _fill(fronts, BODY_LENGTH_AT + extra, body_sizes)
    born = born_timestamps_ms.astype(">i8").view(np.uint8).reshape(-1, 8)
    fronts[:, BORN_TIMESTAMP_AT : BORN_TIMESTAMP_AT + 8] = born
    backs[:, -U16.size :] = properties_sizes.astype(">u2").view(np.uint8).reshape(-1, U16.size)
    pieces = zip(_items(fronts), bodies, _items(backs), properties, strict=True)
    records = b"".join(chain.from_iterable(pieces))
    if len(records) != sizes.sum():
        raise RecordError(f"rows of {len(records)} bytes in all, not of {sizes.sum()} as they say")
    return records


def _rows(pattern: bytes, count: int) -> _U8:
    return np.tile(np.frombuffer(pattern, np.uint8), (count, 1))


def _fill(rows: _U8, at: int, values: npt.NDArray[np.integer]) -> None:
    """Write a column of 32-bit numbers."""
    rows[:, at : at + 4] = values.astype(">u4").view(np.uint8).reshape(-1, 4)


def _items(rows: _U8) -> list[bytes]:
    """Each row's bytes."""
    items: list[bytes] = rows.view(f"V{rows.shape[1]}").ravel().tolist()
    return items
