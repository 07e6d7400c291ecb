"""A bit of a log that turns, or an end of it that is gone, where a start is sure to come upon it.

The entry lies in the last segment, which a start reads whatever its checkpoint says of the segments
before, and it was durable: behind what surely was, it would be taken for a write that was torn.
"""

from __future__ import annotations

import os
from pathlib import Path

from dledger.errors import DledgerError
from dledger.log.recovery.verify import verify_replica
from dledger.log.scanning.scan import Found
from dledger.log.segments.segment import segment_path
from mqchaos.cluster.processes import ClusterError


def turn_a_bit(store: Path) -> None:
    """Turn one, in the middle of the durable entries. ClusterError if there are none."""
    segment, offset = _within_a_durable_entry(store)
    with segment.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def cut_an_entry(store: Path) -> None:
    """End the last segment within one of the durable entries, the one in their middle.
    ClusterError if there are none."""
    segment, offset = _within_a_durable_entry(store)
    os.truncate(segment, offset)


def _within_a_durable_entry(store: Path) -> tuple[Path, int]:
    """The last segment, and where in it the middle of its middle entry lies."""
    entries: list[tuple[int, Found]] = []
    try:
        found = verify_replica(store, lambda base, each: entries.append((base, each)))
    except DledgerError as error:
        raise ClusterError(f"{store} has no log that could be damaged: {error}") from error
    last = max((base for base, _ in entries), default=0)
    durable = [
        each
        for base, each in entries
        if base == last and each.header is not None and each.header.index <= found.durable_index
    ]
    if not durable:
        raise ClusterError(f"{store} has no durable entry yet in its last segment")
    chosen = durable[len(durable) // 2]
    return segment_path(store / "log", last), chosen.offset + chosen.size // 2
