"""Properties of an entry's records, as queues, key index and dedup window need them. Pure.

A record's properties are a string: NAME 0x01 value 0x02, again and again. Tags, keys and the end of
a message's life are looked for record by record, but only where the entry has such a name at all.
Every message of a client has a unique key, nearly always of one length and behind the same bytes:
then the unique keys of all records are read at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dledger.limits import KEYS_PER_MESSAGE_MAX
from dledger.remoting.message import DLQ_PREFIX, EXPIRES_AT_MS, KEYS, TAGS, UNIQ_KEY, tags_code
from dledger.remoting.record.columns import overlay
from mqbroker import limits
from mqbroker.state.dedup import dedup_key, dedup_keys
from mqbroker.state.derived.keys import Key, Keys, hashes_of, key_hashes, key_units

TAGS_NAME: Final = TAGS.encode() + b"\x01"
UNIQUE_NAME: Final = UNIQ_KEY.encode() + b"\x01"
_EXPIRES_NAME: Final = EXPIRES_AT_MS.encode() + b"\x01"
KEYS_NAME: Final = KEYS.encode() + b"\x01"
_DLQ_PREFIX: Final = DLQ_PREFIX.encode()
_END: Final = 0x02
"""Behind each value. Smaller bytes separate, too."""
_JAVA_BASE: Final = 31
"""The base of String.hashCode."""
_JAVA_BASE_INVERSE: Final = pow(_JAVA_BASE, -1, 1 << 32)

Places = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint8]


class Said(NamedTuple):
    """The values that the properties of some records give."""

    tags_codes: Places
    """The tags codes of all records."""
    ends_ms: Sequence[tuple[int, int]]
    """The numbers of the records that expire, and when."""
    keys: Keys
    """The keys for the key index."""


class Properties:
    """The properties of some records of one topic, back to back."""

    def __init__(self, body: memoryview, begins: Places, ends: Places, topic: bytes) -> None:
        """Properties of the records in `body` that lie from `begins` to `ends`."""
        self._topic = topic
        self._widths = widths = ends - begins
        width = int(widths[0])
        if (widths == width).all():
            rows = np.full((len(widths), width + 1), _END, np.uint8)
            if width:
                rows[:, 1:] = _rows(body, begins, width)
            text = rows.tobytes()
        else:
            places = zip(begins.tolist(), ends.tolist(), strict=True)
            text = b"\x02" + b"\x02".join([body[begin:end] for begin, end in places])
        #: An end stands before each record's properties, and behind the last one's.
        self._text = text + b"\x02"
        self._ends = np.cumsum(widths + 1)
        self._unique = self._unique_keys()

    def read(self, positions: Places) -> Said:
        """The values of these properties; `positions` are those of their records in the log."""
        codes = np.zeros(len(positions), np.int64)
        numbers, tags = self._values(TAGS_NAME)
        if tags:
            codes[numbers] = codes_of_tags(tags)
        return Said(codes, self._ends_ms(), self._keys(positions))

    def _ends_ms(self) -> list[tuple[int, int]]:
        if self._topic.startswith(_DLQ_PREFIX):
            return []
        numbers, times = self._values(_EXPIRES_NAME)
        return [
            (number, int(time))
            for number, time in zip(numbers, times, strict=True)
            if len(time) <= limits.TIME_DIGITS_MAX and time.isdigit()
        ]

    def _keys(self, positions: Places) -> Keys:
        """The unique keys and those of KEYS, in the order of the records."""
        numbers, several = self._values(KEYS_NAME)
        if self._unique is not None and not several:
            return [key_units(key_hashes(self._topic, self._unique), positions)]
        owners, unique = self._values(UNIQUE_NAME)
        words: list[Collection[bytes]]
        if b" " in b"".join(several):
            words = [dict.fromkeys(value.split(b" ")) for value in several]
            for number, some in enumerate(words):
                if len(some) > KEYS_PER_MESSAGE_MAX or b"" in some:
                    words[number] = words_of(several[number])
        else:
            words = [(value,) for value in several]
        owner = np.array([*owners, *numbers], np.int64)
        owner = np.repeat(owner, [*[1] * len(owners), *map(len, words)])
        order = np.argsort(owner, kind="stable")
        hashes = hashes_of(self._topic, [*unique, *chain.from_iterable(words)])
        return [key_units(hashes[order], positions[owner[order]])]

    def words_of_keys(self) -> int:
        """How many words there are in all KEYS, at most."""
        _, several = self._values(KEYS_NAME)
        return sum(value.count(b" ") + 1 for value in several)

    def dedup_keys(self) -> Sequence[bytes | None]:
        """Each record's key for the dedup window; None for one without a unique key."""
        if self._unique is not None:
            return dedup_keys(self._topic, self._unique)
        keys: list[bytes | None] = [None] * len(self._widths)
        for number, value in zip(*self._values(UNIQUE_NAME), strict=True):
            keys[number] = dedup_key(self._topic, value)
        return keys

    def _values(self, name: bytes) -> tuple[list[int], list[bytes]]:
        """The numbers of the records that say a property first as something, and what they say."""
        named = b"\x02" + name
        before, *pieces = self._text.split(named, len(self._widths))
        if not pieces:
            return [], []
        places = np.cumsum([len(before), *map(len, pieces[:-1])])
        places += len(named) * np.arange(len(pieces))
        numbers = np.searchsorted(self._ends, places, side="right")
        if (numbers[1:] == numbers[:-1]).any():
            return _not_empty(*self._first_values(named))
        return _not_empty(numbers.tolist(), [piece.partition(b"\x02")[0] for piece in pieces])

    def _first_values(self, named: bytes) -> tuple[list[int], list[bytes]]:
        """The first value of each record where one says the property again; it may be empty. Each
        record is looked at by itself, which takes twice as long."""
        text, find, ends = self._text, self._text.find, self._ends.tolist()
        found = [find(named, begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
        numbers = [number for number, at in enumerate(found) if at >= 0]
        begins = [at + len(named) for at in found if at >= 0]
        return numbers, [text[begin : find(_END, begin)] for begin in begins]

    def _unique_keys(self) -> Rows | None:
        """The unique keys as rows, if all have the length of the first, behind the same bytes.

        Bytes that are the same up to the end of the name leave no other place where it could
        stand before.
        """
        text, first_end = self._text, int(self._widths[0]) + 1
        name_at = _find(text, UNIQUE_NAME, 1, first_end)
        begin = name_at + len(UNIQUE_NAME)
        end = text.find(_END, begin, first_end)
        if name_at < 0 or end <= begin or int(self._widths.min()) < end:
            return None
        rows = _rows(text, self._ends - self._widths - 1, end + 1)
        unique = rows[:, begin:end]
        alike = (
            (rows[:, :begin] == rows[0, :begin]).all()
            and (rows[:, end] == _END).all()
            and (unique > _END).all()
        )
        return unique if alike else None


def _not_empty(numbers: list[int], values: list[bytes]) -> tuple[list[int], list[bytes]]:
    """The records whose value is not empty, and their values."""
    if b"" in values:
        numbers = [number for number, value in zip(numbers, values, strict=True) if value]
        values = [*filter(None, values)]
    return numbers, values


def _rows(data: memoryview | bytes, begins: Places, width: int) -> Rows:
    """The `width` bytes from each beginning on."""
    rows: Rows = overlay(data, f"V{width}")[begins].view(np.uint8)
    return rows.reshape(len(begins), width)


def keys_of(topic: bytes, unique_key: bytes | None, properties: bytes, position: int) -> list[Key]:
    """The keys of one record: its unique key, and those of KEYS."""
    keys = [Key(topic, unique_key, position)] if unique_key else []
    words = value_in(properties, KEYS_NAME)
    if words:
        keys += [Key(topic, word, position) for word in words_of(words)]
    return keys


def words_of(keys: bytes) -> list[bytes]:
    """The first keys of a message's KEYS, between which RocketMQ has a blank."""
    distinct = dict.fromkeys(keys.split(b" "))
    distinct.pop(b"", None)
    return [*islice(distinct, KEYS_PER_MESSAGE_MAX)]


def value_in(properties: bytes, name: bytes) -> bytes | None:
    """The value of a property in a properties string; `name` ends in 0x01."""
    at = properties.find(name)
    if at > 0 and properties[at - 1] != _END:
        at = _find(properties, name, 0, len(properties))
    if at < 0:
        return None
    end = properties.find(_END, at)
    return properties[at + len(name) : end if end >= 0 else None]


def _find(data: bytes, name: bytes, begin: int, end: int) -> int:
    """Where a property begins, or a negative number."""
    at = data.find(name, begin, end)
    while at > begin and data[at - 1] != _END:  # the end of a longer name, or in a value
        at = data.find(name, at + 1, end)
    return at


def expires_in(topic: bytes, properties: bytes) -> int | None:
    """When one record expires; None for never. Dead letters don't, nor does what says no time."""
    value = value_in(properties, _EXPIRES_NAME)
    if value is None or topic.startswith(_DLQ_PREFIX):
        return None
    return int(value) if value.isdigit() and len(value) <= limits.TIME_DIGITS_MAX else None


@lru_cache(maxsize=1024)
def code_of_tags(tag: bytes | None) -> int:
    """The tags code of a property's value."""
    return tags_code(tag.decode(errors="replace")) if tag else 0  # as Java reads it


def _inverses(odd: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The inverses of odd numbers modulo 2^32, by Newton's method: a step doubles the bits that are
    right, and an odd number is its own inverse modulo 8."""
    inverses = odd.copy()
    for _ in range(4):
        inverses *= 2 - odd * inverses
    return inverses


def codes_of_tags(tags: Sequence[bytes]) -> Sequence[int]:
    """The tags codes of many values that are not empty and have no end."""
    distinct = [*dict.fromkeys(tags)]
    if sum(map(len, distinct)) <= limits.TAGS_ONE_BY_ONE_BYTES_MAX:
        return [code_of_tags(tag) for tag in tags]
    text = (b"\x02".join(distinct) + b"\x02").decode(errors="replace")
    units = np.frombuffer(text.encode("utf-16-le"), "<u2").astype(np.uint32)
    ends = np.flatnonzero(units == _END)
    begins = np.concatenate(([0], ends[:-1] + 1))
    units[ends] = 0
    # Java's h = 31 * h + unit is a sum: of each unit times 31 to the number of units behind it.
    # That is 31 to the end's place, divided by 31 to the unit's place. All is modulo 2^32, where 31
    # has an inverse, so that one column of powers serves all tags.
    powers = np.full(len(units), _JAVA_BASE_INVERSE, np.uint32)
    units *= np.cumprod(powers, dtype=np.uint32, out=powers)
    codes = np.add.reduceat(units, begins, dtype=np.uint32)
    codes *= _inverses(powers[ends - 1])
    by_tag = dict(zip(distinct, codes.view(np.int32).tolist(), strict=True))
    return [by_tag[tag] for tag in tags]
