"""The screening: parts miss no line, the digest no contradiction, the look at queues no gap."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from mqspark.history.packing import pack
from mqspark.screening import parts as parts_module
from mqspark.screening import queues as queues_module
from mqspark.screening.digest import Digest, added, digest
from mqspark.screening.logs import Log, agreed_logs
from mqspark.screening.packets import (
    NONE,
    SLOT,
    STATEMENT,
    Rows,
    divided,
    joined,
    packed,
    to_arrow,
    unpacked,
)
from mqspark.screening.parts import history_parts
from mqspark.screening.queues import doubtful_queues, range_numbers, ranges
from mqspark.screening.statements import statements
from mqspark.screening.tasks import SUMMARY, Reading, Summary
from mqspark.screening.testimony import TESTIMONY, of_events
from mqspark.source.planning import Replica, plan
from mqspark.source.planning import tasks as segment_tasks
from mqspark.source.reader import SegmentLook
from mqspark.testing import planting
from mqspark.testing.synthetic import Run, write_run

Said = dict[str, object]
EVENT: Said = {"id": "m", "topic": "T"}
PLACE: Said = EVENT | {"broker": "b", "queue_id": 0, "queue_offset": 4}
SEND: Said = EVENT | {"source": "send", "t": 10, "crc": 77}
ACK: Said = PLACE | {"source": "ack", "t": 20, "position": 500}
READ: Said = PLACE | {"source": "deliver", "t": 30, "crc": 77}
STORED: Said = PLACE | {"source": "stored", "position": 500, "crc": 77, "holders": 7}
GOOD = [SEND, ACK, READ, STORED]


def digested(*said: Said) -> Digest:
    """The digest of testimony about the message m, and of another message beside it."""
    other = [row | {"id": "n"} for row in GOOD]
    rows = [
        row | {"identity": ord(str(row["id"])), "queue": hash((row.get("queue_id"), row["topic"]))}
        for row in [*other, *said]
    ]
    testimony = pa.Table.from_pylist(rows, TESTIMONY)
    return digest(statements(testimony, ["b"]), np.array([7]))


def is_suspect(*said: Said) -> bool:
    found = digested(*said)
    assert not found.suspect[list(found.identity).index(ord("n"))]
    return bool(found.suspect[list(found.identity).index(ord("m"))])


@pytest.mark.parametrize(
    "said",
    [
        GOOD,
        [SEND],
        [SEND, STORED],
        [SEND, STORED | {"holders": 1}],
        [SEND, SEND | {"source": "fail", "definite": True}],
        [SEND, SEND | {"source": "fail", "definite": False}, STORED],
        [*GOOD, READ | {"t": 99}],
        [
            SEND,
            ACK | {"source": "waiting"},
            STORED | {"source": "held"},
            STORED | {"position": 900},
        ],
    ],
)
def test_what_may_be_is_not_suspect(said: list[Said]) -> None:
    """Sends of unknown outcome, repeats, and copies that wait are not suspect."""
    assert not is_suspect(*said)


@pytest.mark.parametrize(
    "said",
    [
        [ACK, READ, STORED],
        [STORED],
        [SEND, ACK],
        [SEND, READ],
        [SEND, ACK, STORED | {"holders": 3}],
        [SEND, READ, STORED | {"holders": 6}],
        [*GOOD, STORED],
        [SEND, ACK, STORED | {"error": "bad"}],
        [SEND, SEND | {"source": "fail", "definite": True}, STORED],
        [SEND, ACK | {"source": "waiting"}, STORED | {"source": "held", "holders": 3}],
        [SEND, ACK | {"source": "waiting"}, STORED | {"source": "held", "position": 4}],
        *(
            [row | {name: value} if row is changed else row for row in GOOD]
            for changed, (name, value) in product(
                (ACK, READ, STORED),
                [("queue_offset", 5), ("queue_offset", None), ("queue_id", 1), ("topic", "U")],
            )
        ),
        [SEND, ACK | {"position": 501}, READ, STORED],
        [SEND | {"crc": 78}, ACK, READ, STORED],
        [SEND, ACK, READ | {"crc": 78}, STORED],
        [SEND, STORED | {"topic": "U"}],
        [SEND, READ | {"topic": "U"}, STORED | {"topic": "U"}],
    ],
)
def test_what_contradicts_itself_is_suspect(said: list[Said]) -> None:
    """A message that was never sent, lost, doubled, damaged or moved is suspect."""
    assert is_suspect(*said)


def test_totals_of_parts_add_up() -> None:
    """Totals of parts are sums of counts, and the furthest ends."""
    whole = digested(*GOOD).totals([7])
    assert whole["stored"] == [[2, 2, 2]]
    twice = added([whole, whole | {"known": [9000]}])
    assert (twice["messages"], twice["reads"], twice["expected_copies"]) == (4, 16, 12)
    assert (twice["known"], twice["stored"]) == ([9000], [[4, 4, 4]])


def test_no_statement_gives_no_message() -> None:
    """A task may get nothing."""
    nothing = digest(np.empty(0, STATEMENT), np.array([7]))
    assert nothing.totals([7])["messages"] == 0
    assert len(nothing.slots()) == len(nothing.suspects()) == len(nothing.waiters()) == 0


def queue(offsets: range, number: int = 1) -> Rows:
    """A queue as it should be, sent, acknowledged and read one by one."""
    rows = np.zeros(len(offsets), SLOT)
    places = np.array(offsets)
    rows["queue"], rows["queue_offset"], rows["identity"] = number, places, places + 1000 * number
    rows["send_t"], rows["ack_t"], rows["read_t"] = 10 * places, 10 * places + 5, 10 * places + 7
    rows["position"] = 100 * places
    return rows


def doubtful(rows: Rows, *, from_start: bool = True) -> list[int]:
    """The doubtful queues, if three tasks look at them in whatever order."""
    shuffled = rows[np.random.default_rng(1).permutation(len(rows))]
    packets: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for place, data in divided(shuffled, range_numbers(shuffled, 3)):
        packets[place].append(data)
    found = np.concatenate([ranges(joined(some, SLOT)) for some in packets.values()])
    assert found["rows"].sum() == len(rows)
    return doubtful_queues(found, from_start=from_start)


@pytest.fixture(params=[4, 7, 100])
def _range_offsets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges so short that a fault lies within one, and between two."""
    monkeypatch.setattr(queues_module, "RANGE_OFFSETS", request.param)


def missing(rows: Rows, at: int) -> Rows:
    return np.delete(rows, at)


def twice(rows: Rows, at: int) -> Rows:
    return np.append(rows, rows[at : at + 1])


def misplaced(rows: Rows, at: int) -> Rows:
    rows["position"][at] = 100 * at + 150
    return rows


def overtaken(rows: Rows, at: int) -> Rows:
    rows["ack_t"][-1] = rows["send_t"][at] - 1
    return rows


def late(rows: Rows, at: int) -> Rows:
    rows["read_t"][-1] = rows["read_t"][at] - 1
    return rows


def skipped(rows: Rows, at: int) -> Rows:
    rows["read_t"][at] = NONE
    return rows


@pytest.mark.usefixtures("_range_offsets")
def test_a_queue_in_order_is_not_doubtful() -> None:
    """A queue in order is not doubtful, though its end is not read or acknowledged yet."""
    good = np.concatenate([queue(range(20)), queue(range(9), 2)])
    assert doubtful(good) == []
    good["read_t"][15:] = NONE
    good["ack_t"][3] = NONE
    assert doubtful(good) == []
    assert doubtful(queue(range(3, 20))) == [1]
    assert doubtful(queue(range(3, 20)), from_start=False) == []


@pytest.mark.usefixtures("_range_offsets")
@pytest.mark.parametrize("spoil", [missing, twice, misplaced, overtaken, late, skipped])
def test_a_fault_anywhere_makes_its_queue_doubtful(spoil: Callable[[Rows, int], Rows]) -> None:
    """A fault in a range or at its edge makes its queue doubtful, and no other."""
    for at in range(1, 18):
        rows = np.concatenate([queue(range(9), 2), spoil(queue(range(20)), at)])
        assert doubtful(rows) == [1], at


def test_rows_survive_their_packets() -> None:
    """Rows survive as bytes, and as columns, in which no value is null."""
    rows = queue(range(10))
    rows["read_t"][3] = NONE
    packets = list(divided(rows, rows["queue_offset"] % 3))
    assert sorted({place for place, _ in packets}) == [0, 1, 2]
    again = joined((data for _, data in packets), SLOT)
    assert sorted(again.tolist()) == sorted(rows.tolist())
    columns = to_arrow(rows)
    assert columns["read_t"].to_pylist()[2:5] == [27, None, 47]


def test_whole_numbers_of_any_size_survive_their_packets() -> None:
    """A column has as few bytes a row as its values are apart, be they the least and the most."""
    most = 2**63 - 1
    for spread, width in [(0, 0), (255, 1), (256, 2), (2**16, 4), (2**32 - 1, 4), (2**32, 8)]:
        for least in (NONE, -1, 0, most - spread):
            rows = np.zeros(100, SLOT)
            rows["position"] = least
            rows["position"][7] = least + spread
            packet = packed(rows)
            assert np.array_equal(unpacked(packet, SLOT), rows)
            assert len(packet) - len(packed(np.zeros(100, SLOT))) == 100 * width
    rows["position"][:2] = NONE, most
    assert np.array_equal(unpacked(packed(rows), SLOT), rows)
    mixed = np.zeros(3, STATEMENT)
    mixed["damaged"], mixed["source"], mixed["broker"] = [True, False, True], [9, 0, 3], [-1, 0, 7]
    assert np.array_equal(unpacked(packed(mixed), STATEMENT), mixed)


@pytest.mark.parametrize("size", [1, 50, 64, 200, 10_000])
def test_parts_have_each_line_once(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts have each line once, wherever the file is cut."""
    monkeypatch.setattr(parts_module, "PART_BYTES", size)
    monkeypatch.setattr(parts_module, "LINES_BYTES_MAX", 70)
    lines = [f'{{"kind":"send","t":{n},"id":"{"x" * (n % 40)}","topic":"T"}}' for n in range(40)]
    (tmp_path / "h.jsonl").write_text("\n".join([*lines[:20], "", '{"kind":"se', *lines[20:]]))

    events = [table for part in history_parts(tmp_path / "h.jsonl") for table in part.events()]

    times = [t for table in events for t in of_events(table, ["T"])["t"].to_pylist()]
    assert sorted(times) == list(range(40))
    pack(tmp_path / "h.jsonl", tmp_path / "packed")
    packed = [t for part in history_parts(tmp_path / "packed") for t in part.events()]
    assert [t for each in packed for t in of_events(each, ["T"])["t"].to_pylist()] == list(
        range(40)
    )


def test_an_endless_line_is_no_event_and_hides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is too long is held only at its beginning, and hides no other."""
    monkeypatch.setattr(parts_module, "LINE_BYTES_MAX", 64)
    monkeypatch.setattr(parts_module, "LINES_BYTES_MAX", 70)
    good = '{"kind":"send","t":1,"id":"m","topic":"T"}'
    (tmp_path / "h.jsonl").write_text(f'{good}\n{{"kind":"{"x" * 1000}"}}\n{good}\n')

    found = [table for part in history_parts(tmp_path / "h.jsonl") for table in part.events()]

    assert [t for table in found for t in of_events(table, ["T"])["t"].to_pylist()] == [1, 1]


def look(position: int, first: int, last: int, **changed: object) -> SegmentLook:
    """A segment of broker b with these indexes, held alike by all replicas."""
    good = SegmentLook(
        "b", position, last - first + 1, first, last, 1, 1, position + 90, {1: position}, False
    )
    return msgspec.structs.replace(good, **changed)


def test_segments_that_go_on_are_one_log() -> None:
    """Other replicas' segments have no entries of their own; a broker may have no log yet."""
    looks = [look(100, 4, 6, terms={1: 100, 2: 150}), look(0, 1, 3), look(0, 0, -1, terms={})]
    logs = agreed_logs({"b": 1, "c": 1}, looks)
    assert logs == {"b": Log(6, 190, {1: 0, 2: 150}), "c": Log()}


@pytest.mark.parametrize(
    "looks",
    [
        [look(0, 1, 3, disputed=True)],
        [look(0, 1, 3), look(100, 5, 6)],
        [look(0, 1, 3), look(100, 3, 6)],
        [look(0, 1, 3), look(100, 4, 6), look(100, 0, -1, disputed=True)],
        [look(0, 2, 3)],
        [look(0, 1, 3, last_term=2), look(100, 4, 6)],
    ],
)
def test_what_differs_or_does_not_go_on_is_no_agreed_log(looks: list[SegmentLook]) -> None:
    """Segments that differ, or leave a gap, make no agreed log."""
    assert agreed_logs({"b": 1}, looks) is None


def test_a_log_may_begin_behind_its_first_entry() -> None:
    """A log may begin later with its head's index, or any if unknown, on all replicas."""
    assert agreed_logs({"b": 4}, [look(0, 4, 6)]) == {"b": Log(3, 90, {1: 0})}
    assert agreed_logs({"b": 0}, [look(0, 4, 6)]) == {"b": Log(3, 90, {1: 0})}
    assert agreed_logs({"b": None}, [look(0, 1, 3)]) is None


def damaged(replicas: list[Replica]) -> None:
    planting.flip(replicas[1], LOG_RUN.message_id(7), recompute=False)


def changed(replicas: list[Replica]) -> None:
    planting.flip(replicas[2], LOG_RUN.message_id(7), recompute=True)


def cut(replicas: list[Replica]) -> None:
    last = sorted((Path(replicas[1].directory) / "log").glob("*.seg"))[-1]
    last.write_bytes(last.read_bytes()[:-8])


def gone(replicas: list[Replica]) -> None:
    sorted((Path(replicas[2].directory) / "log").glob("*.seg"))[-1].unlink()


LOG_RUN = Run(messages=60, queues=2, batch=10, segment_bytes=8192)


@pytest.mark.parametrize("spoil", [damaged, changed, cut, gone])
def test_a_log_is_agreed_only_if_all_its_bytes_are(
    spoil: Callable[[list[Replica]], None], tmp_path: Path
) -> None:
    """A log is agreed only with equal bytes: changed, cut and missing ones are found."""
    _, stores = write_run(LOG_RUN, tmp_path)
    logs = logs_of(stores)
    assert logs is not None
    assert logs["broker-a"].entries == 7
    assert len(planting.replicas_of(stores)[0].segments) > 1
    spoil(planting.replicas_of(stores))
    assert logs_of(stores) is None


def logs_of(stores: list[Path]) -> dict[str, Log] | None:
    """The logs as a reading of all segments shows them."""
    replicas = planting.replicas_of(stores)
    parts = segment_tasks(plan(replicas))
    reading = Reading(parts, replicas, ["Audited"], ["broker-a"], [7], [[0, 0, 0]], 2, 2)
    numbers = pa.RecordBatch.from_arrays([pa.array(range(len(parts)))], names=["id"])
    found = Summary()
    for batch in reading.packets([numbers]):
        for kind, data in zip(batch["kind"].to_pylist(), batch["data"].to_pylist(), strict=True):
            if kind == SUMMARY:
                found.add(msgspec.json.decode(data, type=Summary))
    return agreed_logs({"broker-a": 1}, found.segments)
