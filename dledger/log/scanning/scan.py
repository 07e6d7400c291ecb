"""Finds the entries in a segment's bytes, and the bytes that hold none. Pure.

**The chain CRC in parallel.** Each entry's chain CRC is computed from the one before it, so a
check of the whole chain looks sequential. It is not: every entry stores its own value, so each
link (stored value before, this header, stored value here) can be checked alone. All links hold
exactly if the whole chain holds. A segment's partition needs just one value from outside, the
stored chain CRC of the last entry in the segment before. It takes that value from that segment
without checking it: that segment's own partition checks it as the end of its last link, so every
value is checked by one partition.

**Going on after damage.** An entry whose header can't be trusted hides where the next one starts.
But every header holds its own position and starts at a multiple of 8. So the next header is found
by its magic and a position field that names its own place. The bytes in between are one damaged
range. After each fault the next link starts from the stored value, so one bad entry does not make
all later ones look bad.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dledger.log.entry import ALIGNMENT, MAGIC, Header
from dledger.log.scanning.tail import WATERMARK_BYTES
from dledger.log.scanning.walk import walk

_MAGIC_AS_STORED = np.frombuffer(MAGIC.to_bytes(4, "big"), np.uint32)[0]


class Found(NamedTuple):
    """An entry, or a damaged range of bytes if `header` is None.

    `offset` and `size` are bytes within the segment. `error` says what is wrong; an entry whose
    header can be read may have one too.
    """

    offset: int
    size: int
    header: Header | None
    error: str | None


def scan_entries(
    raw: memoryview,
    base_position: int,
    segment_bytes: int,
    previous_chain_crc: int | None,
    *,
    verify: bool,
) -> Iterator[Found]:
    """Everything in a segment whose first byte has `base_position`, in the order of the log.

    `raw` is the file as it is, `segment_bytes` the length it should have. With `previous_chain_crc`
    None the first link is not checked; without `verify` no CRC is.
    """
    within = raw[: min(len(raw), segment_bytes - WATERMARK_BYTES)]
    offset, chain_crc = 0, previous_chain_crc
    while offset < len(within):
        for step in walk(within, base_position, offset, chain_crc=chain_crc, verify=verify):
            if step.is_lost:
                break
            yield Found(step.offset, step.header.size, step.header, step.fault)
            offset, chain_crc = step.end, step.header.chain_crc
        found = _skip_to_entry(within, offset, base_position)
        if found is None:
            break
        yield found
        offset += found.size
    if len(raw) < segment_bytes:
        shortage = f"the segment file has {len(raw)} bytes of {segment_bytes}"
        yield Found(len(raw), segment_bytes - len(raw), None, shortage)


def last_chain_crc(raw: memoryview, base_position: int, segment_bytes: int) -> int | None:
    """The chain CRC that the last readable entry of a segment stores; None if it has none."""
    last = None
    for found in scan_entries(raw, base_position, segment_bytes, None, verify=False):
        if found.header is not None:
            last = found.header.chain_crc
    return last


def _skip_to_entry(raw: memoryview, offset: int, base_position: int) -> Found | None:
    """The damaged range from `offset` to the next entry or the last byte that is not zero.

    None if only zeros follow, which is how a segment says that it has no more entries.
    """
    if offset >= len(raw):
        return None
    rest = np.frombuffer(raw[offset:], np.uint8)
    words = rest[: len(rest) // ALIGNMENT * ALIGNMENT].view(np.uint32)[::2]
    # The first word belongs to the refused header itself, so the search starts behind it.
    for word in np.flatnonzero(words[1:] == _MAGIC_AS_STORED) + 1:
        following = offset + int(word) * ALIGNMENT
        step = next(walk(raw, base_position, following, verify=False), None)
        if step is not None and not step.is_lost:
            return Found(offset, following - offset, None, "no entry can be read here")
    written = np.flatnonzero(rest)
    if not len(written):
        return None
    # The range covers at least the header that was refused; the rest is zero.
    size = int(written[-1]) + 1
    return Found(offset, -(-size // ALIGNMENT) * ALIGNMENT, None, "an entry was cut off here")
