"""Queues of broker groups that are away, over starts of all name servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.remoting.bodies import QueueData, TopicConfig
from mqnamesrv import limits
from mqnamesrv.routing.routes import RouteTable
from mqnamesrv.routing.topics import AbsentGroup
from mqnamesrv.saved.away import ABSENT_QUEUES, Away, groups_in, values_of
from mqnamesrv.saved.kv_file import KvStore
from tests.unit.namesrv.test_routes import N0, leader, topic


async def kept_after(path: Path, *steps: str) -> list[QueueData]:
    """The absent queues of TopicA after the steps, each in a name server that begins anew."""
    rows: list[QueueData] = []
    for step in steps:
        table = RouteTable()
        away = Away(KvStore(path), table.topics)
        if "here" in step:
            table.register(leader(N0), 1, now_s=0.0)
        if "leaves" in step:
            table.connection_lost(1, now_s=1.0)
        if "deleted" in step:
            table.topics.remove_topic("TopicA")
        await away.keep()
        rows = table.topics.absent("TopicA")
    return rows


@pytest.mark.parametrize(
    ("steps", "queues"),
    [
        (["here, leaves"], [4]),
        (["here, leaves", "begins anew"], [4]),
        (["here, leaves", "begins anew", "begins anew"], [4]),
        (["here, leaves", "is here again"], []),
        (["here, leaves", "is here again", "begins anew"], []),
        (["here, leaves", "deleted", "begins anew"], []),
        (["here", "begins anew"], []),
    ],
)
async def test_a_group_that_is_away_keeps_its_queues_over_starts(
    steps: list[str], queues: list[int], tmp_path: Path
) -> None:
    """A group keeps its queues until it is back, or its topic is deleted."""
    rows = await kept_after(tmp_path / "kv.json", *steps)
    assert [row.write_queue_nums for row in rows] == queues


async def test_without_a_path_they_are_in_memory_only() -> None:
    """Rows are in memory only without a path, as the rest of the key-value config."""
    table = RouteTable()
    away = Away(KvStore(None), table.topics)
    table.register(leader(N0), 1, now_s=0.0)
    table.connection_lost(1, now_s=1.0)
    await away.keep()
    assert len(table.topics.absent("TopicA")) == 1


async def test_what_does_not_fit_stays_in_memory_with_a_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The bound is that of a namespace; the name server serves on."""
    monkeypatch.setattr(limits, "KV_NAMESPACE_BYTES_MAX", 100)
    table = RouteTable()
    away = Away(KvStore(tmp_path / "kv.json"), table.topics)
    many = {name: topic(name) for name in map(str, range(50))}
    table.register(replace(leader(N0), topics=many), 1, now_s=0.0)
    table.connection_lost(1, now_s=1.0)
    await away.keep()
    assert len(table.topics.absent("7")) == 1
    assert "not kept" in caplog.text


async def test_as_many_groups_as_are_remembered_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that a tool has added can't make it more."""
    monkeypatch.setattr(limits, "ABSENT_GROUPS_MAX", 3)
    store = KvStore(tmp_path / "kv.json")
    for number in range(5):
        await store.put(ABSENT_QUEUES, f"broker-{number}/0", '["c",[["TopicA",4,4,6,0]]]')
    table = RouteTable()
    Away(store, table.topics)
    assert len(table.topics.absent("TopicA")) == 3


@pytest.mark.parametrize(
    "value",
    [
        *("", "{}", "[1]", '["c"]', '[["T",4,4,6,0]]', '["c",[["T"]]]', '["c",[["T",-1,4,6,0]]]'),
        *('["c",[["T",4,1000000000,6,0]]]', '["c",[["T",4,4,99,0]]]', '["c",[["T",4,4,6,0]]'),
        *('["c",[["T",4,4,6,99999999999]]]', '["c",[[4,4,4,6,0]]]', '[4,[["T",4,4,6,0]]]'),
    ],
)
def test_what_can_not_be_read_is_left_out(value: str) -> None:
    """A tool may write anything into the key-value config."""
    good = '["k",[["T",4,4,6,0]]]'
    found = groups_in({"b/0": value, "c/0": good})
    assert found == {"c": AbsentGroup("k", {"T": TopicConfig("T", 4, 4, 6, 0)})}


_queues = st.integers(0, limits.QUEUES_PER_TOPIC_MAX)
_topics = st.lists(
    st.builds(TopicConfig, st.text(max_size=2000), _queues, _queues, st.integers(0, 7)),
    max_size=60,
)


@settings(max_examples=20)
@given(_topics, st.booleans())
def test_rows_are_read_as_they_were_written(topics: list[TopicConfig], proven: bool) -> None:
    """Rows of any topics are read as they were written, in values of bounded length."""
    absent = AbsentGroup('a "cluster"', {each.topic_name: each for each in topics}, proven)
    values = [*values_of(absent)]
    assert all(len(value.encode()) <= limits.KV_VALUE_BYTES_MAX for value in values)
    read = groups_in({f"b/x/{number}": value for number, value in enumerate(values)})
    assert read == ({"b/x": absent} if topics else {})


@pytest.mark.parametrize("proven", [True, False])
async def test_groups_that_had_proven_nothing_are_forgotten_first_after_a_start_too(
    proven: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unproven groups are forgotten first, also after a start."""
    path = tmp_path / "kv.json"
    table = RouteTable()
    away = Away(KvStore(path), table.topics)
    table.register(replace(leader(N0), proven=proven), 1, now_s=0.0)
    table.connection_lost(1, now_s=1.0)
    await away.keep()
    table = RouteTable()
    Away(KvStore(path), table.topics)
    monkeypatch.setattr(limits, "ABSENT_GROUPS_MAX", 1)
    table.register(replace(leader(N0), broker_name="other"), 2, now_s=2.0)
    table.connection_lost(2, now_s=3.0)
    known = [row.broker_name for row in table.topics.absent("TopicA")]
    assert known == [leader(N0).broker_name if proven else "other"]


def test_entries_of_earlier_versions_prove_nothing() -> None:
    """An entry of an earlier version does not say that its group has proven itself."""
    assert not groups_in({"b/0": '["c",[["T",4,4,6,0]]]'})["b"].proven
