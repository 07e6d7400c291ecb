"""Lines without meaning, and clocks that fall."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqspark.history.events import EVENT, columns
from mqspark.limits import CLOCK_FALL_NS_MAX
from mqspark.screening.lines import LinesLook, falls, is_ended, unreadable, without_times

S = 1_000_000_000
PLACE = {"topic": "T", "broker": "b", "queue_id": 0, "offset": 1}
EVENTS: dict[str, dict[str, object]] = {
    "send": {"id": "m", "topic": "T", "crc": 1},
    "ack": {"id": "m", "position": 2, **PLACE},
    "fail": {"id": "m", "definite": True},
    "deliver": {"id": "m", "group": "g", "crc": 2, **PLACE},
    "resolve": {"id": "m", "transaction": "commit"},
    "settle": {
        **{"id": "m", "group": "g", "pop_time": 3, "how": "ack", "counted": True},
        **PLACE,
    },
    "commit": {"group": "g", **PLACE},
    "reset": {"group": "g", **PLACE},
    "group_offset": {"group": "g", **PLACE},
    "queue_end": {**PLACE},
    "lead": {"broker": "b", "node": "n", "term": 2},
    "vote": {"broker": "b", "node": "n", "term": 2},
    "again": {"id": "m"},
    "fault": {"fault": "kill"},
    "act": {"act": "put-topic", "broker": "b", "began": 1},
    "meta": {},
    "started": {},
    "rebalance": {},
    "end": {},
}
ANY_VALUE = [None, "", "x", True, 0, -1, 0.5, 2**70, [], [1], {}, {"t": 1}]


def look_at(*lines: bytes, end: bool = True) -> tuple[LinesLook, list[str | None]]:
    look = LinesLook("f.jsonl", 0)
    kept = look.take(columns(b"\n".join(lines)), is_end=end)
    return look, kept["kind"].to_pylist()


def line(kind: str, t: int = 5, /, **changed: object) -> bytes:
    return json.dumps({"kind": kind, "t": t, **EVENTS.get(kind, {}), **changed}).encode()


@pytest.mark.parametrize(("kind", "field"), [(k, f) for k, v in EVENTS.items() for f in (*v, "t")])
def test_an_event_without_what_its_kind_must_say_is_none(kind: str, field: str) -> None:
    """An event without a field of its kind is counted as unreadable, and the others stay."""
    for value in (None, {"x": 1}, 2**70):
        odd = json.loads(line(kind)) | {field: value}
        look, kept = look_at(line("end"), json.dumps(odd).encode(), line(kind))
        assert (look.unreadable, kept) == (1, ["end", kind]), value


@pytest.mark.parametrize("kind", EVENTS)
@pytest.mark.parametrize("field", EVENT.names)
def test_a_value_of_another_type_makes_a_line_none(kind: str, field: str) -> None:
    """Whatever field it is in: nobody knows what else of that line is wrong."""
    kinds = {pa.string(): str, pa.bool_(): bool}
    for value in ANY_VALUE:
        if value is None or type(value) is kinds.get(EVENT.field(field).type, int):
            continue
        look, kept = look_at(line("end"), line(kind, **{field: value}), line("end"))
        assert (look.unreadable, kept) == (1, ["end", "end"]), value


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        *((kind, {"kind": kind.upper()}) for kind in EVENTS),
        *(("send", {"transaction": word}) for word in ("", "comit", "Commit")),
        *(("settle", {"how": word}) for word in ("", "acked")),
        *(("act", {"act": word}) for word in ("", "delete", "delete-topic ")),
    ],
)
def test_a_word_that_nobody_knows_makes_a_line_none(kind: str, changed: dict[str, object]) -> None:
    """A send of an unknown kind is a send that is missed, and its message would be a phantom."""
    look, kept = look_at(line("end"), line(kind, **changed), line("end"))
    assert (look.unreadable, kept) == (1, ["end", "end"])


@pytest.mark.parametrize("kind", EVENTS)
def test_null_is_as_if_it_were_not_there(kind: str) -> None:
    """A null counts as absent in fields that a kind need not have."""
    others = dict.fromkeys({*EVENT.names} - {*EVENTS[kind], "kind", "t"})
    look, kept = look_at(line(kind, **others, size=[{"x": 0.5}]), line("end"))
    assert (look.unreadable, kept) == (0, [kind, "end"])


@pytest.mark.parametrize("value", [2**61, 2**63 - 1, -(2**61), -(2**63)])
@pytest.mark.parametrize("field", ["t", "offset", "position", "began", "due", "perm", "crc"])
def test_a_number_that_nothing_comes_to_is_none(field: str, value: int) -> None:
    """A number beyond any log is unreadable: its sums would end an audit."""
    look, kept = look_at(line("ack"), line("ack", **{field: value}), line("ack"))
    assert (look.unreadable, kept) == (1, ["ack", "ack"])


def test_the_last_line_of_a_file_may_be_torn() -> None:
    """A torn last line is excused by its writer's death; in the middle it is unreadable."""
    torn = line("send")[:20]
    assert look_at(line("send"), torn)[0].unreadable == 0
    assert look_at(line("send"), torn, end=False)[0].unreadable == 1
    assert look_at(torn, line("send"))[0].unreadable == 1
    assert unreadable([LinesLook("a", 0, 1), LinesLook("b", 0), LinesLook("a", 9, 2)]) == {"a": 3}


@given(st.lists(st.integers(0, 10), min_size=1, max_size=12), st.data())
def test_a_fall_is_the_most_that_a_time_is_below_an_earlier_one(
    seconds: list[int], data: st.DataObject
) -> None:
    """However the lines are divided into parts of a row of files."""
    most = np.maximum.accumulate(seconds)
    expected = int(np.max(most - seconds)) * S
    looks, at = [], 0
    while at < len(seconds):
        size = data.draw(st.integers(1, 6))
        look = LinesLook(f"p-0.{at // 3:06}.jsonl", at)
        some = [line("end", s * S) for s in seconds[at : at + size]]
        look.take(columns(b"\n".join(some)), is_end=True)
        looks.append(look)
        at += size
    assert falls(looks[::-1]) == ({"p-0": expected} if expected else {})


def test_who_describes_a_run_ends_its_history() -> None:
    """A client that was killed has ended nothing, and one that left early ended only its file."""
    harness = LinesLook("harness.000000.jsonl", 0, describes=True)
    closed = LinesLook("harness.000001.jsonl", 0, ends=True)
    killed, left = LinesLook("consumer-0.jsonl", 0), LinesLook("consumer-1.jsonl", 0, ends=True)
    assert not is_ended([harness, killed, left])
    assert is_ended([harness, closed, killed])
    assert is_ended([killed, left])
    assert not is_ended([killed])
    look, _ = look_at(line("meta"), line("send"), line("end"))
    assert (look.describes, look.ends) == (True, True)


def test_threads_may_write_a_moment_late() -> None:
    """Times that fall by less prove nothing against a clock."""
    look, _ = look_at(line("end", S), line("end", S - CLOCK_FALL_NS_MAX))
    assert falls([look]) == {}


def test_what_a_fallen_clock_noted_is_before_and_after_nothing() -> None:
    """Sends began before all; what is known since a moment is never known in time."""
    events = columns(b"\n".join([line("send"), line("ack"), line("commit", began=3), line("vote")]))
    changed = without_times(events, 7)
    assert changed.schema == events.schema
    sent, acked, committed, vote = changed.to_pylist()
    assert (sent["t"], sent["id"]) == (0, "m")
    assert acked["t"] == committed["t"] > 2**61
    assert (acked["offset"], committed["began"]) == (1, 0)
    assert vote["kind"] != "vote"
    (read,) = without_times(columns(line("deliver", 5, asked=2)), 7).to_pylist()
    assert (read["t"], read["asked"]) == (12, None)
