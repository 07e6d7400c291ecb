"""A picture of the state, piece by piece: what a snapshot's payload is made of. Pure.

A picture is taken in two parts. First, while nothing is applied, every table hands over what nobody
changes any more: flat copies of its dictionaries and arrays, which cost little (`Fields`). Then,
while entries are applied again, these are made into rows and encoded, a few hundred at a time. The
bytes are those that msgspec makes of `mqbroker.state.saved.snapshot.State` in one go, so a picture
of one state is the same on every replica, and any version reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

ROWS_AT_ONCE: Final = 256
_encoder: Final = msgspec.msgpack.Encoder()
T = TypeVar("T")


def batched(items: Iterable[T], count: int = ROWS_AT_ONCE) -> Iterator[list[T]]:
    """The items, so many at a time."""
    left = iter(items)
    while some := list(islice(left, count)):
        yield some


class Encoded(Protocol):
    """A value that encodes itself, in pieces."""

    def pieces(self) -> Iterator[bytes]:
        """The rows' msgpack, in pieces. An empty piece stands for work that has no result yet."""


#: A picture's part of each field of the state: a value that nobody changes, or `Encoded`.
Fields: TypeAlias = dict[str, object]


class Rows:
    """`count` rows, as an array; each is made when it is encoded."""

    def __init__(self, count: int, rows: Callable[[], Iterable[object]]) -> None:
        self._count = count
        self._rows = rows

    def pieces(self) -> Iterator[bytes]:
        """The array's header, then its rows."""
        yield array_header(self._count)
        for some in batched(self._rows()):
            yield _encoder.encode(some)[len(array_header(len(some))) :]


def rows_of(rows: list[T]) -> Rows:
    """The rows of a list that nobody changes."""
    return Rows(len(rows), lambda: rows)


class Pairs:
    """A large dictionary that nobody changes. Its values may be long: a piece has few of them."""

    def __init__(self, values: Mapping[str, object], at_once: int = 16) -> None:
        self._values = values
        self._at_once = at_once

    def pieces(self) -> Iterator[bytes]:
        """The map's header, then its pairs."""
        yield _header(len(self._values), 0x80, 0xDE)
        for some in batched(self._values.items(), self._at_once):
            yield _encoder.encode(dict(some))[len(_header(len(some), 0x80, 0xDE)) :]


class Joined:
    """Values that follow one another, as an array."""

    def __init__(self, *values: Encoded) -> None:
        self._values = values

    def pieces(self) -> Iterator[bytes]:
        """The array's header, then the values."""
        yield array_header(len(self._values))
        for value in self._values:
            yield from value.pieces()


class Bytes:
    """`size` bytes, in parts that are made when they are encoded."""

    def __init__(self, size: int, parts: Callable[[], Iterable[bytes]]) -> None:
        self._size = size
        self._parts = parts

    def pieces(self) -> Iterator[bytes]:
        """The tables' header, then the parts."""
        if self._size < 1 << 8:
            yield struct.pack(">BB", 0xC4, self._size)
        elif self._size < 1 << 16:
            yield struct.pack(">BH", 0xC5, self._size)
        else:
            yield struct.pack(">BI", 0xC6, self._size)
        yield from self._parts()


def encoded(names: Iterable[str], fields: Fields) -> Iterator[bytes]:
    """The payload, in pieces: the fields that there are, in the order of their names here."""
    here = [name for name in names if name in fields]
    yield _header(len(here), 0x80, 0xDE)
    for name in here:
        value = fields[name]
        yield _encoder.encode(name)
        if isinstance(value, Rows | Pairs | Joined | Bytes):
            yield from value.pieces()
        else:
            yield _encoder.encode(value)


def array_header(count: int) -> bytes:
    """The bytes before an array of this many values."""
    return _header(count, 0x90, 0xDC)


def _header(count: int, short: int, long: int) -> bytes:
    if count < 16:
        return bytes([short | count])
    if count < 1 << 16:
        return struct.pack(">BH", long, count)
    return struct.pack(">BI", long + 1, count)
