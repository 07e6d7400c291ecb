"""The appends of a leader that are in its log and wait until they are committed and applied. Pure.

Each is answered once: with its place when it is applied here, or with OutcomeUnknown when this node
leads no longer. Then a later leader may still commit it, or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from dledger import limits
from dledger.errors import AppendError, Busy, OutcomeUnknown
from dledger.log.entry import HEADER_BYTES, Entry
from dledger.raft.limits import BUSY_RETRY_AFTER_S


class Appended(msgspec.Struct, frozen=True, gc=False):
    """A committed append: its place in the log, and what `apply` returned."""

    index: int
    term: int
    position: int
    result: object

    @property
    def body_position(self) -> int:
        """The position of the body's first byte."""
        return self.position + HEADER_BYTES


OnDone = Callable[[Appended | AppendError], None]


class _Append(NamedTuple):
    size_bytes: int
    on_done: OnDone


class PendingAppends:
    """Pending appends by their index in the log; bounded in number and in bytes."""

    def __init__(self) -> None:
        self._by_index: dict[int, _Append] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_index)

    def check_room(self, size_bytes: int) -> None:
        """Raise Busy if another one of this size is too much."""
        count = len(self._by_index)
        if count >= limits.APPENDS_PENDING_MAX:
            raise Busy(f"{count} appends are pending", BUSY_RETRY_AFTER_S)
        if self._bytes + size_bytes > limits.APPENDS_PENDING_BYTES_MAX:
            raise Busy(f"{self._bytes} bytes of appends are pending", BUSY_RETRY_AFTER_S)

    def add(self, index: int, size_bytes: int, on_done: OnDone) -> None:
        """Note an append that is in the log."""
        self._by_index[index] = _Append(size_bytes, on_done)
        self._bytes += size_bytes

    def applied(self, entry: Entry, result: object) -> bool:
        """Answer the append that made an entry; False if none of this node's did."""
        append = self._by_index.pop(entry.index, None)
        if append is None:
            return False
        self._bytes -= append.size_bytes
        append.on_done(Appended(entry.index, entry.term, entry.position, result))
        return True

    def give_up(self) -> None:
        """Give up all appends under way, as this node leads no longer."""
        given_up, self._by_index = self._by_index, {}
        self._bytes = 0
        for append in given_up.values():
            append.on_done(OutcomeUnknown("leadership was lost before the entry was committed"))
