"""From one entry to the next through bytes of the log: the one walk that all checks go. Pure.

An entry's size says where the next one starts, its index which one that must be, and its chain CRC
what the next one continues. Who walks decides what a fault means: that a log ends there, that it
is damaged, or that one goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dledger.log.entry import HEADER_BYTES, Header, crc_fault, decode_header, padded, shape_fault


class Step(msgspec.Struct, frozen=True, gc=False):
    """What stands at `offset`: a header, and what is wrong with the entry.

    With `is_lost` these bytes are no header, whatever they say; so nobody knows where the next
    entry starts, and the walk ends.
    """

    offset: int
    header: Header
    fault: str | None = None
    is_lost: bool = False

    @property
    def end(self) -> int:
        """Where the next entry starts, by this one's size."""
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
    """What stands at `offset`, and behind it, while another header fits into `raw`.

    The first byte of `raw` has `base_position`. The first entry must be `next_index`, and continue
    `chain_crc`; None takes it as it is, and `verify` off takes all CRCs so. Behind an entry that
    has a fault the walk goes on from what that one says of itself.
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
