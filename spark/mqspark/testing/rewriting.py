"""A replica's log as values: read whole, changed, and written again, consistent in itself.

For planting faults only, so everything is in memory at once.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from dledger.checksum import crc32
from dledger.log.entry import HEADER_BYTES, OF_MESSAGES, Kind
from dledger.log.scanning.scan import scan_entries
from dledger.log.segments.segment import segment_path
from dledger.remoting.record import CRC_MASK
from dledger.remoting.record.layout import (
    BODY_AT,
    BODY_CRC_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
)
from mqspark.source.planning import Replica
from mqspark.source.records import Place, RecordColumns, RecordWalk
from mqspark.testing.synthetic import LogWriter

_FLIPPED_BIT: Final = 0x10


@dataclass(frozen=True)
class StoredMessage:
    """A message record in a replica's log: where it stands and all of its bytes."""

    message_id: str | None
    topic: str | None
    position: int
    body_at: int
    body_bytes: int
    raw: bytes

    @cached_property
    def queue_id(self) -> int:
        """The queue that the record names."""
        return int.from_bytes(self.raw[QUEUE_ID_AT : QUEUE_ID_AT + 4], "big")

    @cached_property
    def queue_offset(self) -> int:
        """The offset in its queue that the record names."""
        return int.from_bytes(self.raw[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8], "big")

    def moved_to(self, queue_id: int, queue_offset: int) -> StoredMessage:
        """A message like this one, at another place in a queue."""
        raw = _patched(self.raw, QUEUE_ID_AT, queue_id.to_bytes(4, "big"))
        raw = _patched(raw, QUEUE_OFFSET_AT, queue_offset.to_bytes(8, "big"))
        return replace(self, raw=raw)

    def with_id(self, message_id: str) -> StoredMessage:
        """A record like this one, under another id of the same length."""
        assert self.message_id is not None
        raw = self.raw.replace(self.message_id.encode(), message_id.encode())
        return replace(self, message_id=message_id, raw=raw)

    def with_flipped_body(self, *, crc: bool) -> StoredMessage:
        """A record like this one, with one bit of its body changed, and its CRC too if `crc`."""
        middle = self.body_at + self.body_bytes // 2
        raw = _patched(self.raw, middle, bytes([self.raw[middle] ^ _FLIPPED_BIT]))
        if crc:
            body = raw[self.body_at : self.body_at + self.body_bytes]
            raw = _patched(raw, BODY_CRC_AT, (crc32(body) & CRC_MASK).to_bytes(4, "big"))
        return replace(self, raw=raw)


@dataclass(frozen=True)
class StoredEntry:
    """An entry of a replica's log. `messages` for kind MESSAGES, else `body`."""

    index: int
    term: int
    kind: int
    position: int
    body: bytes
    messages: tuple[StoredMessage, ...]
    chain_crc: int


#: The messages that take the place of one message of a log.
Edit = Callable[[StoredMessage], Sequence[StoredMessage]]


def read_log(replica: Replica) -> list[StoredEntry]:
    """Entries of a sound log, in memory."""
    entries = []
    for base in replica.segments:
        with segment_path(Path(replica.directory) / "log", base).open("rb") as file:
            raw = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        for found in scan_entries(raw, base, replica.segment_bytes, None, verify=False):
            if found.header is not None:
                start, end = found.offset + HEADER_BYTES, found.offset + found.size
                header = found.header
                messages = _messages(raw, base, start, end) if header.kind in OF_MESSAGES else ()
                entries.append(
                    StoredEntry(
                        header.index,
                        header.term,
                        header.kind,
                        header.position,
                        bytes(raw[start:end]),
                        messages,
                        header.chain_crc,
                    )
                )
    return entries


def rewrite(replica: Replica, edit: Edit, *, append: Sequence[StoredMessage] = ()) -> None:
    """Write the whole log again, consistent in itself, with every message replaced by `edit`'s.

    Positions of what follows a change of size move, as they must. `append` becomes one more entry.
    """
    entries = read_log(replica)
    for path in (Path(replica.directory) / "log").glob("*.seg"):
        path.unlink()
    log = LogWriter(Path(replica.directory), replica.segment_bytes)
    for entry in entries:
        messages = [message for old in entry.messages for message in edit(old)]
        if entry.messages and not messages:
            log.append(Kind.NOOP, b"", entry.term)
        elif entry.messages:
            log.append(entry.kind, _placed(log, messages), entry.term)
        else:
            log.append(entry.kind, entry.body, entry.term)
    if append:
        log.append(Kind.MESSAGES, _placed(log, append), entries[-1].term)
    log.close()


def _messages(raw: memoryview, base: int, start: int, end: int) -> tuple[StoredMessage, ...]:
    rows = RecordColumns()
    RecordWalk(raw, base, verify=False).walk(rows, Place(None, None, 0), start, end)
    return tuple(
        StoredMessage(key, topic, base + at, body[0] - at, body[1], bytes(raw[at : at + size]))
        for key, topic, at, size, body in zip(
            rows.unique_keys, rows.topics, rows.starts, rows.sizes, rows.bodies, strict=True
        )
    )


def _placed(log: LogWriter, messages: Sequence[StoredMessage]) -> bytes:
    """The records as the body of the next entry: each says where it stands."""
    position = log.body_position(sum(len(message.raw) for message in messages))
    placed = []
    for message in messages:
        placed.append(_patched(message.raw, PHYSICAL_OFFSET_AT, position.to_bytes(8, "big")))
        position += len(message.raw)
    return b"".join(placed)


def _patched(raw: bytes, at: int, data: bytes) -> bytes:
    assert at + len(data) <= len(raw)
    assert len(raw) >= BODY_AT
    return raw[:at] + data + raw[at + len(data) :]
