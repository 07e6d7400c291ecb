"""The dedup window: which appends are in the log, so that a retry makes no second copy. Pure.

A producer that got no answer sends again, perhaps to the next leader. Its batch is identified by
the topic and the unique key (UNIQ_KEY) of the first record. Where sends share an entry, batches
among them, each record counts as one, since nothing tells where a batch ends. Every replica
remembers the last `DEDUP_ENTRIES_MAX` of them as they are applied, in log order, so all replicas
agree on the window; a leader looks here before it appends. Only the places of copies are
remembered; their content and queue offsets are read from the log in the rare case that they are
needed.

A key may come again: stock clients give one to a message object, and an application may send the
object many times. A retry of our own producers is answered with the first copy of its key. A retry
of a stock client repeats its last send, so it is compared with the newest copy
(`mqbroker.leader.appending.resends`).

The window is a row of chunks, each with up to `DEDUP_CHUNK_ENTRIES` keys. Only the last one
changes: the others are encoded for snapshots once, and dropped as a whole.

A message that a consumer sends back keeps its unique key, and each further try is a new message:
only first deliveries (reconsume times 0) are remembered.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from mqbroker import limits
from mqbroker.state.rows.picture import Rows


class StoredCopy(NamedTuple):
    """Where the body of the entry with a copy lies: position and size in bytes."""

    position: int
    size: int


def dedup_key(topic: bytes, unique_key: bytes) -> bytes:
    """The key that identifies an append. The same unique key in another topic is another append."""
    key = topic + b"\0" + unique_key
    if len(key) <= limits.DEDUP_KEY_BYTES_MAX:
        return key
    return topic + b"\0" + hashlib.blake2b(unique_key, digest_size=32).digest()


def dedup_keys(topic: bytes, unique_keys: npt.NDArray[np.uint8]) -> list[bytes]:
    """The keys for many unique keys of one length, a row of bytes each. None has a NUL byte."""
    count, width = unique_keys.shape
    front = topic + b"\0"
    if len(front) + width > limits.DEDUP_KEY_BYTES_MAX:
        return [dedup_key(topic, row.tobytes()) for row in unique_keys]
    keys = np.empty((count, len(front) + width), np.uint8)
    keys[:, : len(front)] = np.frombuffer(front, np.uint8)
    keys[:, len(front) :] = unique_keys
    listed: list[bytes] = keys.view(f"V{keys.shape[1]}").ravel().tolist()
    return listed


_Copies: TypeAlias = dict[bytes, tuple[int, int]]


class _Chunk:
    """Appends that follow one another in the log: key -> (position, size) of the first copy.

    `newest` has the last copy of each key that came again within the chunk.
    """

    __slots__ = ("copies", "encoded", "newest")

    def __init__(self, copies: _Copies, newest: _Copies) -> None:
        self.copies = copies
        self.newest = newest
        self.encoded: bytes | None = None

    def encode(self) -> bytes:
        """The chunk for a snapshot. Only a chunk that does not change may be encoded."""
        if self.encoded is None:
            self.encoded = msgspec.msgpack.encode((self.copies, self.newest))
        return self.encoded


_decoder: Final = msgspec.msgpack.Decoder(tuple[_Copies, _Copies])


class DedupWindow:
    """The last appends by key: at least `entries_max`, and less than one chunk more."""

    def __init__(
        self,
        entries_max: int = limits.DEDUP_ENTRIES_MAX,
        chunk_entries: int = limits.DEDUP_CHUNK_ENTRIES,
    ) -> None:
        self._chunk_entries = chunk_entries
        self._chunks_max = entries_max // chunk_entries + 1
        self._chunks = deque([_Chunk({}, {})])
        #: Where the log begins: copies before it are gone, and are not found.
        self.first_position = 0

    def __len__(self) -> int:
        return sum(len(chunk.copies) for chunk in self._chunks)

    def get(self, key: bytes) -> StoredCopy | None:
        """The first copy of an append, if it is within the window."""
        for chunk in self._chunks:
            for copies in (chunk.copies, chunk.newest):
                copy = copies.get(key)
                if copy is not None and copy[0] >= self.first_position:
                    return StoredCopy(*copy)
        return None

    def newest(self, key: bytes) -> StoredCopy | None:
        """The last copy of an append, if it is within the window."""
        for chunk in reversed(self._chunks):
            copy = chunk.newest.get(key) or chunk.copies.get(key)
            if copy is not None:
                return StoredCopy(*copy) if copy[0] >= self.first_position else None
        return None

    @property
    def last_position(self) -> int:
        """The position of the newest of all copies; -1 if there is none."""
        for chunk in reversed(self._chunks):
            if chunk.copies:
                both = (*chunk.copies.values(), *chunk.newest.values())
                return max(position for position, _ in both)
        return -1

    def add(self, key: bytes, copy: tuple[int, int]) -> None:
        """Remember a stored message's dedup key. The first copy of a key stays the first."""
        self.add_all([(key, copy)])

    def add_all(self, copies: Iterable[tuple[bytes, tuple[int, int]]]) -> None:
        """Remember several, in this order."""
        chunk, first_position = self._chunks[-1], self.first_position
        held, entries_max = chunk.copies, self._chunk_entries
        for key, copy in copies:
            if len(held) >= entries_max:
                chunk = self._begin_chunk()
                held = chunk.copies
            first = held.setdefault(key, copy)
            if first is not copy:
                if first[0] < first_position:
                    held[key] = copy
                    chunk.newest.pop(key, None)
                else:
                    chunk.newest[key] = copy

    def _begin_chunk(self) -> _Chunk:
        chunk = _Chunk({}, {})
        self._chunks.append(chunk)
        if len(self._chunks) > self._chunks_max:
            self._chunks.popleft()
        return chunk

    def picture(self) -> Rows:
        """The rows for a snapshot: the chunks, the oldest first."""
        *full, last = self._chunks
        chunks = [*full, _Chunk(last.copies.copy(), last.newest.copy())]
        return Rows(len(chunks), lambda: map(_Chunk.encode, chunks))

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Take over what a snapshot kept."""
        self._chunks = deque([_Chunk({}, {})])
        self.add_saved(chunks)

    def add_saved(self, chunks: Iterable[bytes]) -> None:
        """Take over a further part of that."""
        decoded = [_Chunk(*_decoder.decode(chunk)) for chunk in chunks]
        if decoded and not len(self):
            self._chunks.clear()
        self._chunks.extend(decoded)
