"""The beginning of a log whose first segments are gone: the file `head`. Pure.

The first entry's chain CRC continues that of the entry before, which is removed with its segment.
So that value is saved durably before the first segment is removed. A start takes segments before
the head for leftovers of an interrupted removal.

A replica that was away for so long that the others no longer hold its next entry gets a new head:
the leader's own, with the first entry behind it. This replaces the replica's whole log, and may be
interrupted anywhere. So the file carries the entry itself until it is in a segment. A start that
finds an entry in the head does the replacement again, from the beginning.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from dledger.checksum import crc32
from dledger.errors import CorruptLog
from dledger.log.entry import HEADER_BYTES, Header, decode_header, fault_of

_PREFIX: Final = struct.Struct(">4sI")
_MAGIC: Final = b"DLHD"


class LogHead(msgspec.Struct, frozen=True, array_like=True):
    """The log's first segment starts at `base_position`, with the entry `first_index`.

    `chain_crc` is that of the entry before. `replacing`: the raw bytes of the first entry while the
    log on the disk is being replaced; empty otherwise.
    """

    base_position: int = 0
    first_index: int = 1
    chain_crc: int = 0
    replacing: bytes = b""


def encode_head(head: LogHead) -> bytes:
    """The file's bytes: magic `DLHD`, CRC-32 of the rest, the fields as a msgpack array."""
    payload = msgspec.msgpack.encode(head)
    return _PREFIX.pack(_MAGIC, crc32(payload)) + payload


def decode_head(raw: bytes) -> LogHead:
    """The head in a file. Without a file the log is whole: then the head before entry 1. Raises
    CorruptLog."""
    if not raw:
        return LogHead()
    payload = raw[_PREFIX.size :]
    if len(raw) < _PREFIX.size or _PREFIX.unpack_from(raw) != (_MAGIC, crc32(payload)):
        raise CorruptLog(
            "the file `head` does not match its checksum: where the log begins is lost"
        )
    try:
        head = msgspec.msgpack.decode(payload, type=LogHead)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLog(f"the file `head` holds no place where a log begins: {error}") from error
    if head.base_position < 0 or head.first_index < 1 or not 0 <= head.chain_crc < 1 << 32:
        raise CorruptLog(f"the file `head` says that the log begins with {head.first_index}")
    return head


def first_entry_of(head: LogHead) -> tuple[Header, memoryview, memoryview]:
    """The entry that a head carries: its header, the raw header, the body. Raises CorruptLog."""
    raw = memoryview(head.replacing)
    if len(raw) < HEADER_BYTES:
        raise CorruptLog(f"a head before entry {head.first_index} carries no entry")
    header = decode_header(raw)
    fault = fault_of(header, raw, 0, head.chain_crc, head.base_position)
    if fault is not None or header.index != head.first_index:
        raise CorruptLog(
            f"the entry of the head before entry {head.first_index} has index {header.index}: "
            f"{fault or 'another one'}"
        )
    return header, raw[:HEADER_BYTES], raw[HEADER_BYTES : header.size]
