"""An entry of the log: a 48-byte header and a body. Pure.

Header, big-endian, DLedger's own layout::

    0  magic u32      "DLG1"            24 position u64   of this header, in the log's address space
    4  size u32       header + body     32 kind u32
    8  index u64      from 1            36 chain CRC u32
    16 term u64                         40 body CRC u32, 44 body length u32

The body CRC covers the body. The chain CRC covers the previous entry's chain CRC (as the start
value), this header up to and including `kind`, and the body CRC. So equal (index, chain CRC) on
two replicas means that everything up to there is equal: no other comparison is needed.

Entries start at multiples of 8. An entry that doesn't fit in the rest of a segment starts the next
one. The unused rest stays zero, and a zero magic tells a reader that the segment has no more
entries.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from dledger.buffers import Buffer
from dledger.checksum import crc32

MAGIC: Final = 0x444C4731
HEADER: Final = struct.Struct(">IIQQQIIII")
HEADER_BYTES: Final = HEADER.size
ALIGNMENT: Final = 8
_CHAINED: Final = struct.Struct(">IIQQQI")
_CHAINED_BYTES: Final = _CHAINED.size
_CRCS: Final = struct.Struct(">III")
_U32: Final = struct.Struct(">I")

assert HEADER_BYTES == 48


class Kind(IntEnum):
    """The kind of a body. 1 to 15 are Raft's own; 16 and above belong to the application."""

    NOOP = 1
    CONFIGURATION = 2
    MESSAGES = 16
    CONTROL = 17
    SENDS = 18
    """Messages as well; each may have been sent by itself, where MESSAGES were sent together."""


#: The kinds that hold messages.
OF_MESSAGES: Final = frozenset((Kind.MESSAGES, Kind.SENDS))


class Header(msgspec.Struct, frozen=True, gc=False):
    """A decoded entry header, field by field as on disk.

    One is made for every entry, hence no dataclass: those take ten times as long to make.
    """

    magic: int
    size: int
    index: int
    term: int
    position: int
    kind: int
    chain_crc: int
    body_crc: int
    body_length: int

    @property
    def end(self) -> int:
        """The position where the next entry starts, if it fits in the same segment."""
        return self.position + padded(self.size)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry as readers see it. `body` is a view of the log's own bytes, not a copy."""

    index: int
    term: int
    kind: int
    position: int
    body: memoryview

    @property
    def body_position(self) -> int:
        """The position of the body's first byte in the log's address space."""
        return self.position + HEADER_BYTES


class Draft(Protocol):
    """A body whose bytes depend on where it lands, such as records that hold their own offset."""

    @property
    def size(self) -> int:
        """The body's length in bytes; it must not change afterwards."""

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """Finish the body, whose first byte is at `body_position` of the log, and return it. Called
        once, in log order, just before it is written."""


def body_size(body: Buffer | Draft) -> int:
    """The length in bytes that a body will have."""
    return len(body) if isinstance(body, bytes | bytearray | memoryview) else body.size


def place_body(body: Buffer | Draft, body_position: int, index: int, term: int) -> Buffer:
    """The bytes of a body that lands at `body_position`."""
    if isinstance(body, bytes | bytearray | memoryview):
        return body
    return body.place(body_position, index, term)


def padded(size: int) -> int:
    """`size` in bytes, rounded up to the alignment of entries."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


def chain(previous_chain_crc: int, raw_header: Buffer, body_crc: int) -> int:
    """The chain CRC of an entry, from the header's bytes before that field, and the body CRC."""
    chained = memoryview(raw_header)[:_CHAINED_BYTES]
    return crc32(_U32.pack(body_crc), crc32(chained, previous_chain_crc))


def make_header(
    previous_chain_crc: int, *, index: int, term: int, position: int, kind: int, body: Buffer
) -> tuple[Header, bytes]:
    """The header of an entry that follows one with `previous_chain_crc`, and its 48 bytes."""
    length = len(body)
    size, body_crc = HEADER_BYTES + length, crc32(body)
    chained = _CHAINED.pack(MAGIC, size, index, term, position, kind)
    chain_crc = chain(previous_chain_crc, chained, body_crc)
    header = Header(MAGIC, size, index, term, position, kind, chain_crc, body_crc, length)
    return header, chained + _CRCS.pack(chain_crc, body_crc, length)


def decode_header(buffer: Buffer, offset: int = 0) -> Header:
    """The header at `offset`, unchecked. The caller makes sure that 48 bytes are there."""
    return Header(*HEADER.unpack_from(buffer, offset))


def fault_of(
    header: Header, raw: memoryview, offset: int, previous_chain_crc: int | None, position: int
) -> str | None:
    """The fault of the entry at `offset` of `raw`, or None if all of it checks.

    `position` is where the entry must be in the log's address space. With `previous_chain_crc` None
    its link to the entry before is not checked.
    """
    return shape_fault(header, raw, offset, position) or crc_fault(
        header, raw, offset, previous_chain_crc
    )


def shape_fault(header: Header, raw: memoryview, offset: int, position: int) -> str | None:
    """Why there is no entry at `offset` that ends within `raw`: its magic, sizes, position."""
    if header.magic != MAGIC:
        return f"magic {header.magic:#010x} is not {MAGIC:#010x}"
    if header.size != HEADER_BYTES + header.body_length:
        return f"size {header.size} is not {HEADER_BYTES} + body length {header.body_length}"
    if header.position != position:
        return f"position {header.position} stands at {position}"
    if offset + header.size > len(raw):
        return f"size {header.size} reaches beyond the segment"
    return None


def crc_fault(
    header: Header, raw: memoryview, offset: int, previous_chain_crc: int | None
) -> str | None:
    """Which CRC of an entry whose shape is right does not fit: the body's, or the chain's."""
    body_at = offset + HEADER_BYTES
    body_crc = crc32(raw[body_at : body_at + header.body_length])
    if body_crc != header.body_crc:
        return f"the body has CRC {body_crc:#010x}, its header says {header.body_crc:#010x}"
    if previous_chain_crc is None:
        return None
    chain_crc = chain(previous_chain_crc, raw[offset:body_at], body_crc)
    if chain_crc != header.chain_crc:
        return (
            f"the chain CRC {header.chain_crc:#010x} does not continue the previous entry's, "
            f"which makes {chain_crc:#010x}"
        )
    return None
