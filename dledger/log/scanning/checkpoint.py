"""A checkpoint: a summary of every sealed segment, and the commit index. It shortens restarts.

A segment is sealed when the next one has been started and all of its bytes are durable. Its
summary lets a restart check only the segments behind the checkpoint, so that restart time depends
on the segment size and not on the log's length. The file is derived data: if it is missing or does
not fit its checksum, everything is read. The commit index in it is a lower bound, never trusted
beyond the end of the log that was found.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import msgspec

from dledger.checksum import crc32

_PREFIX: Final = struct.Struct(">4sI")
_MAGIC: Final = b"DLCK"


class SealedSegment(msgspec.Struct, frozen=True, array_like=True):
    """Summary of a sealed segment. `last_offset` is where its last entry starts in the file, `end`
    where it ends.

    A summary may be stale: written before the segment's tail was cut and replaced. So it counts
    only if the entry at `last_offset` is still the one that it names, and no entry follows. Then
    the chain CRC shows that all entries before are the same, too.
    """

    base_position: int
    first_index: int
    last_index: int
    last_term: int
    last_chain_crc: int
    last_offset: int
    end: int


class _File(msgspec.Struct, array_like=True):
    commit_index: int
    sealed: list[SealedSegment]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a checkpoint file."""

    commit_index: int = 0
    sealed: tuple[SealedSegment, ...] = ()


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint file."""
    payload = msgspec.msgpack.encode(_File(checkpoint.commit_index, list(checkpoint.sealed)))
    return _PREFIX.pack(_MAGIC, crc32(payload)) + payload


def decode_checkpoint(raw: bytes) -> Checkpoint:
    """The checkpoint in a file; an empty one if the file is missing or damaged."""
    if len(raw) < _PREFIX.size:
        return Checkpoint()
    magic, crc = _PREFIX.unpack_from(raw)
    payload = raw[_PREFIX.size :]
    if magic != _MAGIC or crc32(payload) != crc:
        return Checkpoint()
    try:
        file = msgspec.msgpack.decode(payload, type=_File)
    except msgspec.DecodeError:
        return Checkpoint()
    return Checkpoint(file.commit_index, tuple(file.sealed))
