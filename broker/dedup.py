"""The dedup window: which appends are in the log already, so that a retry makes no second copy.

A producer that got no answer sends again, perhaps to the next leader. Its batch is known by the
topic and the unique key (UNIQ_KEY) of the first record. Every replica remembers the last
`DEDUP_ENTRIES_MAX` of them as they are applied, in log order, so all replicas agree on the window;
a leader looks here before it appends. What is remembered is only where the first copy lies: its
queue offsets are read from there in the rare case that they are asked for.

A message that a consumer sends back keeps its unique key, and each further try is a new message:
only first deliveries (reconsume times 0) are remembered.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker import limits


class FirstCopy(NamedTuple):
    """Where the body of the entry with the first copy lies: position and size in bytes."""

    position: int
    size: int


def dedup_key(topic: bytes, unique_key: bytes) -> bytes:
    """What an append is known by. The same unique key in another topic is another append."""
    key = topic + b"\0" + unique_key
    if len(key) <= limits.DEDUP_KEY_BYTES_MAX:
        return key
    return topic + b"\0" + hashlib.blake2b(unique_key, digest_size=32).digest()


class DedupWindow:
    """The last appends by key, the oldest forgotten beyond `entries_max`."""

    def __init__(self, entries_max: int = limits.DEDUP_ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._copies: OrderedDict[bytes, FirstCopy] = OrderedDict()

    def __len__(self) -> int:
        return len(self._copies)

    def get(self, key: bytes) -> FirstCopy | None:
        """The first copy of an append, if it is within the window."""
        return self._copies.get(key)

    def add(self, key: bytes, copy: FirstCopy) -> None:
        """Remember an append. The first copy of a key stays the first."""
        if self._copies.setdefault(key, copy) is copy and len(self._copies) > self._entries_max:
            self._copies.popitem(last=False)

    def items(self) -> Iterator[tuple[bytes, int, int]]:
        """(key, position, size), the oldest first: what a snapshot keeps."""
        return ((key, copy.position, copy.size) for key, copy in self._copies.items())

    def restore(self, items: Iterable[tuple[bytes, int, int]]) -> None:
        """Take over what a snapshot kept."""
        self._copies.clear()
        for key, position, size in items:
            self._copies[key] = FirstCopy(position, size)
