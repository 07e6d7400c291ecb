"""Entries that are set aside: they are committed, but the state can't take their content. Pure.

An entry is applied as a whole or not at all. An entry that no leader writes (bytes that are no
records, messages for an offset that is not the queue's next one, a move of a message that does not
wait) is only noted in this book. Every replica decides by the entry and the state before it alone.
So all set the same entries aside, also at a restart and when they rebuild their queues. The group
goes on serving. Operators are shown the book, since each line of it means a fault of a broker or
its disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import msgspec

from dledger.buffers import Buffer
from dledger.errors import DledgerError
from mqbroker import limits

#: (index, reason), as a snapshot keeps it.
AsideRow: TypeAlias = tuple[int, str]
NoteT = TypeVar("NoteT")


class Unusable(DledgerError):
    """Why an entry is set aside. The text is part of the replicated state."""


def encode_note(note: msgspec.Struct) -> bytes:
    """The body of a note's record: what an entry of messages does beside storing them."""
    return msgspec.msgpack.encode(note)


def decoded(body: Buffer, kind: type[NoteT], problem: str) -> NoteT:
    """A note that a leader has written. Raises Unusable with the `problem` for bytes that are no
    such note."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(problem) from error


@dataclass(frozen=True, slots=True)
class SetAside:
    """The result of applying such an entry."""

    index: int
    reason: str


class AsideBook:
    """The entries that were set aside, with the reasons for the last ones."""

    def __init__(self) -> None:
        #: How many there were in all.
        self.count = 0
        #: The last ones, the newest last.
        self.last: deque[AsideRow] = deque(maxlen=limits.ASIDE_REASONS_KEPT)
        self._indexes: dict[int, None] = {}

    def __contains__(self, index: int) -> bool:
        return index in self._indexes

    def add(self, index: int, reason: str) -> SetAside:
        """Note an entry, which must follow all that are noted."""
        self.count += 1
        reason = reason[: limits.ASIDE_REASON_CHARACTERS_MAX]
        self.last.append((index, reason))
        self._indexes[index] = None
        if len(self._indexes) > limits.ASIDE_INDEXES_KEPT:
            del self._indexes[next(iter(self._indexes))]
        return SetAside(index, reason)

    def forget_before(self, index: int) -> None:
        """The log begins with the entry `index` now: those before it are never read again."""
        self._indexes = {kept: None for kept in self._indexes if kept >= index}

    def dump(self) -> tuple[int, list[AsideRow], list[int]]:
        """The rows for a snapshot."""
        return self.count, list(self.last), list(self._indexes)

    def restore(self, count: int, last: Iterable[AsideRow], indexes: Iterable[int]) -> None:
        """Take over what a snapshot kept."""
        self.count = count
        self.last.clear()
        self.last.extend(last)
        self._indexes = dict.fromkeys(indexes)
