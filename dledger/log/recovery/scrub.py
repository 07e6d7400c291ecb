"""Reads sealed segments again, now and then, to find damage before a reader does.

A start trusts the summaries of sealed segments, and a reader checks only what it reads. So a rotten
byte could stay unnoticed for years, until the other copies of its entry are rotten too. A scrub
checks every entry and the chain over all of them, from the log's head to the end of the last
segment that is sealed and committed. It works in slices; the caller sets the pace. It reads files,
not mappings, which would count as this process's memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from dledger.errors import Rot
from dledger.log.entry import HEADER_BYTES, decode_header, padded
from dledger.log.recovery.repair import Place
from dledger.log.scanning.walk import walk
from dledger.log.segments.segment import Segment
from dledger.log.store import SegmentedLog

SLICE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a segment to check. Slow, so `check` may be called in a thread."""

    segment: Segment
    place: Place
    replacements: int

    def check(self) -> Place:
        """The place behind the last whole entry of this part. Raises Rot, OSError."""
        base = self.segment.base_position
        offset = self.place.end_position - base
        size = min(SLICE_BYTES, self.segment.end - offset)
        raw = memoryview(self.segment.read_part(offset, size))
        first_size = padded(decode_header(raw).size) if len(raw) >= HEADER_BYTES else 0
        if size < first_size <= self.segment.end - offset:
            raw = memoryview(self.segment.read_part(offset, first_size))
        place = self.place
        for step in walk(
            raw, base + offset, next_index=place.next_index, chain_crc=place.chain_crc
        ):
            if step.offset and step.end > len(raw):
                break  # the next slice begins with it
            if step.fault is not None:
                raise Rot(
                    f"{self.segment.path}: entry {place.next_index} at offset "
                    f"{offset + step.offset} is damaged ({step.fault}); a start has it repaired "
                    "by the leader",
                    base,
                )
            place = Place(step.header.index + 1, step.header.chain_crc, step.header.end)
        return place


class Scrub:
    """A pass over a log, and how far it has come."""

    def __init__(self, log: SegmentedLog) -> None:
        self._log = log
        self._place: Place | None = None
        self._replacements = 0

    def next_slice(self, committed_index: int) -> Slice | None:
        """The slice to check next; None at the end of a pass. The next call begins another pass."""
        log = self._log
        is_void = self._replacements != log.replacements
        if self._place is None or is_void or self._place.end_position < log.first_position:
            self._replacements = log.replacements
            self._place = Place(
                log.first_index, log.reader.chain_crc_before(log.first_index), log.first_position
            )
        for segment in log.reader.sealed(committed_index):
            start = max(self._place.end_position, segment.base_position)
            if start < segment.base_position + segment.end:
                place = self._place._replace(end_position=start)
                return Slice(segment, place, self._replacements)
        self._place = None
        return None

    def checked(self, part: Slice, place: Place) -> None:
        """A slice was good, up to `place`."""
        if part.replacements == self._log.replacements:
            self._place = place
