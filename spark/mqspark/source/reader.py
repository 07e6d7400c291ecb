"""Reads one segment on a Spark worker and yields it as Arrow batches.

The file is mapped, not read: it is walked once, and only the wanted columns are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, pairwise

import pyarrow as pa
from msgspec import Struct, structs
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dledger.log.disk import mapped
from dledger.log.entry import HEADER_BYTES, OF_MESSAGES, Header
from dledger.log.scanning.scan import Found, last_chain_crc, scan_entries
from dledger.remoting.numbers import INT32_MAX, INT64_MAX
from dledger.remoting.record import MAGIC
from dledger.remoting.record.layout import MAGIC_AT, U32
from mqspark.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX, ODD_BYTES_MAX
from mqspark.source.columns import MessageColumns
from mqspark.source.plain import PlainWalk
from mqspark.source.planning import Replica, SegmentPartition, Task, plan, tasks
from mqspark.source.records import Place, RecordColumns, RecordWalk
from mqspark.source.schema import ENTRIES, arrow_schema


class SegmentReader(DataSourceReader):
    """The reader of `dledger`: one partition a large segment, missing segments included."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        level: str,
        schema: StructType,
        *,
        verify: bool,
        merge: bool = False,
    ) -> None:
        self._replicas = replicas
        self._merge = merge
        self._level = level
        self._schema = schema
        self._verify = verify

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each segment of each replica, or for some small ones."""
        return tasks(plan(self._replicas))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the segments of one task."""
        assert isinstance(partition, Task)
        for segment in partition.segments:
            yield from self.segment(segment)

    def segment(
        self, partition: SegmentPartition, tally: Tally | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one segment. A `tally` looks at all its entries."""
        with mapped(partition.path) as raw:
            found = _found(partition, raw, verify=self._verify)
            if self._level == ENTRIES:
                yield from entry_batches(found, partition, self._schema)
            else:
                holders = Holders(partition, merge=self._merge)
                yield from message_batches(
                    found, raw or memoryview(b""), holders, self._schema, tally, verify=self._verify
                )


def entry_batches(
    found: Iterator[Found], segment: SegmentPartition, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Entries and damaged ranges, a row each."""
    target = arrow_schema(schema)
    while rows := list(islice(found, BATCH_ROWS_MAX)):
        values: dict[str, Callable[[Found], object]] = {
            "broker": lambda _: segment.broker,
            "replica": lambda _: segment.replica,
            "segment": lambda _: segment.position,
            "position": lambda row: segment.position + row.offset,
            "size": lambda row: row.size,
            "error": lambda row: row.error,
            "index": lambda row: _index_of(row.header),
        }
        arrays = [
            pa.array(
                [values[column.name](row) for row in rows]
                if column.name in values
                else [row.header and getattr(row.header, column.name) for row in rows],
                column.type,
            )
            for column in target
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=target)


def message_batches(
    found: Iterator[Found],
    raw: memoryview,
    holders: Holders,
    schema: StructType,
    tally: Tally | None = None,
    *,
    verify: bool,
) -> Iterator[pa.RecordBatch]:
    """Message records, a row each, and a row for each fault of an entry or a record.

    Entries that another partition's rows represent are left out.
    """
    segment = holders.segment
    columns = MessageColumns(raw, segment, schema)
    batch = _Batch(raw, segment.position, verify=verify)
    for each in found:
        offset, size, header, error = each
        index, term = _index_of(header), None if header is None else header.term
        mask = None if header is None else holders.of(raw, offset, size)
        if tally is not None:
            tally.add(each, mask, raw)
        if error is not None:
            batch.add_damage(Place(index, term, holders.own), offset, size, error)
        if header is not None and mask is not None and _has_records(raw, each, header):
            batch.add_records(Place(index, term, mask), offset + HEADER_BYTES, offset + size)
        if batch.is_full:
            yield columns.batch(batch.taken())
    if not batch.is_empty:
        yield columns.batch(batch.taken())


class _Batch:
    """Entries whose records are to be rows of one batch."""

    def __init__(self, raw: memoryview, base_position: int, *, verify: bool) -> None:
        self._walk = RecordWalk(raw, base_position, verify=verify)
        self._plain = PlainWalk(raw, base_position, verify=verify)
        self._clear()

    def _clear(self) -> None:
        self._ranges: list[tuple[Place, int, int, str | None]] = []
        self._chains: list[list[int]] = []
        self._rows = self._bytes = 0
        self._is_plain = True

    @property
    def is_empty(self) -> bool:
        return not self._ranges

    @property
    def is_full(self) -> bool:
        """Odd entries, which may have more rows than is known before they are walked."""
        if not self._is_plain and self._bytes >= ODD_BYTES_MAX:
            return True
        return self._rows >= BATCH_ROWS_MAX or self._bytes >= BATCH_BYTES_MAX

    def add_damage(self, place: Place, offset: int, size: int, error: str) -> None:
        """A row for an entry or a range with a fault."""
        self._ranges.append((place, offset, offset + size, error))
        self._rows += 1
        self._is_plain = False

    def add_records(self, place: Place, start: int, end: int) -> None:
        """Add the records between two bytes, all of one entry."""
        self._ranges.append((place, start, end, None))
        self._bytes += end - start
        chain = self._plain.starts(start, end)
        self._is_plain &= chain is not None
        self._chains.append(chain or [])
        self._rows += len(chain or ())

    def taken(self) -> RecordColumns:
        """All rows; the batch is empty then."""
        rows = None
        if self._is_plain:
            places = [place for place, *_ in self._ranges]
            rows = self._plain.rows(places, self._chains)
        if rows is None:
            rows = RecordColumns()
            for place, start, end, error in self._ranges:
                if error is None:
                    self._walk.walk(rows, place, start, end)
                else:
                    rows.add_damage(place, start, end - start, error)
        self._clear()
        return rows


class SegmentLook(Struct):
    """Findings about a segment's entries as a whole; entries that an earlier replica holds alike
    count there. `terms` says where each term begins. `disputed`: bytes are wrong, an entry does not
    follow the one before, or not all replicas hold the entries alike."""

    broker: str
    position: int
    entries: int = 0
    first_index: int = 0
    last_index: int = 0
    first_term: int = 0
    last_term: int = 0
    end: int = 0
    terms: dict[int, int] = {}
    disputed: bool = False


class Tally:
    """Looks at the entries of a segment. `listen` gets each sound one, where it begins in the
    segment's bytes, and where these begin in the log."""

    def __init__(
        self,
        segment: SegmentPartition,
        listen: Callable[[Header, memoryview, int, int], None] | None = None,
    ) -> None:
        self._everyone = (1 << len(segment.directories)) - 1
        self._listen = listen
        self.look = SegmentLook(segment.broker, segment.position)

    def add(self, found: Found, mask: int | None, raw: memoryview) -> None:
        """Add an entry or a damaged range of `raw`; `mask` is that of its holders."""
        look, header = self.look, found.header
        at = look.position + found.offset
        if header is not None and found.error is None and mask is not None and self._listen:
            self._listen(header, raw, found.offset, look.position)
        if header is None or found.error is not None or mask not in {None, self._everyone}:
            look.disputed = True
        elif mask is not None:
            if look.entries:
                follows = header.index == look.last_index + 1 and header.term >= look.last_term
                look.disputed |= not follows
            look.first_index = look.first_index or header.index
            look.first_term = look.first_term or header.term
            look.last_index, look.last_term = header.index, header.term
            look.entries += 1
            look.end = at + found.size
            look.terms.setdefault(header.term, at)


class Holders:
    """Tells which replicas of a broker hold an entry byte for byte as this one does.

    Comparing bytes costs far less than reading the same messages from every replica, and proves
    more than equal CRCs do.
    """

    def __init__(self, segment: SegmentPartition, *, merge: bool) -> None:
        self.segment = segment
        self.own = 1 << segment.number
        self._others: dict[int, memoryview] = {}
        if merge:
            for number in range(len(segment.directories)):
                with mapped(segment.path_of(number)) as raw:
                    if raw is not None and number != segment.number:
                        self._others[number] = raw

    def of(self, raw: memoryview, offset: int, size: int) -> int | None:
        """The mask of an entry's holders; None if an earlier replica holds it too, and its rows
        represent it."""
        mask = self.own
        entry = bytes(raw[offset : offset + size]) if self._others else b""
        for number, other in self._others.items():
            if bytes(other[offset : offset + size]) == entry:
                if number < self.segment.number:
                    return None
                mask |= 1 << number
        return mask


def _found(segment: SegmentPartition, raw: memoryview | None, *, verify: bool) -> Iterator[Found]:
    """The contents of the segment; if it is missing, one damaged range."""
    if segment.missing or raw is None:
        missing = max(1, segment.missing)
        are = "the segment file is" if missing == 1 else f"{missing} segment files are"
        return iter([Found(0, missing * segment.segment_bytes, None, f"{are} missing")])
    previous = _previous_chain_crc(segment) if verify else None
    found = scan_entries(raw, segment.position, segment.segment_bytes, previous, verify=verify)
    return _trusted(found)


def _index_of(header: Header | None) -> int | None:
    """An entry's index, if it is known."""
    return None if header is None else header.index or None


def _has_records(raw: memoryview, found: Found, header: Header) -> bool:
    """Whether the entry holds messages; where its header is wrong, its body is looked at."""
    if header.kind in OF_MESSAGES:
        return True
    at = found.offset + HEADER_BYTES + MAGIC_AT
    if found.error is None or at + U32.size > found.offset + found.size:
        return False
    return bool(U32.unpack_from(raw, at) == (MAGIC,))


def _trusted(found: Iterator[Found]) -> Iterator[Found]:
    """The findings, without claims of headers that can't be true.

    Of an entry with a fault its index is believed only beside that of a neighbour; and a number
    that no log has is a fault.
    """
    following: int | None = None
    ahead = chain((_possible(each) for each in found), (None,))
    for each, after in pairwise(ahead):
        assert each is not None
        header, index = each.header, 0
        if header is None:
            following = None
        elif each.error is None:
            following = header.index + 1
        else:
            behind = None if after is None or after.error is not None else after.header
            if header.index == following or (behind and behind.index == header.index + 1):
                index = header.index
            following = index + 1 if index else None
            yield each._replace(header=structs.replace(header, index=index))
            continue
        yield each


def _possible(found: Found) -> Found:
    """An entry with an error if it has a number that no log has."""
    header = found.header
    if header is None or (
        0 < header.index <= INT64_MAX and header.term <= INT64_MAX and header.kind <= INT32_MAX
    ):
        return found
    said = f"index {header.index}, term {header.term}, kind {header.kind}: no log has these"
    possible = structs.replace(
        header, index=0, term=min(header.term, INT64_MAX), kind=min(header.kind, INT32_MAX)
    )
    return Found(found.offset, found.size, possible, found.error or said)


def _previous_chain_crc(segment: SegmentPartition) -> int | None:
    """The start value of the segment's first link; None if the segment before can't be read."""
    path = segment.previous_path
    if path is None:
        return 0
    with mapped(path) as raw:
        if raw is None:
            return None
        return last_chain_crc(raw, segment.position - segment.segment_bytes, segment.segment_bytes)
