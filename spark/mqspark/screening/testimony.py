"""Testimony: everything that a source says of a message, as one long table.

A source is a send, an acknowledgement, a failure, a delivery, or a replica's file. Replicas that
hold an entry byte for byte alike give one row, with a mask of its holders.

A delayed message, and one of a transaction, is stored twice: where it waits, and in its topic when
its time has come or its transaction was committed. Only the copy in its topic has a place in a
queue, is read, and is counted. An acknowledgement names the position where the message waits.

Messages, queues and groups have numbers besides their names, which are cheap to compare: 64 bits
of a hash. Were two messages ever to share one, they would look like one of which different things
are said, and be judged exactly, by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dledger.remoting.message import DLQ_PREFIX
from dledger.remoting.names import WAITING_TOPICS
from mqspark.history.events import OF_MESSAGES
from mqspark.screening.hashing import hashed

SEND, ACK, FAIL, DELIVER, RESOLVE, SETTLE = OF_MESSAGES
#: How a member is through with what it popped: it has acknowledged it, or given it up.
ACKED: Final = "ack"
DEAD: Final = "dead"
STORED: Final = "stored"
#: An acknowledgement of a message that waits, and such a message in a replica's file.
WAITING, HELD = "waiting", "held"
#: A dead letter in a replica's file.
BURIED: Final = "buried"
DEAD_LETTERS: Final = DLQ_PREFIX
SOURCES: Final = (*OF_MESSAGES, STORED, WAITING, HELD, BURIED)
#: The columns that name a queue.
QUEUE: Final = ("broker", "topic", "queue_id")
#: The columns of a record that the testimony needs.
RECORD_COLUMNS: Final = (
    *("broker", "holders", "position", "topic", "queue_id", "queue_offset"),
    *("unique_key", "content_crc", "error", "moved", "large"),
)
#: A further column, if the history says what senders said of their messages.
SENDER_CRC: Final = "sender_crc"
#: `crc` is that of the body as sent, `properties` that of what else the sender said; `identity` and
#: `queue` are numbers for names.
TESTIMONY: Final = pa.schema(
    {
        "source": pa.string(),
        "t": pa.int64(),
        "client": pa.string(),
        "id": pa.string(),
        "group": pa.string(),
        "broker": pa.string(),
        "holders": pa.int64(),
        "topic": pa.string(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "position": pa.int64(),
        "crc": pa.int64(),
        "properties": pa.int64(),
        "definite": pa.bool_(),
        "error": pa.string(),
        "due": pa.int64(),
        "transaction": pa.string(),
        "expires": pa.int64(),
        "pop_time": pa.int64(),
        "asked": pa.int64(),
        "priority": pa.int64(),
        "how": pa.string(),
        "counted": pa.bool_(),
        "identity": pa.int64(),
        "queue": pa.int64(),
    }.items()
)
_RENAMED: Final = {"queue_offset": "offset"}
Values = dict[str, Any]


def of_events(events: pa.Table, topics: Sequence[str]) -> pa.Table:
    """Statements of clients about messages of these topics."""
    events = _where(
        events,
        pc.and_(
            pc.and_(_among(events["kind"], OF_MESSAGES), pc.is_valid(events["id"])),
            pc.or_(pc.is_null(events["topic"]), _among(events["topic"], topics)),
        ),
    )
    waits = pc.and_(pc.equal(events["kind"], ACK), pc.fill_null(events["waiting"], False))
    said = {
        name: events[_RENAMED.get(name, name)]
        for name in TESTIMONY.names
        if _RENAMED.get(name, name) in events.column_names
    }
    return _table(said | {"source": pc.if_else(waits, WAITING, events["kind"])}, len(events))


def of_records(rows: pa.Table, topics: Sequence[str]) -> pa.Table:
    """Records of replicas in these topics, of messages that wait, and of dead letters.

    What the broker has moved to wait anew is left out: it repeats what was said before.
    """
    waits = pc.and_(_among(rows["topic"], WAITING_TOPICS), pc.invert(rows["moved"]))
    wanted = pc.or_(_among(rows["topic"], topics), _of_dead_letters(rows["topic"]))
    rows = _where(rows, pc.or_(wanted, waits))
    # A record without a unique key was not sent by our producers: it is named by its place.
    unnamed = pc.binary_join_element_wise("no UNIQ_KEY, at ", _text(rows["position"]), "")
    held = {name: rows[name] for name in TESTIMONY.names if name in rows.column_names}
    added = {
        "source": _source_of(rows["topic"]),
        "id": pc.coalesce(rows["unique_key"], unnamed),
        "crc": rows["content_crc"],
    }
    if SENDER_CRC in rows.column_names:
        added["properties"] = rows[SENDER_CRC]
    return _table(held | added, len(rows))


def _where(rows: pa.Table, wanted: pa.ChunkedArray) -> pa.Table:
    """The wanted rows; mostly all are, and then none need be copied."""
    return rows if pc.all(wanted).as_py() else rows.filter(wanted)


def _source_of(topics: pa.ChunkedArray) -> pa.ChunkedArray:
    of_others = pc.if_else(_of_dead_letters(topics), BURIED, STORED)
    return pc.if_else(_among(topics, WAITING_TOPICS), HELD, of_others)


def _of_dead_letters(topics: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.starts_with(topics, DEAD_LETTERS), False)


def with_queue(rows: pa.Table) -> pa.Table:
    """`rows` with their queue's number."""
    return rows.append_column("queue", queue_number(rows))


def queue_number(rows: pa.Table) -> pa.Array:
    """The number of each row's queue, of a topic on a broker.

    Rows are many and queues few: a queue is named once, by its places in the columns' dictionaries.
    """
    names, codes = pa.array([""]), np.zeros(len(rows), np.int64)
    for column in QUEUE:
        values = pa.chunked_array(rows[column]).combine_chunks()
        known = values.dictionary_encode(null_encoding="encode")
        count, places = len(known.dictionary), known.indices.to_numpy()
        pairs = pa.array(codes * count + places).dictionary_encode()
        pair, codes = pairs.dictionary.to_numpy(), pairs.indices.to_numpy().astype(np.int64)
        added = pc.fill_null(_text(known.dictionary), "").take(pa.array(pair % max(1, count)))
        names = pc.binary_join_element_wise(
            names.take(pa.array(pair // max(1, count))), added, "\x00"
        )
    return pa.array(hashed(names)[codes])


def _table(values: Values, count: int) -> pa.Table:
    values["identity"] = pa.array(hashed(values["id"]))
    rows = {
        field.name: values.get(field.name, pa.nulls(count, field.type))
        for field in TESTIMONY
        if field.name != "queue"
    }
    return with_queue(pa.table(rows)).cast(TESTIMONY)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _among(column: pa.ChunkedArray, values: Sequence[str]) -> pa.ChunkedArray:
    return pc.is_in(column, value_set=pa.array(values, pa.string()))
