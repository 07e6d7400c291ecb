"""The rows that the data source `dledger` gives, as Spark types and, from these, Arrow types.

Level `entries` has a row for each log entry, level `messages` one for each message record. Bytes
that can't be read are rows too: `error` says what is wrong, `position` and `size` where, and the
fields that could not be read are null. So every field is nullable, which is also what makes Arrow
batches match the Spark schema exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dledger.errors import ConfigError

ENTRIES: Final = "entries"
MESSAGES: Final = "messages"

_TEXT, _INT, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()

#: Where a row was found: broker name, node id, first position of the segment file.
_ORIGIN: Final[dict[str, DataType]] = {"broker": _TEXT, "replica": _TEXT, "segment": _LONG}

#: CRCs are unsigned 32-bit values, hence longs. `size` includes the header, without padding.
_ENTRY: Final[dict[str, DataType]] = {
    **_ORIGIN,
    "index": _LONG,
    "term": _LONG,
    "position": _LONG,
    "size": _LONG,
    "kind": _INT,
    "chain_crc": _LONG,
    "body_crc": _LONG,
    "body_length": _LONG,
    "error": _TEXT,
}

#: `holders` is a mask of replicas: bit i is the broker's i-th by node id. Without the option
#: `merge` it is the row's own replica; with it, a record whose entry several replicas hold byte for
#: byte alike is one row, `holders` names them all, and `replica` is the first of them.
#: `position` is where the record stands; `physical_offset` is where it says that it stands.
#: `body_crc` is the stored field (31 bits), `content_crc` the CRC-32 of the body as the
#: application sent it, of all its parts if it is stored in parts (null if it can't be inflated, or
#: with verify=none), `record_crc` that of the whole record, `sender_crc` that of its sender's flag,
#: keys, tag and own properties. `large` says where the parts of a large body are, or of which body
#: this is a part, and how many bytes of it. `moved`: its entry begins with a note
#: of the broker's, so the broker itself stored it.
_MESSAGE: Final[dict[str, DataType]] = {
    **_ORIGIN,
    "holders": _LONG,
    "entry_index": _LONG,
    "term": _LONG,
    "position": _LONG,
    "size": _LONG,
    "topic": _TEXT,
    "queue_id": _INT,
    "queue_offset": _LONG,
    "physical_offset": _LONG,
    "flag": _INT,
    "sys_flag": _INT,
    "born_timestamp": _TIME,
    "born_host": _TEXT,
    "store_timestamp": _TIME,
    "store_host": _TEXT,
    "reconsume_times": _INT,
    "prepared_offset": _LONG,
    "body_length": _INT,
    "body_crc": _LONG,
    "content_crc": _LONG,
    "record_crc": _LONG,
    "unique_key": _TEXT,
    "keys": _TEXT,
    "tags": _TEXT,
    "error": _TEXT,
    "moved": BooleanType(),
    "sender_crc": _LONG,
    "large": _TEXT,
}
_BODY: Final[dict[str, DataType]] = {"body": BinaryType()}
_PROPERTIES: Final[dict[str, DataType]] = {"properties": MapType(_TEXT, _TEXT)}


def row_schema(
    level: str, columns: Sequence[str] = (), *, body: bool = False, properties: bool = False
) -> StructType:
    """The schema of `level`. `columns` names the wanted ones, in that order; none means all.

    Bodies and the property map are large: they come only if asked for, by flag or by name.
    Raises ConfigError for an unknown level or column.
    """
    if level == ENTRIES:
        known = default = _ENTRY
    elif level == MESSAGES:
        known = {**_MESSAGE, **_BODY, **_PROPERTIES}
        default = _MESSAGE | (_BODY if body else {}) | (_PROPERTIES if properties else {})
    else:
        raise ConfigError(f"option level={level!r}: it is {ENTRIES!r} or {MESSAGES!r}")
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ConfigError(
            f"option columns: level {level!r} has no column {unknown[0]!r}; it has "
            + ", ".join(known)
        )
    return StructType([StructField(name, known[name], True) for name in columns or default])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that batches must have: exactly this one, or Spark misreads them."""
    return to_arrow_schema(schema, timezone="UTC")
