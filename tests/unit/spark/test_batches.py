"""Batches stored as a whole: proofs in logs, and gaps that prove nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.remoting.message import REAL_TOPIC, STAGED, host_bytes, properties_encode
from dledger.remoting.names import HALF_TOPIC, OP_TOPIC
from dledger.remoting.record import encode_record
from mqspark.judge.batches.faults import Faults, GroupLog
from mqspark.source.batches import (
    CLOSING,
    DECISION_MARK,
    STAGED_MARK,
    Decision,
    End,
    Rows,
    StagedBatches,
)
from mqspark.source.records import Place, RecordColumns, RecordWalk

HOST = host_bytes("127.0.0.1", 10911)
TOPIC = "T"
CRC = 7


class World:
    """Broker groups a and b, whose logs get an entry at a time. Group a decides."""

    def __init__(self) -> None:
        self.batches = {"a": StagedBatches(), "b": StagedBatches()}
        self.ends = {"a": 0, "b": 0}
        self.offsets = {"a": 0, "b": 0}

    def at(self, group: str) -> int:
        """The position of the next entry."""
        self.ends[group] += 10
        return self.ends[group] - 10

    def stage(self, group: str, batch: int, name: str = "q") -> Rows:
        offset = self.offsets[group]
        self.offsets[group] += 1
        rows = Rows(offset, self.at(group), name, 1, batch, "a", TOPIC, CRC)
        self.batches[group].rows.append(rows)
        return rows

    def decide(self, batch: int, *places: tuple[str, Rows], name: str = "q") -> None:
        named = [(group, rows.offset, rows.position) for group, rows in places]
        self.batches["a"].decisions.append(Decision(name, 1, batch, self.at("a"), named))

    def show(self, group: str, rows: Rows) -> None:
        self.batches[group].ends.append(End(rows.offset, self.at(group), CRC))

    def drop(self, group: str, rows: Rows) -> None:
        self.batches[group].ends.append(End(rows.offset, self.at(group), None))

    def found(self, **logs: dict[str, Any]) -> list[tuple[str, str]]:
        """Faults of the batches; logs are whole and final, unless said otherwise."""
        every = []
        for group, batches in self.batches.items():
            known = {"alike": self.ends[group], "is_final": True} | logs.get(group, {})
            begin = known.get("begin", 0)
            kept = StagedBatches(
                [each for each in batches.rows if each.position >= begin],
                [each for each in batches.ends if each.position >= begin],
                [each for each in batches.decisions if each.position >= begin],
            )
            every.append(GroupLog(group, kept, **known))
        return [(fault.what, fault.broker) for fault in Faults(every).found]


def test_what_another_group_lacks_counts_if_its_log_goes_on_behind_it() -> None:
    """A lacking decision counts if that group's log is final or goes on behind it."""
    world = World()
    rows = world.stage("b", 1)
    world.show("b", rows)
    world.stage("a", 0)
    assert world.found() == [("undecided", "b")]
    assert world.found(a={"is_final": False}) == []
    assert world.found(a={"begin": 10}) == []
    world.decide(2)
    assert world.found(a={"is_final": False}) == [("undecided", "b")]
    assert world.found(a={"begin": 10}) == []
    world.batches["a"].decisions.append(Decision("q", 1, 0, 5, []))
    assert world.found(a={"begin": 5}) == [("undecided", "b")]


def test_what_still_waits_is_missing_if_the_next_batch_is_decided() -> None:
    """A batch that still waits is missing once the next is decided, in a final log."""
    world = World()
    rows = world.stage("b", 0)
    world.decide(0, ("b", rows))
    assert world.found() == []
    world.decide(CLOSING)
    assert world.found() == [("missing", "b")]
    assert world.found(b={"is_final": False}) == []
    assert world.found(b={"begin": 10}) == []
    world.show("b", rows)
    assert world.found() == []


def test_groups_have_no_order_in_common() -> None:
    """Batches of two groups have no common order; each follows its decisions."""
    world = World()
    first, second, third = world.stage("a", 0), world.stage("b", 1), world.stage("b", 0)
    world.decide(0, ("a", first), ("b", third))
    world.decide(1, ("b", second))
    world.show("b", second)
    world.show("a", first)
    world.show("b", third)
    assert world.found() == [("disordered", "b")]


def test_what_not_all_replicas_hold_accuses_nobody() -> None:
    """Entries that not all replicas hold accuse nobody, and may excuse."""
    world = World()
    rows = world.stage("b", 0)
    world.show("b", rows)
    world.show("b", rows)
    assert world.found(b={"alike": 10}) == []
    assert world.found(b={"alike": 20}) == [("undecided", "b")]
    world.decide(0, ("b", rows))
    assert world.found(b={"alike": 20}, a={"alike": 0}) == []
    assert world.found() == [("twice", "b")]


steps = st.lists(st.tuples(st.sampled_from("qr"), st.integers(1, 3), st.booleans()), max_size=6)


@given(steps, st.data())
def test_no_part_of_sound_logs_is_blamed(plan: list[tuple[str, int, bool]], data: Any) -> None:
    """Queries store batches, some attempts are lost, some drivers die; of each log any part is
    known, as of copies that were made at different moments."""
    world, batches = World(), {"q": 0, "r": 0}
    lost: list[tuple[str, Rows]] = []
    for name, count, dies in plan:
        batch = batches[name]
        groups = data.draw(st.lists(st.sampled_from("ab"), min_size=count, max_size=count))
        staged = [(group, world.stage(group, batch, name)) for group in groups]
        lost += [(group, world.stage(group, batch, name)) for group in groups[:1]]
        if dies:
            lost += staged
            continue
        world.decide(batch, *staged, name=name)
        for place in staged:
            world.show(*place)
        batches[name] += data.draw(st.integers(1, 2))
        for place in lost if data.draw(st.booleans()) else ():
            world.drop(*place)
            lost = []
    assert world.found() == []
    parts = {}
    for group in "ab":
        begin = data.draw(st.integers(0, world.ends[group]))
        alike = data.draw(st.integers(begin, world.ends[group]))
        parts[group] = {"begin": begin, "alike": alike, "is_final": False}
    assert world.found(**parts) == []


def record(topic: str, body: bytes, properties: dict[str, str], at: int) -> bytes:
    return encode_record(
        topic=topic.encode(), queue_id=0, body=body, properties=properties_encode(properties),
        born_timestamp_ms=1, born_host=HOST, queue_offset=5, physical_offset=at,
        store_timestamp_ms=1, store_host=HOST,
    )  # fmt: skip


def taken(*records: tuple[str, bytes, dict[str, str]]) -> StagedBatches:
    """Staged batches in an entry of these records."""
    raw = b""
    for topic, body, properties in records:
        raw += record(topic, body, properties, len(raw))
    rows, view = RecordColumns(), memoryview(raw)
    RecordWalk(view, 0, verify=False).walk(rows, Place(None, None, 0), 0, len(raw))
    found = StagedBatches()
    found.take(rows, view, 0)
    # Tasks tell the driver so.
    return msgspec.json.decode(msgspec.json.encode(found), type=StagedBatches)


values = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.text(max_size=3), st.binary(max_size=3), st.none(),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=2), st.lists(st.integers(0, 2**64 - 1)), max_size=2),
)  # fmt: skip
notes = st.lists(values, min_size=9, max_size=9).map(msgspec.msgpack.encode) | st.binary()


@given(
    notes,
    st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=12),
    st.binary(max_size=90),
)
def test_any_bytes_say_something_or_nothing(note: bytes, waits: str, body: bytes) -> None:
    """A log may hold anything under right checksums."""
    taken((OP_TOPIC, DECISION_MARK, {}), (OP_TOPIC, note, {}))
    taken((OP_TOPIC, DECISION_MARK, {}))
    half = (HALF_TOPIC, body, {STAGED: waits, REAL_TOPIC: TOPIC})
    taken((OP_TOPIC, STAGED_MARK, {}), (OP_TOPIC, note, {}), half)
    taken((OP_TOPIC, body, {}), half)


@pytest.mark.parametrize("batch", ["0", "9" * 19, "9" * 20, "-1", "\uff11"])
def test_a_number_that_no_batch_has_is_none(batch: str) -> None:
    """A batch number that does not exist, or fits no column, is none."""
    half = (HALF_TOPIC, record(TOPIC, b"x", {}, 0), {STAGED: f"q 1 {batch} a", REAL_TOPIC: TOPIC})
    found = taken((OP_TOPIC, STAGED_MARK, {}), (OP_TOPIC, b"", {}), half).rows
    assert [each.batch for each in found] == ([int(batch)] if batch in ("0", "9" * 19) else [])
    assert [(each.offset, each.topic) for each in found] == [(5, TOPIC)] * len(found)
