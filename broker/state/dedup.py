"""The dedup window: which appends are in the log already, so that a retry makes no second copy.

A producer that got no answer sends again, perhaps to the next leader. Its batch is known by the
topic and the unique key (UNIQ_KEY) of the first record. Every replica remembers the last
`DEDUP_ENTRIES_MAX` of them as they are applied, in log order, so all replicas agree on the window;
a leader looks here before it appends. What is remembered is only where the first copy lies: its
queue offsets are read from there in the rare case that they are asked for.

The window is a row of chunks, each a dict of `DEDUP_CHUNK_ENTRIES`. Chunks but the last don't
change any more: they are encoded for snapshots once, and forgotten as a whole.

A message that a consumer sends back keeps its unique key, and each further try is a new message:
only first deliveries (reconsume times 0) are remembered.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

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


class _Chunk:
    """Appends that follow one another in the log: key -> (position, size)."""

    __slots__ = ("copies", "encoded")

    def __init__(self, copies: dict[bytes, tuple[int, int]]) -> None:
        self.copies = copies
        self.encoded: bytes | None = None


_decoder: Final = msgspec.msgpack.Decoder(dict[bytes, tuple[int, int]])


class DedupWindow:
    """The last appends by key: at least `entries_max`, and less than one chunk more."""

    def __init__(
        self,
        entries_max: int = limits.DEDUP_ENTRIES_MAX,
        chunk_entries: int = limits.DEDUP_CHUNK_ENTRIES,
    ) -> None:
        self._chunk_entries = chunk_entries
        self._chunks_max = entries_max // chunk_entries + 1
        self._chunks = deque([_Chunk({})])
        #: Where the log begins: a copy before it is gone, and so is what is known of it.
        self.first_position = 0

    def __len__(self) -> int:
        return sum(len(chunk.copies) for chunk in self._chunks)

    def get(self, key: bytes) -> FirstCopy | None:
        """The first copy of an append, if it is within the window."""
        for chunk in self._chunks:
            copy = chunk.copies.get(key)
            if copy is not None and copy[0] >= self.first_position:
                return FirstCopy(*copy)
        return None

    def add(self, key: bytes, copy: FirstCopy) -> None:
        """Remember an append. The first copy of a key stays the first."""
        if len(self._chunks[-1].copies) >= self._chunk_entries:
            self._chunks.append(_Chunk({}))
            if len(self._chunks) > self._chunks_max:
                self._chunks.popleft()
        copies = self._chunks[-1].copies
        if copies.setdefault(key, copy)[0] < self.first_position:
            copies[key] = copy

    def dump(self) -> list[bytes]:
        """What a snapshot keeps: the chunks, the oldest first."""
        *full, last = self._chunks
        for chunk in full:
            if chunk.encoded is None:
                chunk.encoded = msgspec.msgpack.encode(chunk.copies)
        encoded = [chunk.encoded for chunk in full if chunk.encoded is not None]
        return [*encoded, msgspec.msgpack.encode(last.copies)]

    def restore(self, chunks: Sequence[bytes]) -> None:
        """Take over what a snapshot kept."""
        self._chunks = deque(_Chunk(_decoder.decode(chunk)) for chunk in chunks or [b"\x80"])
