"""Reading a segment after a crash: which entries are whole, and why reading stopped. Pure.

Three things can follow the last whole entry:

- zeros: the log ends here, or goes on in the next segment;
- a torn tail: bytes that were being written when the node died. They were not acknowledged, since
  an entry must be durable for that, so they may be cut;
- corruption: bytes that were durable once and have changed. Cutting there could cut entries that
  others rely on.

The last two look alike. What tells them apart is the segment's watermark: before each sync the
log writes down the last index that an earlier sync had made durable, in the last 64 bytes of the
segment. A bad entry at or below the watermark is corruption. One above it was never reported
durable. There is one exception, which is accepted and documented: the entries of the last completed
sync, if no other sync had begun.

A file may also be gone, its watermark with it. So once the first entry of a segment is durable, the
segment before says so in its own watermark.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dledger.checksum import crc32
from dledger.log.entry import (
    HEADER_BYTES,
    Header,
    decode_header,
    fault_of,
    padded,
)
from dledger.log.scanning.walk import walk

#: The first word is zero, which is also how an entry reader sees the end of a segment's entries.
_WATERMARK: Final = struct.Struct(">4x4sQI")
_WATERMARK_SAID: Final = struct.Struct(">4x4sQ")
_CRC: Final = struct.Struct(">I")
_WATERMARK_MAGIC: Final = b"DLWM"
WATERMARK_BYTES: Final = 64
EVERYTHING: Final = (1 << 64) - 1
"""The watermark of a segment of which the disk has lost a part: see `rescue`."""
PART_BYTES: Final = 16 << 20
WINDOW_BYTES: Final = 16 << 10
"""Bytes that are read of a segment at once when only headers are looked for."""


@dataclass(slots=True)
class Scan:
    """The content of a segment.

    `offsets` are those of the whole entries within the file, in units of 8 bytes. `last` is the
    header of the last of them. `end` is the offset behind it. `fault` says why the bytes at `end`
    are no entry; None where they are zero.
    """

    offsets: array[int] = field(default_factory=lambda: array("I"))
    last: Header | None = None
    first_index: int | None = None
    end: int = 0
    fault: str | None = None


def scan_segment(
    raw: memoryview,
    base_position: int,
    next_index: int,
    previous_chain_crc: int,
    on_part: Callable[[], None] = lambda: None,
) -> Scan:
    """Check every entry of a segment whose first byte has `base_position`.

    `next_index` is the index that the first entry must have. `on_part` is called after every
    16 MiB, so that the caller need not keep all that was read in memory.
    """
    scan = Scan()
    part_end, within = PART_BYTES, raw[: len(raw) - WATERMARK_BYTES]
    for step in walk(within, base_position, next_index=next_index, chain_crc=previous_chain_crc):
        if step.fault is not None:
            nothing = step.header.magic == 0 and not any(raw[scan.end : scan.end + HEADER_BYTES])
            scan.fault = None if nothing else step.fault
            break
        scan.offsets.append(step.offset >> 3)
        if scan.first_index is None:
            scan.first_index = step.header.index
        scan.last, scan.end = step.header, step.end
        if scan.end >= part_end:
            part_end = scan.end + PART_BYTES
            on_part()
    return scan


def entry_offsets(read: Callable[[int, int], bytes], end: int) -> array[int]:
    """The offsets, in units of 8 bytes, of a segment's entries, from their sizes alone.

    For segments that were checked before, whose last entry ends at `end`. If a header has rotted
    since, there are too few or too many offsets. `read` takes an offset and a size; it is asked for
    the bytes around headers only, since most of a segment are bodies.
    """
    offsets = array("I")
    offset, window, begin = 0, b"", 0
    while offset + HEADER_BYTES <= end:
        offsets.append(offset >> 3)
        if offset + HEADER_BYTES > begin + len(window):
            window, begin = read(offset, min(WINDOW_BYTES, end - offset)), offset
        offset += max(HEADER_BYTES, padded(decode_header(window, offset - begin).size))
    return offsets


def encode_watermark(durable_index: int) -> bytes:
    """The bytes that say: everything up to `durable_index` was durable before this was written."""
    said = _WATERMARK_SAID.pack(_WATERMARK_MAGIC, durable_index)
    return said + _CRC.pack(crc32(said))


def decode_watermark(raw: memoryview) -> int:
    """The durable index in a segment's last bytes; 0 if none was written, or its CRC is wrong."""
    piece = bytes(raw[len(raw) - WATERMARK_BYTES :][: _WATERMARK.size])
    magic, durable_index, crc = _WATERMARK.unpack(piece)
    if magic != _WATERMARK_MAGIC or crc32(piece[:-4]) != crc:
        return 0
    return int(durable_index)


def first_valid_after(raw: memoryview, offset: int, base_position: int) -> int | None:
    """The offset of an entry after `offset` that stands where its header says, with a good body.

    It tells an operator whether something readable follows a bad entry.
    """
    for candidate in range(offset + 8, len(raw) - WATERMARK_BYTES - HEADER_BYTES + 1, 8):
        if raw[candidate] == 0:
            continue
        header = decode_header(raw, candidate)
        if header.position != base_position + candidate:
            continue
        fault = fault_of(header, raw, candidate, None, base_position + candidate)
        if fault is None:
            return candidate
    return None
