"""Reading segments: whole entries, damage, and where reading goes on."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

from dledger.checksum import crc32
from dledger.log.entry import HEADER_BYTES, Kind
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import host_bytes, properties_encode
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import encode_record
from mqclient.large.manifest import Manifest
from mqspark.limits import INFLATED_BODY_BYTES_MAX
from mqspark.source.planning import Replica, find_replicas
from mqspark.source.reader import SegmentReader
from mqspark.source.schema import ENTRIES, MESSAGES, row_schema
from mqspark.testing import planting
from mqspark.testing.synthetic import LogWriter, Run, write_run

RUN = Run(messages=300, queues=3, batch=10, segment_bytes=32_768, nodes=("n0", "n1"))
HOST = host_bytes("127.0.0.1", 10911)
Rows = list[dict[str, object]]


@pytest.fixture
def replicas(tmp_path: Path) -> list[Replica]:
    _, stores = write_run(RUN, tmp_path)
    return find_replicas([str(store) for store in stores])


def read(replicas: list[Replica], level: str, *columns: str, **options: bool) -> Rows:
    schema = row_schema(level, columns, body=True, properties=True)
    verify, merge = options.get("verify", True), options.get("merge", False)
    reader = SegmentReader(replicas, level, schema, verify=verify, merge=merge)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def damage(rows: Rows) -> Rows:
    return [row for row in rows if row["error"] is not None]


def test_every_entry_and_message_of_a_sound_log_is_read(replicas: list[Replica]) -> None:
    """A log of several segments gives all rows in order, and no error."""
    assert len(replicas[0].segments) > 2
    entries = read(replicas[:1], ENTRIES, "index", "kind", "error")
    assert [row["index"] for row in entries] == list(range(1, 32))
    assert damage(entries) == []
    messages = read(replicas[:1], MESSAGES, "unique_key", "queue_id", "queue_offset", "error")
    assert [row["unique_key"] for row in messages] == [RUN.message_id(n) for n in range(300)]
    assert [(row["queue_id"], row["queue_offset"]) for row in messages] == [
        (n % 3, n // 3) for n in range(300)
    ]
    assert damage(messages) == []


def test_every_column_of_a_message_is_what_was_written(replicas: list[Replica]) -> None:
    """All columns of a record, computed and stored, are as they were written."""
    row = read(replicas[:1], MESSAGES)[17]
    body, keys = row.pop("body"), {"KEYS": "key-10", "UNIQ_KEY": RUN.message_id(17)}
    assert isinstance(body, bytes)
    expected = {
        "topic": "Audited",
        "queue_id": 2,
        "queue_offset": 5,
        "holders": 1,
        "entry_index": 3,
        "term": 1,
        "body_length": len(body),
        "body_crc": crc32(body) & 0x7FFFFFFF,
        "content_crc": crc32(body),
        "born_host": "127.0.0.1:10911",
        "store_host": "127.0.0.1:10911",
        "unique_key": RUN.message_id(17),
        "keys": "key-10",
        "tags": None,
        "properties": list(keys.items()),
        "physical_offset": row["position"],
        "reconsume_times": 0,
        "error": None,
    }
    assert {name: row[name] for name in expected} == expected


def test_only_wanted_columns_come_and_in_the_wanted_order(replicas: list[Replica]) -> None:
    """Batches have exactly the Arrow schema that Spark was told."""
    schema = row_schema(MESSAGES, ["queue_offset", "born_timestamp", "topic"])
    reader = SegmentReader(replicas, MESSAGES, schema, verify=False)
    batch = next(iter(reader.read(reader.partitions()[0])))
    assert batch.schema.names == ["queue_offset", "born_timestamp", "topic"]
    assert batch.schema.field("born_timestamp").type == pa.timestamp("us", "UTC")


def test_merged_messages_come_once_and_name_their_holders(replicas: list[Replica]) -> None:
    """Entries that replicas hold alike are one row, and a different one is a row each."""
    target = RUN.message_id(42)
    planting.flip(replicas[1], target, recompute=False)
    rows = read(replicas, MESSAGES, "holders", "unique_key", "entry_index", merge=True)
    of_entry = [row for row in rows if row["entry_index"] == 6 and row["unique_key"]]
    assert sorted((row["unique_key"], row["holders"]) for row in of_entry) == sorted(
        (RUN.message_id(number), bit) for number in range(40, 50) for bit in (1, 2)
    )
    others = [row for row in rows if row["entry_index"] != 6]
    assert {row["holders"] for row in others} == {3}
    assert len(others) == 290


def test_a_flipped_body_is_an_error_of_its_entry_and_its_record(replicas: list[Replica]) -> None:
    """The record and its neighbours can still be read."""
    planting.flip(replicas[0], RUN.message_id(42), recompute=False)
    entry, record = damage(read(replicas[:1], MESSAGES, "unique_key", "position", "error"))
    assert (entry["unique_key"], record["unique_key"]) == (None, RUN.message_id(42))
    assert "the body has CRC" in str(entry["error"])
    assert "message body has CRC" in str(record["error"])
    assert len(read(replicas[:1], MESSAGES, "unique_key")) == 301


def test_zeros_in_an_entry_hide_one_message_only(replicas: list[Replica]) -> None:
    """Reading goes on at the next record that says its own position."""
    target = planting.find_message(replicas[0], RUN.message_id(42))
    planting.remove(replicas[0], RUN.message_id(42), recompute=False)
    rows = read(replicas[:1], MESSAGES, "unique_key", "position", "size", "error")
    _, hole = damage(rows)
    assert (hole["position"], hole["size"]) == (target.position, len(target.raw))
    assert len({row["unique_key"] for row in rows} - {None}) == 299


@pytest.mark.parametrize("field", [0, 4, 24], ids=["magic", "size", "position"])
def test_an_unreadable_header_costs_one_entry(field: int, replicas: list[Replica]) -> None:
    """A header that can't be trusted hides its entry; the next is found by its own position."""
    whole = read(replicas[:1], ENTRIES)
    target = whole[5]
    planting.patch(replicas[0], int(str(target["position"])) + field, b"\x77")
    rows = read(replicas[:1], ENTRIES)
    assert [row["index"] for row in rows] == [*range(1, 6), None, *range(7, 32)]
    gap = rows[5]
    assert gap["position"] == target["position"]
    assert gap["error"] == "no entry can be read here"
    # The next entry's link starts from a value that can't be read any more.
    assert "chain CRC" in str(rows[6]["error"])
    assert len(damage(rows)) == 2


def test_a_changed_term_breaks_one_link_of_the_chain(replicas: list[Replica]) -> None:
    """Every link starts from the stored value: one bad entry does not condemn the later ones."""
    target = read(replicas[:1], ENTRIES)[5]
    planting.patch(replicas[0], int(str(target["position"])) + 23, b"\x09")
    (bad,) = damage(read(replicas[:1], ENTRIES))
    assert (bad["index"], bad["term"]) == (target["index"], 9)
    assert "chain CRC" in str(bad["error"])


def test_links_are_checked_across_segments(replicas: list[Replica]) -> None:
    """The first entry of a segment continues the last one of the segment before."""
    rows = read(replicas[:1], ENTRIES)
    first = next(row for row in rows if row["position"] == 32_768)
    last = rows[rows.index(first) - 1]
    planting.patch(replicas[0], int(str(last["position"])) + 36, b"\x00\x00\x00\x00")
    bad = damage(read(replicas[:1], ENTRIES))
    assert [row["index"] for row in bad] == [last["index"], first["index"]]
    assert damage(read(replicas[:1], ENTRIES, verify=False)) == []


@pytest.mark.parametrize("shorten", [False, True], ids=["zeros", "short file"])
def test_a_cut_off_entry_is_damage(shorten: bool, replicas: list[Replica]) -> None:
    """A cut entry is one damaged range, and a shortened file another."""
    last = read(replicas[:1], ENTRIES)[-1]
    planting.truncate(replicas[0], 1, shorten=shorten)
    bad = damage(read(replicas[:1], ENTRIES))
    assert [row["position"] for row in bad][:1] == [last["position"]]
    expected = "an entry was cut off here" if shorten else "the body has CRC"
    assert expected in str(bad[0]["error"])
    assert len(bad) == 1 + shorten
    if shorten:
        middle = HEADER_BYTES + (int(str(last["size"])) - HEADER_BYTES) // 2
        at = int(str(last["position"])) + middle
        assert (bad[1]["position"], "the segment file has" in str(bad[1]["error"])) == (at, True)


def test_a_missing_segment_is_damage(replicas: list[Replica]) -> None:
    """A hole between segments is a row; the next segment's first link is taken as it is."""
    middle = replicas[0].segments[1]
    (Path(replicas[0].directory) / "log" / f"{middle:020}.seg").unlink()
    (again, *_) = find_replicas([replicas[0].directory])
    (gap,) = damage(read([again], ENTRIES))
    assert (gap["position"], gap["size"]) == (middle, 32_768)
    assert gap["error"] == "the segment file is missing"


def test_an_empty_segment_has_no_rows(replicas: list[Replica]) -> None:
    """An empty segment, reserved beforehand, has no rows and no error."""
    after = replicas[0].segments[-1] + 32_768
    (Path(replicas[0].directory) / "log" / f"{after:020}.seg").write_bytes(bytes(32_768))
    (again, *_) = find_replicas([replicas[0].directory])
    assert damage(read([again], ENTRIES)) == []
    assert len(read([again], ENTRIES)) == 31


@pytest.mark.parametrize("seed", range(20))
def test_no_damage_stops_the_reader(seed: int, replicas: list[Replica]) -> None:
    """Whatever bytes are written anywhere: rows come, and only what was hit is lost."""
    noise = random.Random(seed).randbytes(200)
    end = int(str(read(replicas[:1], ENTRIES)[-1]["position"]))
    at = int.from_bytes(noise[:4], "big") % end
    planting.patch(replicas[0], at, noise)
    assert len(damage(read(replicas[:1], ENTRIES))) >= 1, f"seed {seed}, at {at}"
    messages = read(replicas[:1], MESSAGES, "unique_key", "error")
    intact = {row["unique_key"] for row in messages if row["error"] is None} - {None}
    assert len(intact) >= 300 - 2 * RUN.batch, f"seed {seed}, at {at}"


def stored(
    topic: str, body: bytes, position: int, properties: dict[str, str], sys_flag: int = 0
) -> bytes:
    """An encoded record of the test."""
    return encode_record(
        topic=topic.encode(),
        queue_id=0,
        body=body,
        properties=properties_encode(properties),
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host=HOST,
        physical_offset=position,
        store_host=HOST,
    )


def log_of(
    directory: Path,
    *entries: list[tuple[str, bytes, dict[str, str], int]],
    kind: Kind = Kind.MESSAGES,
) -> Replica:
    """A replica with these entries of records: topic, body, properties, system flag."""
    store = directory / "n0"
    log = LogWriter(store, 1 << 20)
    for entry in entries:
        sizes = sum(len(stored(t, body, 0, told, flag)) for t, body, told, flag in entry)
        at, raw = log.body_position(sizes), b""
        for topic, body, told, flag in entry:
            raw += stored(topic, body, at + len(raw), told, flag)
        log.append(kind, raw)
    log.close()
    description = {"format": 1, "broker_name": "b", "node_id": "n0", "segment_bytes": 1 << 20}
    (store / "replica.json").write_text(json.dumps(description))
    (replica,) = find_replicas([str(store)])
    return replica


def test_messages_that_were_sent_one_by_one_are_messages(tmp_path: Path) -> None:
    """A leader under load gathers single sends into entries of a kind of their own."""
    sends = [(f"T{number % 2}", b"x", {"UNIQ_KEY": f"k{number}"}, 0) for number in range(4)]
    replica = log_of(tmp_path, sends, kind=Kind.SENDS)
    rows = read([replica], MESSAGES, "topic", "unique_key", "error")
    assert [(row["topic"], row["unique_key"], row["error"]) for row in rows] == [
        ("T0", "k0", None),
        ("T1", "k1", None),
        ("T0", "k2", None),
        ("T1", "k3", None),
    ]


BODY = b"as it was sent " * 50


@pytest.mark.parametrize(
    ("body", "sys_flag", "expected"),
    [
        (BODY, 0, crc32(BODY)),
        (zlib.compress(BODY), 0x001, crc32(BODY)),
        (zlib.compress(BODY), 0x301, crc32(BODY)),
        (lz4.frame.compress(BODY, block_linked=False), 0x101, crc32(BODY)),
        (zstandard.ZstdCompressor().compress(BODY), 0x201, crc32(BODY)),
        (BODY, 0x101, None),
        (BODY, 0x201, None),
        (BODY, 0x301, None),
        (BODY, 0x401, None),
        (lz4.frame.compress(bytes(INFLATED_BODY_BYTES_MAX + 1)), 0x101, None),
        (zstandard.ZstdCompressor().compress(bytes(INFLATED_BODY_BYTES_MAX + 1)), 0x201, None),
        (lz4.frame.compress(BODY)[:-8], 0x101, None),
    ],
)
def test_bodies_are_compared_as_they_were_sent(
    tmp_path: Path, body: bytes, sys_flag: int, expected: int | None
) -> None:
    """Whatever compressed them; of what can't be inflated, or is too much, nothing is said."""
    replica = log_of(tmp_path, [("T", body, {"UNIQ_KEY": "k"}, sys_flag)])
    (row,) = read([replica], MESSAGES, "content_crc", "error")
    assert row == {"content_crc": expected, "error": None}


def test_a_body_in_parts_has_the_checksum_that_its_message_tells(tmp_path: Path) -> None:
    """A body in parts has its manifest's checksum, and a plain body its own."""
    manifest = Manifest("set", 5 << 20, 0x1234ABCD, MessageQueue("%PARTS%T", "b", 0), [(7, 9)])
    told = {"UNIQ_KEY": "k", "LARGE_BODY": manifest.encode()}
    replica = log_of(tmp_path, [("T", b"", told, 0)], [("T", BODY, told, 0)])
    rows = read([replica], MESSAGES, "content_crc")
    assert [row["content_crc"] for row in rows] == [0x1234ABCD, crc32(BODY)]


def test_what_the_broker_itself_has_moved_is_told_apart(tmp_path: Path) -> None:
    """A note at an entry's beginning marks the rest as moved by the broker; later ones don't."""
    note, message = (OP_TOPIC, b"x", {}, 0), ("rmq_sys_wheel_timer", b"y", {"UNIQ_KEY": "k"}, 0)
    replica = log_of(tmp_path, [message], [note, message, message], [message, note, message])
    rows = read([replica], MESSAGES, "moved")
    assert [row["moved"] for row in rows] == [*(False, False, True, True), *(False, False, False)]
