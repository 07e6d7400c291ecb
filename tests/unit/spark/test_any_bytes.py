"""Any bytes in a replica's files are read, or named as damage; none ends an audit."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.checksum import crc32
from dledger.errors import ConfigError, CorruptLog
from dledger.log.entry import HEADER, HEADER_BYTES, Kind
from dledger.log.head import LogHead, decode_head, encode_head
from dledger.log.replica import describe_replica
from dledger.log.segments.segment import segment_path
from dledger.remoting.record.layout import BODY_AT
from mqspark.source.planning import Replica, find_replicas
from mqspark.source.reader import SegmentReader
from mqspark.source.schema import ENTRIES, MESSAGES, row_schema
from mqspark.testing.synthetic import LogWriter, Run, write_run

RUN = Run(messages=120, queues=3, batch=10, segment_bytes=16_384, nodes=("n0", "n1"))
Rows = list[dict[str, object]]
#: The header's fields: name, first byte, bytes.
HEADER_FIELDS = [
    *(("magic", 0, 4), ("size", 4, 4), ("index", 8, 8), ("term", 16, 8), ("position", 24, 8)),
    *(("kind", 32, 4), ("chain_crc", 36, 4), ("body_crc", 40, 4), ("body_length", 44, 4)),
]
#: A record's bytes up to its body, four at a time; its body, its topic, its properties.
RECORD_PLACES = [*range(0, BODY_AT, 4), BODY_AT + 2, -100, -60, -20, -1]


def read(replicas: list[Replica], level: str) -> Rows:
    schema = row_schema(level, body=True, properties=True)
    reader = SegmentReader(replicas, level, schema, verify=True, merge=True)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def values(width: int) -> Iterator[int]:
    """Values for a field: single bits, the most, and a half."""
    for bit in range(0, 8 * width, 5):
        yield 1 << bit
    yield (1 << (8 * width)) - 1
    yield 1 << (8 * width - 1)


def written(folder: Path) -> tuple[list[Replica], Path, int, bytes]:
    """Two replicas, one's second segment, where its second entry begins, and what it holds."""
    _, stores = write_run(RUN, folder)
    replicas = find_replicas([str(store) for store in stores])
    path = segment_path(stores[0] / "log", replicas[0].segments[1])
    raw = path.read_bytes()
    size = HEADER.unpack_from(raw)[1]
    return replicas, path, -(-size // 8) * 8, raw


def test_each_field_of_a_header_may_hold_anything(tmp_path: Path) -> None:
    """Damage is named where it is, and all that stands elsewhere is read."""
    replicas, path, at, raw = written(tmp_path)
    sound = len(read(replicas, MESSAGES))
    for name, first, width in HEADER_FIELDS:
        for value in values(width):
            there = int.from_bytes(raw[at + first : at + first + width], "big")
            changed = (there ^ value).to_bytes(width, "big")
            path.write_bytes(raw[: at + first] + changed + raw[at + first + width :])
            position = replicas[0].segments[1] + at
            entries = read(replicas, ENTRIES)
            damaged = [row for row in entries if row["error"] is not None]
            assert {row["replica"] for row in damaged} == {"n0"}, (name, value)
            assert damaged[0]["position"] == position, (name, value)
            known = {row["index"] for row in entries if row["replica"] == "n1"}
            assert {row["index"] for row in entries} - known <= {None}, (name, value)
            messages = read(replicas, MESSAGES)
            whole = [row for row in messages if row["topic"] is not None]
            assert len(whole) >= sound, (name, value)
            assert any(row["error"] is not None for row in messages)


def test_each_field_of_a_record_may_hold_anything(tmp_path: Path) -> None:
    """A record with any field changed is named with its entry, and other messages are read."""
    replicas, path, at, raw = written(tmp_path)
    (size,) = struct.unpack_from(">I", raw, at + HEADER_BYTES)
    draw = random.Random(7)
    for place in RECORD_PLACES:
        for _ in range(4):
            where = at + HEADER_BYTES + (place if place >= 0 else size + place)
            noise = draw.choice([b"\xff\xff\xff\xff", draw.randbytes(4), bytes(4)])
            changed = bytearray(raw)
            changed[where : where + 4] = noise
            if bytes(changed) == raw:
                continue
            path.write_bytes(changed)
            messages = read(replicas, MESSAGES)
            assert any(row["error"] is not None for row in messages), place
            others = {row["unique_key"] for row in messages if row["holders"] == 3}
            assert len(others) == RUN.messages - RUN.batch, place


@pytest.mark.parametrize("index", [0, 2**63, 2**64 - 1])
@pytest.mark.parametrize("term", [1, 2**63])
def test_a_log_of_impossible_numbers_is_named(tmp_path: Path, index: int, term: int) -> None:
    """A log of impossible numbers is named, though all its checksums are right."""
    log = LogWriter(tmp_path / "n0", 16_384)
    log.append(Kind.NOOP, b"")
    log.next_index = index
    log.append(Kind.NOOP, b"", term)
    log.close()
    description = {"format": 1, "broker_name": "b", "node_id": "n0", "segment_bytes": 16_384}
    (tmp_path / "n0" / "replica.json").write_text(json.dumps(description))
    rows = read(find_replicas([str(tmp_path / "n0")]), ENTRIES)
    assert [row["error"] is None for row in rows] == [True, False]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


@given(
    name=st.sampled_from(["format", "broker_name", "node_id", "segment_bytes", "", None]),
    value=json_values,
)
def test_any_replica_json_is_taken_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str | None, value: object
) -> None:
    """Any replica.json is taken, or refused with the file's name."""
    folder = tmp_path_factory.getbasetemp() / "any-json"
    folder.mkdir(exist_ok=True)
    fields: object = {"format": 1, "broker_name": "b", "node_id": "n", "segment_bytes": 4096}
    if isinstance(fields, dict) and name is not None:
        fields[name] = value
    else:
        fields = value
    (folder / "replica.json").write_text(json.dumps(fields))
    try:
        found = describe_replica(folder)
    except ConfigError:
        return
    assert isinstance(fields, dict)
    assert (found.group, found.node_id) == (fields["broker_name"], fields["node_id"])
    assert fields["format"] == 1


def test_another_format_is_refused(tmp_path: Path) -> None:
    """A format of a later version is refused, as its files may mean anything."""
    description = {"format": 99, "broker_name": "b", "node_id": "n", "segment_bytes": 4096}
    (tmp_path / "replica.json").write_text(json.dumps(description))
    with pytest.raises(ConfigError, match=r"its format is 99, and this version reads 1"):
        describe_replica(tmp_path)


@given(raw=st.binary(max_size=64), signed=st.booleans())
def test_any_head_is_taken_or_refused(raw: bytes, signed: bool) -> None:
    """Any bytes of a head are taken or refused, also with a right checksum."""
    written = b"DLHD" + crc32(raw).to_bytes(4, "big") + raw if signed else raw
    try:
        head = decode_head(written)
    except CorruptLog:
        return
    assert head.base_position >= 0


@given(
    fields=st.tuples(
        st.integers(-(2**63), 2**64 - 1), st.integers(-(2**63), 2**64 - 1), st.integers(-1, 2**33)
    )
)
def test_any_numbers_in_a_head_are_taken_or_refused(fields: tuple[int, int, int]) -> None:
    """A head's numbers are taken or refused; no log has some of them."""
    payload = msgspec.msgpack.encode([*fields, b""])
    raw = b"DLHD" + crc32(payload).to_bytes(4, "big") + payload
    try:
        head = decode_head(raw)
    except CorruptLog:
        return
    assert head.base_position >= 0
    assert head.first_index >= 1


@settings(max_examples=20)
@given(raw=st.binary(min_size=1, max_size=40))
def test_a_replica_whose_head_is_lost_is_read_and_named(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    """A replica without its head is read from its first file on, and the reason is named."""
    folder = tmp_path_factory.mktemp("head")
    _, stores = write_run(Run(messages=40, batch=10, segment_bytes=16_384, nodes=("n0",)), folder)
    (stores[0] / "log" / "head").write_bytes(raw)
    (replica,) = find_replicas([str(stores[0])])
    assert replica.damage is not None
    assert "head" in replica.damage
    assert replica.begin == 0


def test_a_log_begins_where_its_head_says(tmp_path: Path) -> None:
    """A log begins where its head says; earlier segments are ignored, later gaps are damage."""
    replicas, _, _, _ = written(tmp_path)
    directory, bases = Path(replicas[0].directory), replicas[0].segments
    (directory / "log" / "head").write_bytes(encode_head(LogHead(bases[1], 9, 0)))
    (replica,) = find_replicas([str(directory)])
    assert (replica.begin, replica.first_index) == (bases[1], 9)
    assert replica.segments == bases[1:]
    segment_path(directory / "log", bases[1]).unlink()
    rows = read(find_replicas([str(directory)]), ENTRIES)
    missing = [row for row in rows if row["error"] is not None]
    assert (missing[0]["position"], missing[0]["error"]) == (
        bases[1],
        "the segment file is missing",
    )


def test_a_segment_far_away_does_not_make_a_row_for_each_that_is_missing(tmp_path: Path) -> None:
    """Missing segments before a far one are one row with their number."""
    replicas, path, _, raw = written(tmp_path)
    far = 16_384 * 10**9
    segment_path(path.parent, far).write_bytes(raw)
    rows = read(find_replicas([replicas[0].directory]), ENTRIES)
    told = [row["error"] for row in rows if "missing" in str(row["error"])]
    assert told == [f"{10**9 - len(replicas[0].segments)} segment files are missing"]
    segment_path(path.parent, far).rename(segment_path(path.parent, 16_384 * 10**16))
    with pytest.raises(ConfigError, match="no log reaches"):
        find_replicas([replicas[0].directory])
