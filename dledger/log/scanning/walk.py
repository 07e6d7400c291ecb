"""Goes from one entry to the next through bytes of the log. All checks use this one walk. Pure.

An entry's size says where the next one starts, its index which one that must be, and its chain CRC
what the next one continues. The caller decides what a fault means: that the log ends there, or is
damaged, or that the walk goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dledger.log.entry import HEADER_BYTES, Header, crc_fault, decode_header, padded, shape_fault


class Step(msgspec.Struct, frozen=True, gc=False):
    """An entry at `offset`: its header, and the fault of it.

    With `is_lost` these bytes are no header. So the start of the next entry is unknown, and the
    walk ends.
    """

    offset: int
    header: Header
    fault: str | None = None
    is_lost: bool = False

    @property
    def end(self) -> int:
        """Where the next entry starts, according to this one's size."""
        return self.offset + padded(self.header.size)


def walk(
    raw: memoryview,
    base_position: int,
    offset: int = 0,
    *,
    next_index: int | None = None,
    chain_crc: int | None = None,
    verify: bool = True,
) -> Iterator[Step]:
    """The entries from `offset` on, while another header fits into `raw`.

    The first byte of `raw` has `base_position`. The first entry must be `next_index`, and continue
    `chain_crc`; With None that link is not checked; without `verify` no CRC is. After an entry with
    a fault the walk goes on with the values in its header.
    """
    while offset + HEADER_BYTES <= len(raw):
        header = decode_header(raw, offset)
        fault = shape_fault(header, raw, offset, base_position + offset)
        if fault is not None:
            yield Step(offset, header, fault, is_lost=True)
            return
        if next_index is not None and header.index != next_index:
            fault = f"index {header.index} stands where {next_index} must follow"
        elif verify:
            fault = crc_fault(header, raw, offset, chain_crc)
        yield Step(offset, header, fault)
        if next_index is not None:
            next_index = header.index + 1
        chain_crc = header.chain_crc
        offset += padded(header.size)
