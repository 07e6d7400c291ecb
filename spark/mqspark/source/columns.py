"""Records of a segment as Arrow columns. Only the wanted columns are made.

Python's walk (:mod:`mqspark.source.records`) has found where the records are. Fields at fixed
places are cut out of the mapped file by numpy, a whole batch at a time; the others are made row by
row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from dledger.checksum import crc32
from dledger.errors import BadInput
from dledger.remoting.message import (
    KEYS,
    LARGE_BODY,
    LARGE_PART,
    PARTS_PREFIX,
    TAGS,
    host_decode,
    properties_decode,
)
from dledger.remoting.record import Record
from dledger.remoting.record.columns import RecordColumns as Columns
from dledger.remoting.record.layout import FRONT_FIELDS
from mqspark.limits import TIME_MS_MAX
from mqspark.source.planning import SegmentPartition
from mqspark.source.records import RecordColumns, sender_crc_in
from mqspark.source.schema import arrow_schema

Ints = npt.NDArray[np.int64]
Values = Iterable[object]

_US_PER_MS: Final = 1000
_STORE_TIMESTAMP: Final = "store_timestamp"


class MessageColumns:
    """Makes the wanted columns of batches of records of one segment."""

    def __init__(self, raw: memoryview, segment: SegmentPartition, schema: StructType) -> None:
        self._raw = raw
        self._segment = segment
        self._schema = arrow_schema(schema)
        self._makers: dict[str, Callable[[RecordColumns], Values]] = {
            "broker": lambda rows: [segment.broker] * len(rows),
            "replica": lambda rows: [segment.replica] * len(rows),
            "segment": lambda rows: [segment.position] * len(rows),
            "entry_index": lambda rows: [place.entry_index for place in rows.places],
            "holders": lambda rows: [place.holders for place in rows.places],
            "term": lambda rows: [place.term for place in rows.places],
            "position": lambda rows: np.array(rows.starts, np.int64) + segment.position,
            "size": lambda rows: rows.sizes,
            "topic": lambda rows: rows.topics,
            "unique_key": lambda rows: rows.unique_keys,
            "content_crc": lambda rows: rows.content_crcs,
            "error": lambda rows: _at_numbers(rows, rows.errors, None),
            "moved": lambda rows: _at_numbers(rows, dict.fromkeys(rows.moved, True), False),
            "body_length": lambda rows: _where_whole(rows, (size for _, size in rows.bodies)),
            "body": lambda rows: _where_whole(rows, map(self._span, rows.bodies)),
            "record_crc": self._record_crcs,
            "born_host": lambda rows: self._hosts(rows, store=False),
            "store_host": lambda rows: self._hosts(rows, store=True),
            "keys": lambda rows: [_decoded(raw).get(KEYS) for raw in self._properties(rows)],
            "tags": lambda rows: [_decoded(raw).get(TAGS) for raw in self._properties(rows)],
            "sender_crc": self._sender_crcs,
            "large": self._large,
            "properties": lambda rows: _where_whole(
                rows, (list(_decoded(raw).items()) for raw in self._properties(rows))
            ),
        }

    def batch(self, rows: RecordColumns) -> pa.RecordBatch:
        """All wanted columns of these rows."""
        arrays = [
            pa.array(self._makers[column.name](rows), column.type)
            if column.name in self._makers
            else self._fixed(column.name, column.type, rows)
            for column in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fixed(self, name: str, kind: pa.DataType, rows: RecordColumns) -> pa.Array:
        """A field at a fixed place, of all records at once."""
        whole = rows.whole
        values = np.zeros(len(rows), np.int64)
        if whole.any():
            values[whole] = self._stored(name, rows)
        known = whole
        if pa.types.is_timestamp(kind):
            known = whole & (np.abs(values) <= TIME_MS_MAX)
            values = np.where(known, values, 0) * _US_PER_MS
        return pa.array(values, mask=~known).cast(kind)

    def _stored(self, name: str, rows: RecordColumns) -> Ints:
        """A field of the readable records, of which there are some."""
        columns = Columns(self._raw, np.array(rows.starts, np.int64)[rows.whole])
        if name == _STORE_TIMESTAMP:
            return columns.store_timestamps_ms
        fields = columns.front if name in FRONT_FIELDS else columns.back
        found: Ints = fields[name].astype(np.int64)
        return found

    def _record_crcs(self, rows: RecordColumns) -> Values:
        spans = zip(rows.starts, rows.sizes, strict=True)
        return _where_whole(rows, (crc32(self._raw[at : at + size]) for at, size in spans))

    def _sender_crcs(self, rows: RecordColumns) -> Values:
        flags = self._fixed("flag", pa.int32(), rows).to_pylist()
        return [
            None if flag is None else sender_crc_in(raw, flag)
            for flag, raw in zip(flags, self._properties(rows), strict=True)
        ]

    def _large(self, rows: RecordColumns) -> Values:
        """Where the parts of a body are, or whose part this is; few records say either."""
        found: list[str | None] = [None] * len(rows)
        parts = {topic for topic in {*rows.topics} if topic and topic.startswith(PARTS_PREFIX)}
        for k, (_, size) in enumerate(rows.bodies):
            if size and not parts:
                continue
            is_part = rows.topics[k] in parts
            if rows.topics[k] is not None and (is_part or not size):
                properties = _decoded(self._span(rows.properties[k]))
                found[k] = properties.get(LARGE_PART if is_part else LARGE_BODY)
                if is_part:
                    found[k] = f"{found[k]} {size}"
        return found

    def _hosts(self, rows: RecordColumns, *, store: bool) -> Values:
        """The born or store host of each record, as `address:port`."""
        hosts: list[str | None] = []
        for at, size, whole in zip(rows.starts, rows.sizes, rows.whole, strict=True):
            if not whole:
                hosts.append(None)
                continue
            record = Record(self._raw[at : at + size])
            host, port = host_decode(record.store_host if store else record.born_host)
            hosts.append(f"{host}:{port}")
        return hosts

    def _properties(self, rows: RecordColumns) -> Iterator[bytes]:
        return map(self._span, rows.properties)

    def _span(self, span: tuple[int, int]) -> bytes:
        at, size = span
        return bytes(self._raw[at : at + size])


def _at_numbers(rows: RecordColumns, values: Mapping[int, object], other: object) -> Values:
    """The values of the rows that have one; few have."""
    column = [other] * len(rows)
    for number, value in values.items():
        column[number] = value
    return column


def _where_whole(rows: RecordColumns, values: Values) -> Sequence[object]:
    """The values, with null where the row is no readable record."""
    return [value if whole else None for value, whole in zip(values, rows.whole, strict=True)]


def _decoded(properties: bytes) -> dict[str, str]:
    """The properties; none if they are no properties, as damaged ones may be."""
    try:
        return properties_decode(properties)
    except BadInput:
        return {}
