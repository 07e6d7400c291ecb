"""Stored records: golden bytes, lazy reading, and whole batches checked and placed at once."""

from __future__ import annotations

import contextlib
import re
import struct
import zlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from instructions import Counter

from dledger.errors import RecordError
from dledger.limits import PROPERTIES_BYTES_MAX
from dledger.remoting.message import host_bytes, properties_encode
from dledger.remoting.record import (
    BORN_HOST_IPV6,
    STORE_HOST_IPV6,
    Record,
    encode_record,
    encode_records,
    place_records,
    walk,
)
from dledger.remoting.record.batch import RecordBatch
from dledger.remoting.record.encode import Fields
from dledger.remoting.record.layout import (
    MAGIC,
    RECORD_OVERHEAD_BYTES,
    SIZE_AND_MAGIC,
    SYS_FLAG_LOW_BYTE_AT,
)
from dledger.remoting.record.lone import LoneRecord, parse_records

IPV4 = host_bytes("127.0.0.1", 1234)
IPV6 = host_bytes("::1", 1234)
STORE = host_bytes("127.0.0.1", 10911)

GOLDEN = bytes.fromhex(
    "00000066 daa320a7 3610a686 00000003 00000007"  # size, magic, body CRC, queue id, flag
    "0000000000000005 0000000000001000 00000001"  # queue offset, physical offset, system flag
    "0000018bcfe56800 7f000001000004d2"  # born timestamp, born host
    "0000018bcfe56801 7f00000100002a9f"  # store timestamp, store host
    "00000002 0000000000000009 00000005 68656c6c6f"  # reconsume, prepared, body
    "01 54 0005 6101620263"  # topic, properties
)


def record(**changes: object) -> bytes:
    values: dict[str, object] = {
        "topic": b"T",
        "queue_id": 0,
        "body": b"hello",
        "properties": b"",
        "born_timestamp_ms": 1_700_000_000_000,
        "born_host": IPV4,
    }
    return encode_record(**(values | changes))  # type: ignore[arg-type]


def test_a_record_is_encoded_to_the_golden_bytes() -> None:
    """A record has the layout's fields, with zlib's CRC without its top bit."""
    written = record(
        queue_id=3,
        flag=7,
        queue_offset=5,
        physical_offset=0x1000,
        sys_flag=1,
        store_timestamp_ms=1_700_000_000_001,
        store_host=STORE,
        reconsume_times=2,
        prepared_offset=9,
        properties=b"a\x01b\x02c",
    )
    assert written == GOLDEN


MESSAGES = st.lists(
    st.tuples(
        st.binary(max_size=20),
        st.one_of(st.binary(max_size=20), st.just(bytes(PROPERTIES_BYTES_MAX + 1))),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from((IPV4, IPV4, IPV4, IPV6)),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**31), 2**31),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1),
    ),
    min_size=1,
    max_size=6,
)


@given(
    messages=MESSAGES,
    topic=st.one_of(st.just(b"Topic"), st.binary(max_size=260)),
    store_host=st.sampled_from((STORE, IPV6)),
)
def test_many_records_are_those_that_each_would_be(
    messages: list[Fields], topic: bytes, store_host: bytes
) -> None:
    """Records encoded together are those encoded one by one, or refused if one of them is."""
    one_by_one, placed, starts = bytearray(), bytearray(), list[int]()
    try:
        for number, (body, properties, born, host, flag, system, times, before) in enumerate(
            messages
        ):
            starts.append(len(one_by_one))
            encode = partial(
                encode_record,
                topic=topic,
                queue_id=number // 3,
                body=body,
                properties=properties,
                born_timestamp_ms=born,
                born_host=host,
                flag=flag,
                sys_flag=system,
                reconsume_times=times,
                prepared_offset=before,
                store_host=store_host,
            )
            one_by_one += encode()
            placed += encode(
                queue_offset=7 + number,
                physical_offset=4096 + starts[-1],
                store_timestamp_ms=99,
            )
    except RecordError:
        with pytest.raises(RecordError):
            encode_records(messages, topic, [0] * len(messages), store_host)
        return
    queue_ids = [number // 3 for number in range(len(messages))]
    together, found = encode_records(messages, topic, queue_ids, store_host)
    assert (together, found) == (one_by_one, starts)
    place_records(together, starts, 7, 4096, 99)
    assert together == placed


def test_a_record_is_read_field_by_field() -> None:
    """The golden bytes are read to the fields that they were made of."""
    read = Record(GOLDEN)
    assert (read.size, read.queue_id, read.flag, read.queue_offset) == (0x66, 3, 7, 5)
    assert (read.physical_offset, read.sys_flag) == (0x1000, 1)
    assert (read.born_timestamp_ms, read.born_host) == (1_700_000_000_000, IPV4)
    assert (read.store_timestamp_ms, read.store_host) == (1_700_000_000_001, STORE)
    assert (read.reconsume_times, read.prepared_offset) == (2, 9)
    assert (read.body, read.topic, read.properties) == (b"hello", "T", b"a\x01b\x02c")
    assert read.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF
    assert read.check()


@given(
    st.binary(max_size=100),
    st.text("aZ-_%|9", min_size=1, max_size=127),
    st.binary(max_size=100),
    st.sampled_from([IPV4, IPV6]),
    st.sampled_from([STORE, IPV6]),
)
def test_a_record_survives_with_every_kind_of_host(
    body: bytes, topic: str, properties: bytes, born_host: bytes, store_host: bytes
) -> None:
    """IPv6 hosts move what follows them; the system flag says so."""
    written = record(
        body=body,
        topic=topic.encode(),
        properties=properties,
        born_host=born_host,
        store_host=store_host,
        store_timestamp_ms=17,
        reconsume_times=4,
        prepared_offset=12,
    )
    read = Record(written)
    assert read.size == len(written)
    assert (read.body, read.topic, read.properties) == (body, topic, properties)
    assert (read.born_host, read.store_host) == (born_host, store_host)
    assert (read.store_timestamp_ms, read.reconsume_times, read.prepared_offset) == (17, 4, 12)
    assert bool(read.sys_flag & BORN_HOST_IPV6) == (born_host is IPV6)
    assert bool(read.sys_flag & STORE_HOST_IPV6) == (store_host is IPV6)
    assert walk(written * 3) == [0, len(written), 2 * len(written)]


@pytest.mark.parametrize(
    "too_long", [{"topic": b""}, {"topic": b"x" * 128}, {"properties": b"x" * 32_768}]
)
def test_parts_that_do_not_fit_are_refused(too_long: dict[str, bytes]) -> None:
    """A length that wraps would lose every record behind it."""
    with pytest.raises(RecordError, match="allowed are|at most 32767"):
        record(**too_long)


def test_a_flipped_bit_in_the_body_is_found() -> None:
    """A flipped bit in the body is found by the check, on which the audit relies."""
    damaged = bytearray(GOLDEN)
    damaged[90] ^= 1
    assert not Record(damaged).check()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (GOLDEN[:-1], "record 0 reaches beyond the 101 bytes"),
        (GOLDEN + GOLDEN[:5], "record 0 reaches beyond"),
        (GOLDEN + bytes(200), "record 1 at byte 102 has size 0 and magic 0x00000000"),
        (struct.pack(">II", 2**32 - 1, 0xDAA320A7) + bytes(100), "record 0 reaches beyond"),
    ],
)
def test_walking_stops_at_what_is_no_record(data: bytes, reason: str) -> None:
    """The error says which record and where."""
    with pytest.raises(RecordError, match=reason):
        walk(data)


def test_walking_nothing_finds_nothing() -> None:
    """An empty pull has no records, and is not an error."""
    assert walk(b"") == []


RUNS = [(4, 2), (1, 1), (4, 1)]


def batch_bytes(**changes: object) -> bytearray:
    """Four records of different lengths and hosts, in RUNS."""
    return bytearray(
        b"".join(
            record(queue_id=queue_id, body=bytes(10 * number), born_host=host, **changes)
            for number, (queue_id, host) in enumerate([(4, IPV4), (4, IPV6), (1, IPV6), (4, IPV4)])
        )
    )


def test_a_batch_is_placed_in_its_own_bytes() -> None:
    """Queue offsets count up within a run, positions follow the bytes; nothing else changes."""
    buffer = batch_bytes()
    before = bytes(buffer)
    batch = RecordBatch(buffer, b"T", RUNS)
    assert batch.count == 4
    sizes = [Record(buffer[start:]).size for start in walk(buffer)]
    assert batch.larger_than(min(sizes)) == [
        start for start, size in zip(walk(buffer), sizes, strict=True) if size > min(sizes)
    ]

    batch.place(1_000_000, [70, 2**40, 90], 1_700_000_000_009, STORE)

    records = [Record(memoryview(buffer)[start:]) for start in walk(buffer)]
    assert [read.queue_offset for read in records] == [70, 71, 2**40, 90]
    assert [read.physical_offset for read in records] == [1_000_000 + s for s in walk(buffer)]
    assert {read.store_timestamp_ms for read in records} == {1_700_000_000_009}
    assert {read.store_host for read in records} == {STORE}
    assert all(read.check() for read in records)
    batch.place(0, [0, 0, 0], 0, bytes(8))
    for start, size in zip(batch.starts, sizes, strict=True):
        place_in_run = struct.pack(">q", 1) if start == batch.starts[1] else bytes(8)
        expected = before[start : start + 20] + place_in_run + struct.pack(">q", start)
        assert buffer[start : start + 36] == expected
        assert buffer[start + 36 : start + size] == before[start + 36 : start + size]


def test_a_batch_in_bytes_that_can_not_be_written_is_copied() -> None:
    """A body received in one chunk with others is a view of the chunk, and read-only."""
    received = bytes(batch_bytes())
    batch = RecordBatch(memoryview(received), b"T", RUNS)
    batch.place(5, [0, 0, 0], 0, STORE)
    assert Record(batch.buffer).physical_offset == 5
    assert Record(received).physical_offset == 0


def test_the_first_unique_key_names_the_batch() -> None:
    """A batch's first unique key is there, by which the broker knows a repeated request."""
    properties = properties_encode({"TAGS": "t", "UNIQ_KEY": "0A"})
    assert RecordBatch(batch_bytes(properties=properties), b"T", RUNS).first_unique_key == "0A"
    assert RecordBatch(batch_bytes(), b"T", RUNS).first_unique_key is None


def change(number: int, at: int, value: bytes) -> bytearray:
    """The batch with `value` at byte `at` of record `number`."""
    buffer = batch_bytes()
    start = walk(buffer)[number] + at
    buffer[start : start + len(value)] = value
    return buffer


@pytest.mark.parametrize(
    ("buffer", "reason"),
    [
        (change(2, 4, b"\0"), "record 2 at byte .* magic 0x00a320a7"),
        (change(1, 12, struct.pack(">i", 5)), "record 1: the queue id can't be 5"),
        (change(1, 8, b"\x7f"), "record 1: the body CRC can't be"),
        (change(3, 88, b"\x01"), "record 3: the body CRC can't be"),
        (change(3, 39, b"\x04"), "record 3: the system flag can't be 4"),
        (change(0, 39, b"\x20"), "record 0: the system flag can't be 32"),
        (change(0, 39, b"\x10"), "record 0: the size can't be 92"),
        (change(3, 84, struct.pack(">I", 31)), "record 3: the body length can't be 31"),
        (change(3, 84, struct.pack(">I", 2**31)), "record 3: the body length can't be 2147483648"),
        (change(3, 84, struct.pack(">I", 29)), "record 3: the topic"),
        (change(0, 88, b"\x02"), "record 0: the topic, which is not b'T', of length can't be 2"),
        (change(0, 89, b"U"), "record 0: the topic"),
        (change(0, 90, b"\0\1"), "record 0: the properties length can't be 1"),
    ],
)
def test_a_bad_record_is_refused_by_number_and_field(buffer: bytearray, reason: str) -> None:
    """A bad record is refused with its number and its field."""
    with pytest.raises(RecordError, match=reason):
        RecordBatch(buffer, b"T", RUNS)


@pytest.mark.parametrize(
    "runs", [[], [(4, 4)], [(4, 2), (1, 1)], [(4, 2), (1, 1), (4, 2)], [(4, 4), (1, -1), (4, 1)]]
)
def test_runs_must_add_up_to_the_records(runs: list[tuple[int, int]]) -> None:
    """Otherwise a record would get no offset, or one twice."""
    with pytest.raises(RecordError):
        RecordBatch(batch_bytes(), b"T", runs)


@pytest.mark.parametrize("queue_id", [-1, 2**31, 2**64])
def test_queue_ids_that_no_record_can_have_are_refused(queue_id: int) -> None:
    """Queue ids that don't fit are a RecordError, not an error of numpy."""
    with pytest.raises(RecordError, match="queue ids"):
        RecordBatch(batch_bytes(), b"T", [(queue_id, 4)])


@pytest.mark.parametrize("topic", [b"", b"T" * 128, b"T" * 300])
def test_topics_that_no_record_can_have_are_refused(topic: bytes) -> None:
    """A record holds the length in one byte."""
    with pytest.raises(RecordError, match="topic of"):
        RecordBatch(batch_bytes(), topic, RUNS)


def test_an_empty_batch_is_refused() -> None:
    """An empty batch is refused, as nothing could be acknowledged."""
    with pytest.raises(RecordError, match="runs of 0 records"):
        RecordBatch(b"", b"T", [])


def test_another_topic_is_refused_also_when_longer_than_the_record() -> None:
    """A longer topic than the record's is refused, since lengths are compared first."""
    with pytest.raises(RecordError, match="record 0: the size"):
        RecordBatch(batch_bytes(), b"T" * 100, RUNS)


@given(st.data())
def test_a_damaged_batch_is_refused_or_unchanged_in_what_counts(data: st.DataObject) -> None:
    """A batch with one replaced byte is refused, or has the same bodies and topic."""
    buffer = batch_bytes()
    position = data.draw(st.integers(0, len(buffer) - 1))
    buffer[position] = data.draw(st.integers(0, 255))
    try:
        batch = RecordBatch(buffer, b"T", RUNS)
    except RecordError:
        return
    records = [Record(memoryview(buffer)[start:]) for start in batch.starts]
    assert [bytes(read.body) for read in records] == [bytes(10 * n) for n in range(4)]
    assert {read.topic for read in records} == {"T"}


@given(st.data())
def test_a_record_alone_is_judged_and_placed_as_a_batch_of_one(data: st.DataObject) -> None:
    """The short way takes nothing that the long way refuses, and leaves the same bytes."""
    host = data.draw(st.sampled_from([IPV4, IPV6]))
    buffer = bytearray(record(body=bytes(data.draw(st.integers(0, 40))), born_host=host))
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(buffer) - 1))
        buffer[position] = data.draw(st.integers(0, 255))
    topic = data.draw(st.sampled_from([b"T", b"", b"U", b"TT", b"T" * 200]))
    runs = data.draw(st.sampled_from([[(3, 1)], [(4, 1)], [(-1, 1)], [(3, 2)], []]))
    try:
        batch = RecordBatch(bytearray(buffer), topic, runs)
    except RecordError as refused:
        with pytest.raises(RecordError, match=re.escape(str(refused))):
            parse_records(buffer, topic, runs)
        return
    lone = parse_records(buffer, topic, runs)
    for each in (batch, lone):
        each.place(77, [2**40], 1_700_000_000_009, STORE)
    assert bytes(lone.buffer) == bytes(batch.buffer)
    assert list(lone.starts) == list(batch.starts) == [0]
    assert (lone.count, lone.first_unique_key) == (batch.count, batch.first_unique_key)
    for size in (0, len(buffer) - 1, len(buffer)):
        assert lone.larger_than(size) == batch.larger_than(size)


@given(st.binary(max_size=400), st.integers(0, 300))
def test_random_bytes_are_refused(noise: bytes, cut: int) -> None:
    """Random bytes behind a good record or alone, whole or cut, are refused."""
    for data in (noise, GOLDEN[:cut] + noise):
        if data in (b"", GOLDEN):
            continue
        with pytest.raises(RecordError):
            RecordBatch(data, b"T", [(3, 2)])


FIELDS = sorted(name for name, kind in vars(Record).items() if isinstance(kind, property))


@given(st.binary(min_size=RECORD_OVERHEAD_BYTES, max_size=200), st.integers(0, 255))
def test_a_field_of_a_record_of_any_bytes_is_a_value_or_an_error(noise: bytes, flags: int) -> None:
    """Reading a field of any bytes with a right size and magic gives a value or a RecordError."""
    data = bytearray(noise)
    SIZE_AND_MAGIC.pack_into(data, 0, len(data), MAGIC)
    data[SYS_FLAG_LOW_BYTE_AT] = flags
    record = Record(data)
    read = {}
    for name in FIELDS:
        with contextlib.suppress(RecordError):
            read[name] = getattr(record, name)

    assert read["size"] == len(data)
    if record.fault is None:
        assert read.keys() | {"topic"} == {*FIELDS}


def test_python_runs_for_each_record_of_a_batch_only_to_compare_its_checksum() -> None:
    """Checking takes some 27 instructions for each record, and placing none."""

    def instructions(records: int) -> tuple[int, int]:
        buffer = bytearray(record(body=bytes(1024)) * records)
        checking, placing = Counter(), Counter()
        with checking.on():
            batch = RecordBatch(buffer, b"T", [(0, records)])
        with placing.on():
            batch.place(0, [0], 0, STORE)
        return checking.count, placing.count

    instructions(5)  # what is read once is read now
    (few_checked, few_placed), (checked, placed) = instructions(5), instructions(500)
    assert checked - few_checked <= 30 * 495
    assert placed == few_placed


def test_a_record_by_itself_needs_no_batch() -> None:
    """A single record is parsed without a batch, which would take fifty times as long."""
    assert isinstance(parse_records(bytearray(record()), b"T", [(0, 1)]), LoneRecord)
