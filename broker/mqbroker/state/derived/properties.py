"""What the properties of an entry's records say to queues, key index and dedup window. Pure.

A record's properties are a string: NAME 0x01 value 0x02, again and again. Tags, keys and the end of
a message's life are looked for record by record, but only where the entry has such a name at all.
Every message of a client has a unique key, nearly always of one length and behind the same bytes:
then the unique keys of all records are read at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dledger.limits import KEYS_PER_MESSAGE_MAX
from dledger.remoting.message import DLQ_PREFIX, EXPIRES_AT_MS, KEYS, TAGS, UNIQ_KEY, tags_code
from dledger.remoting.record.columns import overlay
from mqbroker import limits
from mqbroker.state.dedup import dedup_key, dedup_keys
from mqbroker.state.derived.keys import Key, Keys, key_hashes, key_units

TAGS_NAME: Final = TAGS.encode() + b"\x01"
UNIQUE_NAME: Final = UNIQ_KEY.encode() + b"\x01"
_EXPIRES_NAME: Final = EXPIRES_AT_MS.encode() + b"\x01"
_KEYS_NAME: Final = KEYS.encode() + b"\x01"
_DLQ_PREFIX: Final = DLQ_PREFIX.encode()
_END: Final = 0x02
"""Behind each value. Smaller bytes separate, too."""

Places = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint8]


class Said(NamedTuple):
    """What the properties of some records say."""

    tags_codes: Sequence[int] | int
    """Of all records, or one for all."""
    ends_ms: Sequence[tuple[int, int]]
    """The numbers of the records that expire, and when."""
    keys: Keys
    """For the key index."""


class Properties:
    """The properties of some records of one topic, back to back."""

    def __init__(self, body: memoryview, begins: Places, ends: Places, topic: bytes) -> None:
        """Those of the records in `body` that lie from `begins` to `ends`."""
        self._topic = topic
        widths = ends - begins
        self._widths = widths
        self._stops = np.cumsum(widths)
        width = int(widths[0])
        if width and (widths == width).all():
            self._text = _rows(body, begins, width).tobytes()
        else:
            places = zip(begins.tolist(), ends.tolist(), strict=True)
            self._text = b"".join([body[begin:end] for begin, end in places])
        self._unique = self._unique_keys()

    def read(self, positions: Places) -> Said:
        """What they say; `positions` are those of their records in the log."""
        text, unique = self._text, self._unique
        if unique is not None and _KEYS_NAME not in text:
            keys: Keys = [key_units(key_hashes(self._topic, unique), positions)]
        else:
            keys = [
                key
                for (begin, end), position in zip(self._spans(), positions.tolist(), strict=True)
                for key in keys_in(self._topic, text, begin, end, position)
            ]
        codes: Sequence[int] | int = 0
        if TAGS_NAME in text:
            codes = [
                code_of_tags(value_in(text, TAGS_NAME, begin, end)) for begin, end in self._spans()
            ]
        ends_ms: list[tuple[int, int]] = []
        if _EXPIRES_NAME in text:
            for number, (begin, end) in enumerate(self._spans()):
                expires_ms = expires_in(self._topic, text, begin, end)
                if expires_ms is not None:
                    ends_ms.append((number, expires_ms))
        return Said(codes, ends_ms, keys)

    def dedup_keys(self) -> Sequence[bytes | None]:
        """Each record's key for the dedup window; None for one without a unique key."""
        if self._unique is not None:
            return dedup_keys(self._topic, self._unique)
        values = (value_in(self._text, UNIQUE_NAME, begin, end) for begin, end in self._spans())
        return [dedup_key(self._topic, value) if value else None for value in values]

    def _spans(self) -> list[tuple[int, int]]:
        """Where each record's properties begin and end in the text."""
        stops = self._stops.tolist()
        return list(zip([0, *stops], stops, strict=False))

    def _unique_keys(self) -> Rows | None:
        """The unique keys as rows, if all have the length of the first, behind the same bytes.

        Bytes that are the same up to the end of the name leave no other place where it could
        stand before.
        """
        text, first_end = self._text, int(self._widths[0])
        name_at = _find(text, UNIQUE_NAME, 0, first_end)
        begin = name_at + len(UNIQUE_NAME)
        end = text.find(_END, begin, first_end)
        if name_at < 0 or end <= begin or int(self._widths.min()) <= end:
            return None
        rows = _rows(text, self._stops - self._widths, end + 1)
        unique = rows[:, begin:end]
        alike = (
            (rows[:, :begin] == rows[0, :begin]).all()
            and (rows[:, end] == _END).all()
            and (unique > _END).all()
        )
        return unique if alike else None


def _rows(data: memoryview | bytes, begins: Places, width: int) -> Rows:
    """The `width` bytes from each beginning on."""
    rows: Rows = overlay(data, f"V{width}")[begins].view(np.uint8)
    return rows.reshape(len(begins), width)


def keys_in(topic: bytes, data: bytes, begin: int, end: int, position: int) -> list[Key]:
    """One record's keys: the unique one, and those of KEYS, between which RocketMQ has a blank."""
    unique_key = value_in(data, UNIQUE_NAME, begin, end)
    words = value_in(data, _KEYS_NAME, begin, end) or b""
    keys = [Key(topic, unique_key, position)] if unique_key else []
    distinct = dict.fromkeys(filter(None, words.split(b" ")))
    keys += [Key(topic, word, position) for word in islice(distinct, KEYS_PER_MESSAGE_MAX)]
    return keys


def value_in(data: bytes, name: bytes, begin: int, end: int) -> bytes | None:
    """The value of a property in the properties string data[begin:end]; `name` ends in 0x01."""
    at = _find(data, name, begin, end)
    if at < 0:
        return None
    value_end = data.find(_END, at, end)
    return data[at + len(name) : value_end if value_end >= 0 else end]


def _find(data: bytes, name: bytes, begin: int, end: int) -> int:
    """Where a property begins, or a negative number."""
    at = data.find(name, begin, end)
    while at > begin and data[at - 1] != _END:  # the end of a longer name, or in a value
        at = data.find(name, at + 1, end)
    return at


def expires_in(topic: bytes, data: bytes, begin: int, end: int) -> int | None:
    """When one record expires; None for never. Dead letters don't, nor does what says no time."""
    value = value_in(data, _EXPIRES_NAME, begin, end)
    if value is None or topic.startswith(_DLQ_PREFIX):
        return None
    return int(value) if value.isdigit() and len(value) <= limits.TIME_DIGITS_MAX else None


@lru_cache(maxsize=1024)
def code_of_tags(tag: bytes | None) -> int:
    """The tags code of a property's value."""
    return tags_code(tag.decode(errors="replace")) if tag else 0  # as Java reads it
