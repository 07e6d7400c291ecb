"""Columns of pulled records equal the fields of `ReceivedMessage`, for any record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from dledger.errors import RecordError
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import host_bytes, properties_decode
from dledger.remoting.record import COMPRESSED, encode_record
from dledger.remoting.record.table import RecordTable
from mqclient.compression import check_compression
from mqclient.models import ReceivedMessage
from mqspark.topics.columns import COLUMNS, BatchMaker, arrow_schema
from mqspark.topics.data_source import spark_schema

QUEUE = MessageQueue("Tö", "broker-a", 3)
HOSTS = [host_bytes("10.1.2.3", 1), host_bytes("fd00::7", 1)]
SCHEMA = arrow_schema((), headers=True)
PIECES = [
    *(
        b"KEYS\x01a b\x02",
        b"TAGS\x01A\x02",
        b"UNIQ_KEY\x0100FF\x02",
        b"TAGS\x01B\x02",
        b"x\x01\x02",
    ),
    *(
        b"XKEYS\x01no\x02",
        b"\x02",
        b"odd",
        b"\x01v\x02",
        "ä\x01ö\n€\x02".encode(),
        b"n\x01a\x01b\x02",
    ),
]


def some_record(chance: random.Random, offset: int, *, odd: bool = True) -> bytes:
    body = chance.randbytes(chance.choice((0, 1, 30, 30, 2000)))
    flag = 0
    if odd and chance.random() < 0.2:
        compressor = check_compression(chance.choice(("zlib", "lz4", "zstd")), 0)
        assert compressor is not None
        body, flag = compressor.deflate(b"x" * 500)
    properties = b"".join(chance.choices(PIECES, k=chance.randrange(6)))
    if odd and chance.random() < 0.02:
        properties = b"\xff\x01\xfe\x02"
    return encode_record(
        topic=QUEUE.topic.encode(),
        queue_id=QUEUE.queue_id,
        body=body,
        properties=properties,
        sys_flag=flag,
        flag=chance.randrange(-(2**31), 2**31),
        born_timestamp_ms=chance.choice((0, 1_700_000_000_123, 2**62)),
        born_host=chance.choice(HOSTS),
        store_host=chance.choice(HOSTS),
        store_timestamp_ms=chance.choice((1, 1_700_000_000_123)),
        queue_offset=offset,
    )


def one_by_one(message: ReceivedMessage) -> dict[str, Any]:
    """The row of one message, field by field."""
    try:
        properties = properties_decode(message.record.properties)
    except Exception:
        properties = {}

    def time(ms: int) -> datetime | None:
        return datetime.fromtimestamp(ms / 1000, UTC) if ms < 2**60 else None

    return {
        "key": properties.get("KEYS"),
        "value": message.body,
        "topic": QUEUE.topic,
        "broker": QUEUE.broker_name,
        "queue": QUEUE.queue_id,
        "offset": message.queue_offset,
        "storeTimestamp": time(message.store_timestamp_ms),
        "bornTimestamp": time(message.born_timestamp_ms),
        "tags": properties.get("TAGS"),
        "messageId": properties.get("UNIQ_KEY"),
        "flag": message.flag,
        "sysFlag": message.record.sys_flag,
        "properties": sorted(properties.items()),
    }


def maker(*names: str, tags: frozenset[str] = frozenset()) -> BatchMaker:
    schema = arrow_schema(names, headers=False) if names else SCHEMA
    return BatchMaker(QUEUE, schema, lambda message: message.body, tags)


def only(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = batches
    return batch


def test_each_row_is_what_its_message_says() -> None:
    """A row equals its message, for any hosts, bodies, compression and properties."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(30):
        odd = chance.random() < 0.5
        count = chance.randrange(1, 40)
        table = RecordTable(b"".join(some_record(chance, n, odd=odd) for n in range(count)))
        batch = only(maker().batches(table))
        batch.validate(full=True)
        assert batch.schema == SCHEMA
        rows = batch.to_pylist()
        for row in rows:
            row["properties"] = sorted(row["properties"])
        assert rows == [
            one_by_one(ReceivedMessage(None, QUEUE.broker_name, table, n)) for n in range(count)
        ]


def test_any_columns_come_in_any_order() -> None:
    """Named columns alone are made, in any order."""
    chance = random.Random(39)
    table = RecordTable(b"".join(some_record(chance, n) for n in range(20)))
    whole = only(maker().batches(table))
    for _ in range(20):
        names = chance.sample([*COLUMNS], chance.randrange(1, len(COLUMNS) + 1))
        assert only(maker(*names).batches(table)) == whole.select(names)


def test_bodies_that_are_inflated_or_fetched_are_no_more_than_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table makes several batches with the rows of one, with and without a filter; only the
    body that passes the bound is beyond it."""
    chance = random.Random(39)
    table = RecordTable(b"".join(some_record(chance, n) for n in range(200)))
    for tags in (frozenset[str](), frozenset({"A"})):
        monkeypatch.setattr("mqspark.topics.columns.FETCHED_BYTES_MAX", 10**9)
        whole = only(maker(tags=tags).batches(table)).to_pylist()
        for most in (1, 500, 1200):
            monkeypatch.setattr("mqspark.topics.columns.FETCHED_BYTES_MAX", most)
            batches = [batch.to_pylist() for batch in maker(tags=tags).batches(table)]
            assert [row for rows in batches for row in rows] == whole
            fetched = [
                sum(len(row["value"]) for row in rows if row["sysFlag"] & COMPRESSED)
                for rows in batches
            ]
            assert len(batches) > 10
            assert max(fetched) <= -(-most // 500) * 500


def test_tags_are_compared_themselves() -> None:
    """Brokers compare hashes: what has another tag is left out here, and what has none."""
    chance = random.Random(39)
    table = RecordTable(b"".join(some_record(chance, n, odd=False) for n in range(200)))
    wanted = [
        row["offset"] for row in only(maker().batches(table)).to_pylist() if row["tags"] == "A"
    ]
    assert wanted
    assert (
        only(maker("offset", tags=frozenset({"A", "C"})).batches(table))["offset"].to_pylist()
        == wanted
    )


def test_damage_is_told_with_its_place() -> None:
    """Damage is told with its place: a wrong CRC, or lengths that don't fit."""
    chance = random.Random(39)
    data = bytearray(some_record(chance, 7, odd=False) + some_record(chance, 8, odd=False))
    schema = ("value",)
    for _ in range(200):
        spoilt = bytearray(data)
        spoilt[chance.randrange(88, len(data))] ^= 1 << chance.randrange(8)
        with suppress(RecordError):
            only(maker(*schema).batches(RecordTable(spoilt)))
    spoilt = bytearray(some_record(random.Random(3), 7, odd=False))
    while True:
        table = RecordTable(spoilt)
        begins, ends, _, _ = table.spans
        if ends[0] > begins[0]:
            break
        spoilt = bytearray(some_record(chance, 7, odd=False))
    spoilt[int(begins[0])] ^= 1
    with pytest.raises(RecordError, match="body of message 7 of .* does not match its CRC"):
        only(maker(*schema).batches(RecordTable(spoilt)))
    assert only(maker("offset").batches(RecordTable(spoilt))).num_rows == 1


def test_the_types_are_those_that_spark_gives_its_columns() -> None:
    """Spark misreads batches that differ in anything."""
    assert to_arrow_schema(spark_schema(SCHEMA), timezone="UTC") == SCHEMA
    assert isinstance(SCHEMA.field("value").type, type(pa.binary()))
