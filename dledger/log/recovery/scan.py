"""Which entries a segment's bytes hold, and which bytes hold none. Pure.

**The chain CRC in parallel.** Each entry's chain CRC is computed from the one before it, so a
check of the whole chain looks sequential. It is not: every entry stores its own value, so each
link (stored value before, this header, stored value here) can be checked alone. All links hold
exactly if the whole chain holds. A segment's partition needs just one value from outside, the
stored chain CRC of the last entry in the segment before. It takes that from the entry headers of
that segment without checking them: the segment's own partition checks that very value as the end
of its last link, so nothing is believed that nobody checks.

**Going on after damage.** An entry whose header can't be trusted hides where the next one starts.
But every header says its own position and starts at a multiple of 8, so a later header is found
by looking for a magic whose position field names the place it stands at. What lies between is
one damaged range. After each fault the next link starts from the value that is stored, so one bad
entry does not condemn all later ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dledger.log.entry import (
    ALIGNMENT,
    HEADER_BYTES,
    MAGIC,
    Header,
    crc_fault,
    decode_header,
    shape_fault,
)
from dledger.log.recovery.tail import WATERMARK_BYTES

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

    `raw` is the file as it is, `segment_bytes` the length it should have. With
    `previous_chain_crc` None the first link is taken as it is; without `verify` all CRCs are.
    """
    limit = min(len(raw), segment_bytes - WATERMARK_BYTES)
    offset = 0
    while offset < limit:
        header = _plausible_header(raw, offset, base_position, limit)
        if header is None:
            found = _skip_to_entry(raw, offset, base_position, limit)
            if found is None:
                break
            yield found
            offset += found.size
            continue
        error = crc_fault(header, raw, offset, previous_chain_crc) if verify else None
        yield Found(offset, header.size, header, error)
        previous_chain_crc = header.chain_crc
        offset = header.end - base_position
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


def _plausible_header(
    raw: memoryview, offset: int, base_position: int, limit: int
) -> Header | None:
    """The header at `offset` if it can only be one: right magic, place and consistent sizes."""
    if offset + HEADER_BYTES > limit:
        return None
    header = decode_header(raw, offset)
    fault = shape_fault(header, raw[:limit], offset, base_position + offset)
    return header if fault is None else None


def _skip_to_entry(raw: memoryview, offset: int, base_position: int, limit: int) -> Found | None:
    """The damaged range from `offset` to the next entry or the last byte that is not zero.

    None if only zeros follow, which is how a segment says that it has no more entries.
    """
    rest = np.frombuffer(raw[offset:limit], np.uint8)
    words = rest[: len(rest) // ALIGNMENT * ALIGNMENT].view(np.uint32)[::2]
    # The first word is a refused header's own: only an unreadable one can follow there.
    for word in np.flatnonzero(words[1:] == _MAGIC_AS_STORED) + 1:
        following = offset + int(word) * ALIGNMENT
        if _plausible_header(raw, following, base_position, limit) is not None:
            return Found(offset, following - offset, None, "no entry can be read here")
    written = np.flatnonzero(rest)
    if not len(written):
        return None
    # Clear of the header that was refused, whatever it holds; then the rest is zero.
    size = int(written[-1]) + 1
    return Found(offset, -(-size // ALIGNMENT) * ALIGNMENT, None, "an entry was cut off here")
