"""Term, vote and eligibility: what Raft must remember across a crash, whatever else is lost.

Invariant: a node gives at most one vote in a term, over restarts. The crash that would break it:
the vote is sent, the power fails, and the node starts again with the older term or without its
vote. So `save` returns only when the new state is durable, and the transport sends afterwards.

A node also remembers that it is eligible: that it may vote and be counted. An emptied folder has
lost that with everything else, so its node can't vote without what it once promised.

The file has two slots of 512 bytes (a sector is written whole or not at all), used in turn, each
with a sequence number and a CRC. A torn write spoils the slot being written, never the other. If no
slot can be read although one was written, the node refuses to start: with a guess it could vote
twice.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger.checksum import crc32
from dledger.errors import CorruptLog
from dledger.failpoints import failpoint
from dledger.limits import NODE_ID_BYTES_MAX
from dledger.log.disk import Disk, Unreadable

_SLOT_BYTES: Final = 512
_SLOT: Final = struct.Struct(f">4sQQH{NODE_ID_BYTES_MAX}s?")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"DLHS"
_NO_VOTE: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class HardState:
    """The current term, the node that this one voted for in it, and whether it may vote at all."""

    term: int = 0
    vote: str | None = None
    eligible: bool = False


_LOST: Final = b"\xff" * 2 * _SLOT_BYTES
"""Bytes that are not a slot, in place of a file that the disk can't read."""


def encode_slot(sequence: int, state: HardState) -> bytes:
    """The bytes of one slot."""
    vote = b"" if state.vote is None else state.vote.encode()
    length = _NO_VOTE if state.vote is None else len(vote)
    raw = _SLOT.pack(_MAGIC, sequence, state.term, length, vote, state.eligible)
    return raw + _CRC.pack(crc32(raw))


def decode_slot(raw: bytes) -> tuple[int, HardState] | None:
    """A slot's sequence number and state, or None if it doesn't check."""
    if len(raw) < _SLOT.size + _CRC.size:
        return None
    fields, crc = raw[: _SLOT.size], _CRC.unpack_from(raw, _SLOT.size)[0]
    if crc32(fields) != crc:
        return None
    magic, sequence, term, length, vote, eligible = _SLOT.unpack(fields)
    if magic != _MAGIC:
        return None
    voted = None if length == _NO_VOTE else vote[:length].decode()
    return sequence, HardState(term, voted, eligible)


def read_slots(raw: bytes) -> list[tuple[int, HardState]]:
    """The slots of a file that check, the older one first."""
    slots = [raw[:_SLOT_BYTES], raw[_SLOT_BYTES : 2 * _SLOT_BYTES]]
    good = [slot for slot in map(decode_slot, slots) if slot is not None]
    return sorted(good, key=lambda slot: slot[0])


class HardStateFile:
    """The file `term` of a replica's log folder."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        try:
            raw = disk.read(path)
        except Unreadable:
            raw = _LOST
        if not raw:
            disk.replace(path, bytes(2 * _SLOT_BYTES))
            raw = bytes(2 * _SLOT_BYTES)
        good = read_slots(raw)
        if not good and any(raw):
            raise CorruptLog(
                f"{path}: neither copy of term and vote can be read. Starting anyway could vote "
                "twice in a term. Remove this replica's folder and let it copy from its peers."
            )
        self._sequence, self.state = good[-1] if good else (0, HardState())
        self._descriptor = disk.open(path)
        # A killed process may have left a slot that can be read but is not durable, or the file
        # without a durable name.
        disk.sync_data(self._descriptor)
        disk.sync_folder(path.parent)

    def save(self, state: HardState) -> None:
        """Make term, vote and eligibility durable. Raises OSError; the node must then take no
        further part."""
        if state == self.state and self._sequence:
            return
        failpoint("vote.save")
        sequence = self._sequence + 1
        slot = encode_slot(sequence, state)
        self._disk.write(self._descriptor, [slot], _SLOT_BYTES * (sequence & 1))
        self._disk.sync_data(self._descriptor)
        self._sequence, self.state = sequence, state
        failpoint("vote.saved")

    def close(self) -> None:
        """Close the file of term and vote."""
        self._disk.close(self._descriptor)
