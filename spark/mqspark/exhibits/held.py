"""The content of a replica at a position of its log: entry, record, and the bytes themselves.

A segment is walked once for all positions in it that are asked for. Nothing here decides anything:
what can't be read is shown as it is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from dledger.errors import BadInput
from dledger.log.disk import mapped
from dledger.log.entry import HEADER_BYTES, OF_MESSAGES, Kind
from dledger.log.scanning.scan import Found, scan_entries
from dledger.log.scanning.walk import walk
from dledger.log.segments.segment import segment_path
from dledger.remoting.message import properties_decode
from dledger.remoting.record import Record
from dledger.verdict.form import Held
from mqspark.limits import EXHIBIT_BYTES_MAX, EXHIBIT_PROPERTIES_MAX, EXHIBIT_TEXT_MAX
from mqspark.source.planning import Replica
from mqspark.source.records import Place, RecordColumns, RecordWalk

_NO_PLACE = Place(None, None, 0)


class ReplicaFiles:
    """The files of one replica, to be looked into."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._folder = Path(replica.directory) / "log"
        self.end = self._end()

    def _end(self) -> int:
        """The position behind the last entry that can be read."""
        for base in reversed(self._replica.segments):
            with mapped(segment_path(self._folder, base)) as raw:
                ends = [each.offset + each.size for each, _ in self._walk(raw, base) if each.header]
            if ends:
                return base + ends[-1]
        return 0

    def look(self, positions: Iterable[int]) -> dict[int, Held]:
        """The content of each of these positions."""
        size = self._replica.segment_bytes
        by_segment: dict[int, list[int]] = {}
        for position in sorted(set(positions)):
            by_segment.setdefault(position // size * size, []).append(position)
        found: dict[int, Held] = {}
        for base, wanted in by_segment.items():
            found |= self._look_into(base, wanted)
        return found

    def _look_into(self, base: int, wanted: list[int]) -> dict[int, Held]:
        found: dict[int, Held] = {}
        with mapped(segment_path(self._folder, base)) as raw:
            if raw is None:
                return {position: self._absent(position) for position in wanted}
            for each, previous_crc in self._walk(raw, base):
                inside = [
                    position
                    for position in wanted
                    if each.offset <= position - base < each.offset + each.size
                ]
                for position in inside:
                    found[position] = self._told(raw, base, each, previous_crc, position)
        return {position: found.get(position) or self._absent(position) for position in wanted}

    def _walk(self, raw: memoryview | None, base: int) -> Iterator[tuple[Found, int | None]]:
        """Entries and damaged ranges, each with the chain CRC before it, if that is known."""
        previous = None
        size = self._replica.segment_bytes
        for each in scan_entries(raw or memoryview(b""), base, size, None, verify=False):
            yield each, previous
            previous = each.header.chain_crc if each.header else None

    def _absent(self, position: int) -> Held:
        segments, size = self._replica.segments, self._replica.segment_bytes
        if segments and position < segments[0]:
            what = f"nothing: the log begins at {segments[0]}"
        elif position >= self.end:
            what = f"nothing: the log ends at {self.end}"
        elif position // size * size not in segments:
            what = "the segment file is missing"
        else:
            what = "no entry"
        return Held(self._replica.node, position, what, self.end)

    def _told(
        self, raw: memoryview, base: int, found: Found, previous_crc: int | None, position: int
    ) -> Held:
        """Facts about one position in an entry or a damaged range."""
        node = self._replica.node
        if found.header is None:
            data = raw[found.offset : found.offset + found.size]
            what = f"damaged: {found.error}"
            return Held(node, position, what, self.end, {}, {}, base + found.offset, *_hex(data))
        fault = _fault(raw, base, found, previous_crc)
        header = found.header
        entry: dict[str, int | str] = {
            "index": header.index,
            "term": header.term,
            "position": header.position,
            "size": header.size,
            "kind": _kind(header.kind),
            "chain CRC": f"{header.chain_crc:#010x}",
            "body CRC": f"{header.body_crc:#010x}",
        }
        start, end, error = _record_range(raw, base, found, position)
        what, record = _record(raw[start:end], error) if start > found.offset else ("an entry", {})
        if fault is not None:
            what = f"{what}; the entry's check fails: {fault}"
        return Held(
            node, position, what, self.end, entry, record, base + start, *_hex(raw[start:end])
        )


def _fault(raw: memoryview, base: int, found: Found, previous_crc: int | None) -> str | None:
    step = next(walk(raw, base, found.offset, chain_crc=previous_crc), None)
    return None if step is None else step.fault


def _kind(number: int) -> str:
    try:
        return Kind(number).name.lower()
    except ValueError:
        return f"unknown ({number})"


def _record_range(
    raw: memoryview, base: int, found: Found, position: int
) -> tuple[int, int, str | None]:
    """Where the record at a position begins and ends, and its fault; else the whole entry."""
    start, end = found.offset, found.offset + found.size
    if found.header is not None and found.header.kind in OF_MESSAGES:
        rows = RecordColumns()
        RecordWalk(raw, base, verify=True).walk(rows, _NO_PLACE, start + HEADER_BYTES, end)
        for number, (at, size) in enumerate(zip(rows.starts, rows.sizes, strict=True)):
            if at <= position - base < at + size:
                return at, at + size, rows.errors.get(number)
    return start, end, None


def _record(data: memoryview, error: str | None) -> tuple[str, dict[str, int | str]]:
    """A message record in words, and its fields."""
    try:
        record = Record(bytes(data))
        if record.fault is not None:
            return f"bytes that are not a whole record: {error or record.fault}", {}
        properties = properties_decode(bytes(record.properties))
        fields: dict[str, int | str] = {
            "topic": _short(record.topic),
            "queue": record.queue_id,
            "queue offset": record.queue_offset,
            "physical offset": record.physical_offset,
            "born": _moment(record.born_timestamp_ms),
            "stored": _moment(record.store_timestamp_ms),
            "flags": f"{record.flag:#x}, system {record.sys_flag:#x}",
            "reconsume times": record.reconsume_times,
            "body": f"{len(record.body)} bytes, CRC {record.body_crc:#010x}",
            "body as text": _short(
                bytes(record.body[:EXHIBIT_TEXT_MAX]).decode("utf-8", "replace")
            ),
        }
        shown = list(properties.items())[:EXHIBIT_PROPERTIES_MAX]
        fields |= {f"property {_short(name)}": _short(value) for name, value in shown}
    except (BadInput, ValueError, IndexError) as fault:
        return f"bytes that are not a whole record: {error or fault}", {}
    name = properties.get("UNIQ_KEY")
    what = f"message {_short(name)}" if name else "a message without UNIQ_KEY"
    return (what if error is None else f"{what}, damaged: {error}"), fields


def _short(text: str) -> str:
    return text if len(text) <= EXHIBIT_TEXT_MAX else f"{text[:EXHIBIT_TEXT_MAX]}..."


def _moment(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def _hex(data: memoryview) -> tuple[str, int]:
    return bytes(data[:EXHIBIT_BYTES_MAX]).hex(), len(data)
