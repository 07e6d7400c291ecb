"""Lives of topics that places belong to, and the acts of tools in a log."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.log.entry import Kind, make_header
from mqspark.screening.changes import GroupsLogged, Lives, life_name, queue_numbers, without_life

places = st.tuples(st.sampled_from("bc"), st.sampled_from("TU"), st.integers(0, 2))
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@settings(max_examples=30)
@given(
    ends=st.lists(st.tuples(st.sampled_from("bc"), st.just("T"), st.integers(1, 20)), max_size=6),
    records=st.lists(st.tuples(places, st.integers(0, 25)), min_size=1),
)
def test_two_places_have_one_queue_if_no_deletion_lies_between(
    ends: list[tuple[str, str, int]], records: list[tuple[tuple[str, str, int], int]]
) -> None:
    """Two places share a queue if no deletion of that topic lies between, in that broker's log."""
    own = np.array([queue_numbers(broker, [(t, queue)])[0] for (broker, t, queue), _ in records])
    found = Lives(ends).in_lives(own, np.array([position for _, position in records]))
    named = [
        (place, len({end for *of, end in ends if (*of,) == place[:2] and end <= position}))
        for place, position in records
    ]
    assert len({*found.tolist()}) == len({*named})
    for number, place, queue in zip(found.tolist(), named, own.tolist(), strict=True):
        assert (number == queue) == (place[1] == 0)
        lives = Lives(ends).numbers.get(queue)
        assert lives is None or number == lives[place[1]]


def test_no_topic_has_the_name_of_a_life() -> None:
    """A life's name has its topic and its number, and no topic can have such a name."""
    assert life_name("T", 0) == "T"
    assert life_name("T", 1) == "T (life 2)"
    assert without_life("T (life 2)") == without_life("T") == "T"


def taken(body: bytes) -> GroupsLogged:
    header, raw = make_header(0, index=1, term=1, position=64, kind=Kind.CONTROL, body=body)
    logged = GroupsLogged()
    logged.take(header, memoryview(raw + body), 0, 64)
    return logged


@pytest.mark.parametrize(
    ("change", "acts"),
    [
        (("delete_topic", {"topic": "T", "now_ms": 1}), [("delete-topic", "T", -1, 64)]),
        (("put_topics", {"topics": [{"topicName": "T", "perm": 4}]}), [("put-topic", "T", 4, 64)]),
        (
            ("put_groups", {"groups": [{"groupName": "g", "consumeEnable": False}]}),
            [("put-group", "g", 0, 64)],
        ),
        (("delete_group", {"group": "g", "with_offsets": True}), [("delete-group", "g", -1, 64)]),
    ],
)
def test_an_entry_says_what_a_tool_did(change: object, acts: list[object]) -> None:
    """An entry has a tool's act, its object, the new value, and the place."""
    assert taken(msgspec.msgpack.encode(change)).acts == acts


@settings(max_examples=30)
@given(
    name=st.sampled_from(["put_topics", "delete_topic", "put_groups", "commit_offsets", "x", 3]),
    fields=st.dictionaries(
        st.sampled_from(["topics", "topic", "groups", "group", "offsets", "acks"]), anything
    )
    | anything,
)
def test_a_change_of_any_content_is_read_or_passed_over(name: object, fields: object) -> None:
    """A change of any bytes is read or passed over."""
    for act in taken(msgspec.msgpack.encode([name, fields])).acts:
        assert isinstance(act[1], str)
