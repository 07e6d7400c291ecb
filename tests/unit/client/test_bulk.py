"""Columns to records: each row becomes a message as a producer makes it; wrong rows are named."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import host_bytes, properties_decode
from dledger.remoting.record import Record, walk
from dledger.remoting.record.batch import RecordBatch
from mqclient import BadMessage, Columns, Message
from mqclient.bulk.columns import encode_columns
from mqclient.bulk.models import RecordsBatch, Sender
from mqclient.connection.identity import UniqueKeys
from mqclient.producing.publishing import Publisher

NOW_MS = 1_790_000_000_000
QUEUES = tuple(MessageQueue("T", name, queue) for name in ("a", "b") for queue in range(3))


def sender(host: str = "10.0.0.1") -> Sender:
    """A sender at an IPv4 or IPv6 address."""
    return Sender(UniqueKeys("10.0.0.1"), host_bytes(host, 0), NOW_MS)


def made(columns: Columns, host: str = "10.0.0.1", **more: int) -> list[RecordsBatch]:
    """The batches of all rows."""
    return [*encode_columns("T", columns, QUEUES, sender(host), **more)]


def records_of(batch: RecordsBatch) -> list[Record]:
    """Records of a batch, which a broker would take."""
    RecordBatch(bytearray(batch.records), b"T", batch.runs)
    view = memoryview(batch.records)
    return [Record(view[start:]) for start in walk(view)]


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
plain = texts.map(lambda text: text.replace(" ", "_"))
rows = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=300),
        "key": st.none() | plain.map(lambda text: text[:2]),
        "tags": st.none() | plain,
        "properties": st.none() | st.dictionaries(texts.map(lambda text: "p" + text), texts),
        "born": st.none() | st.integers(0, 2**45),
    }
)


@given(st.lists(rows, max_size=60), st.integers(91, 2000), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_each_row_is_one_message_in_its_place(
    table: list[dict[str, object]], size_max: int, is_arrow: bool, is_ipv6: bool
) -> None:
    """Each row is one message in the queue of its key, in the order of rows, in bounded batches."""
    names = ("body", "key", "tags", "properties", "born")
    lists = {name: [row[name] for row in table] for name in names}
    if is_arrow:
        maps = [None if each is None else [*each.items()] for each in lists["properties"]]  # type: ignore[attr-defined]
        columns = Columns(
            pa.array(lists["body"], pa.binary()),
            pa.array(lists["key"], pa.string()),
            pa.array(lists["tags"], pa.string()),
            pa.array(maps, pa.map_(pa.string(), pa.string())),
            pa.array(lists["born"], pa.int64()).cast(pa.timestamp("ms")),
        )
    else:
        columns = Columns(**lists)
    batches = made(columns, "::1" if is_ipv6 else "10.0.0.1", batch_bytes_max=size_max)
    publisher = Publisher("T", QUEUES, lambda _: True, 0)
    left = {
        number: {
            **row,
            "properties": row["properties"] or {},
            "born": NOW_MS if row["born"] is None else row["born"],
        }
        for number, row in enumerate(table)
    }
    by_key: dict[str, list[int]] = {}
    unique = set()
    for batch in batches:
        found = records_of(batch)
        assert len(found) == batch.rows == sum(count for _, count in batch.runs)
        assert len(batch.records) <= size_max or batch.rows == 1
        for record in found:
            told = properties_decode(record.properties)
            unique.add(told.pop("UNIQ_KEY"))
            key = told.pop("KEYS", None)
            assert told.pop("__SHARDINGKEY", None) == key
            seen = {
                "body": bytes(record.body),
                "key": key,
                "tags": told.pop("TAGS", None),
                "properties": told,
                "born": record.born_timestamp_ms,
            }
            number = next(number for number, row in left.items() if row == seen)
            del left[number]
            if key is not None:
                by_key.setdefault(key, []).append(number)
                queue = publisher.choose(Message("T", b""), None, key, None)
                assert (queue.broker_name, queue.queue_id) == (batch.broker_name, record.queue_id)
    assert not left
    assert len(unique) == len(table)
    bodies = {number: row["body"] for number, row in enumerate(table)}
    for key, numbers in by_key.items():
        wanted = [number for number, row in enumerate(table) if row["key"] == key]
        assert [bodies[number] for number in numbers] == [bodies[number] for number in wanted]


def test_rows_without_a_key_use_all_queues_evenly() -> None:
    """Rows without a key go to all queues, some at a time, so that a batch has few runs."""
    batches = made(Columns([b"%d" % number for number in range(600)]))
    counts = {(batch.broker_name, *run) for batch in batches for run in batch.runs}
    assert counts == {(queue.broker_name, queue.queue_id, 100) for queue in QUEUES}


def test_times_have_any_unit() -> None:
    """Times may have any unit, as Spark and others keep them; a time zone changes nothing."""
    then = datetime(2026, 11, 27, tzinfo=UTC)
    for unit in ("s", "ms", "us", "ns"):
        born = pa.array([then], pa.timestamp(unit, tz="UTC"))
        ((record,),) = [records_of(batch) for batch in made(Columns([b""], born=born))]
        assert record.born_timestamp_ms == int(then.timestamp() * 1000)


WRONG = {
    "no body": {"body": [b"", None]},
    "a body of type str": {"body": [b"", "text"]},
    "a body of 4194305 bytes": {"body": [b"", bytes(4194305)]},
    "key='': expected a text that is not empty": {"key": ["k", ""]},
    "key=7: expected a text": {"key": ["k", 7]},
    "tags='': expected a text": {"tags": ["t", ""]},
    "the property UNIQ_KEY='7' is not sent": {"properties": [None, {"UNIQ_KEY": "7"}]},
    "names and values of properties are texts": {"properties": [None, {"a": 7}]},
    "has an empty value": {"properties": [None, [("a", "")]]},
    "both are the key whose order is kept": {
        "key": ["k", "l"],
        "properties": [None, {"__SHARDINGKEY": "m"}],
    },
    "properties of 32": {"properties": [None, {"a": "b" * 32700}]},
    "ends a name": {"tags": ["t", "a\x01b"]},
    "keys; brokers find a message by": {"key": ["k", " ".join(map(str, range(10_000)))]},
    "born=-1: a time is ms": {"born": [None, -1]},
    "born='now': a time is ms": {"born": [None, "now"]},
    "born=9223372036854775808: a time": {"born": [None, 2**63]},
}


@pytest.mark.parametrize("reason", WRONG)
def test_a_wrong_row_is_named_before_any_is_sent(reason: str) -> None:
    """The error has the wrong row's number and what is wrong with it."""
    columns = Columns(**{"body": [b"", b""], **WRONG[reason]})
    with pytest.raises(BadMessage, match=f"^row 1 of .* 'T': .*{re.escape(reason)}"):
        encode_columns("T", columns, QUEUES, sender())


def test_columns_are_equally_long() -> None:
    """Columns of different lengths are refused with their names."""
    with pytest.raises(BadMessage, match="tags has 1 rows, body has 2"):
        made(Columns([b"", b""], tags=["t"]))
    with pytest.raises(BadMessage, match="born has 3 rows, body has 2"):
        made(Columns([b"", b""], born=[1, 2, 3]))
