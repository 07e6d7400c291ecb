"""A snapshot file: the replicated state up to an index, so that a restart replays only the rest.

Layout, big-endian: magic u64 ``DLGSNAP1``, payload length u64, CRC-32 of the payload u32, payload.
A new snapshot is written beside the old one, made durable, and renamed over it: a crash leaves the
old or the new, never half of one. A snapshot that does not check is as good as none, since all it
holds can be had again from the log; the reader says why it was not used.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from dledger.checksum import crc32
from dledger.errors import StorageError
from dledger.log.disk import Disk

_HEADER: Final = struct.Struct(">8sQI")
_MAGIC: Final = b"DLGSNAP1"


def write_snapshot(path: Path, payload: bytes) -> None:
    """Replace the snapshot at `path`, durably. Blocks; OSError leaves the old one in place."""
    header = _HEADER.pack(_MAGIC, len(payload), crc32(payload))
    Disk().replace(path, header + payload)


def read_snapshot(path: Path) -> bytes | None:
    """The payload; None if there is no snapshot; StorageError if it does not check."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(raw) < _HEADER.size:
        raise StorageError(f"{path} has {len(raw)} bytes, fewer than its header")
    magic, length, crc = _HEADER.unpack_from(raw)
    payload = raw[_HEADER.size :]
    if magic != _MAGIC or length != len(payload) or crc != crc32(payload):
        raise StorageError(f"{path} does not match its own length or checksum")
    return payload
