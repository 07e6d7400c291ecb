"""A consumer's parameters: the mode that they mean, combinations, and offsets in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.log.disk import Disk
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import TRACE_TOPIC, UNSENDABLE
from mqclient import ConsistentHash, Consumer, MachineRooms, NearbyRooms, Sql
from mqclient.consuming.progress import Place
from mqclient.consuming.sharing.mode import Wanted
from mqclient.consuming.sharing.offsets import FileOffsets
from mqclient.consuming.sharing.patterns import matching
from mqclient.consuming.sharing.plan import Plan
from mqclient.consuming.sharing.starts import check_start

QUEUE = MessageQueue("Orders", "b", 2)
OTHER = MessageQueue("Orders", "b", 3)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"group": None}, "group is missing: queues are shared"),
        ({"group": None, "assign": [QUEUE]}, "Give offsets="),
        ({"assign": "all"}, "Give offsets="),
        ({"assign": "sticky", "offsets": "o.json"}, "Files are for assign='all'"),
        ({"assign": "fair"}, "'averaged', 'circular', 'hashed', 'sticky', 'all'"),
        ({"assign": []}, "0 queues"),
        ({"assign": ["Orders"]}, "expected .* or a list of MessageQueue"),
        ({"assign": 7}, "a function or a list of MessageQueue"),
        ({"assign": [MessageQueue("Other", "b", 0)]}, "assign names no queue"),
        ({"offsets": 7}, "'broker', text, a path or None"),
        ({"consume_from": "middle"}, "'first', 'last' or a time"),
        ({"consume_from": datetime(2026, 1, 1)}, "has no time zone"),
        ({"subscriptions": {}}, "no subscription"),
        ({"subscriptions": {re.compile(b"x"): "*"}}, "of bytes"),
        ({"subscriptions": {"rmq_sys_wheel_timer": "*"}}, "belongs to the brokers"),
        ({"subscriptions": {"T": "||".join(f"t{n}" for n in range(1025))}}, "1025 tags"),
        ({"subscriptions": {"T": "x" * 40_000}}, "40000 characters"),
        ({"subscriptions": {re.compile("x"): "a | b"}}, "expected \\* or TagA"),
        ({"subscriptions": {re.compile("x"): "*"}, "assign": [QUEUE]}, "choose one of them"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_to_choose(
    parameters: dict[str, object], reason: str
) -> None:
    """Parameters that exclude each other are refused by the constructor, with a choice."""
    given_: dict[str, object] = {"group": "C", "subscriptions": {"Orders": "*"}, **parameters}
    with pytest.raises(BadInput, match=reason):
        Consumer(**given_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "parameters",
    [
        {"assign": "sticky"},
        {"assign": ConsistentHash(3)},
        {"assign": MachineRooms(("north",))},
        {"assign": NearbyRooms(lambda queue: queue.broker_name, lambda member: "x", "sticky")},
        {"assign": lambda member, members, queues: tuple(queues)},
        {"assign": [QUEUE], "group": None, "offsets": None},
        {"assign": [QUEUE], "subscriptions": None},
        {"assign": "all", "offsets": Path("x")},
        {"assign": "all", "offsets": None, "group": None},
        {"consume_from": datetime(2026, 1, 1, tzinfo=UTC)},
        {"subscriptions": {re.compile("x"): Sql("a > 1"), "Orders": "*"}},
    ],
)
def test_what_goes_together_is_taken(parameters: dict[str, object]) -> None:
    """All other combinations are taken, without a server."""
    given_: dict[str, object] = {"group": "C", "subscriptions": {"Orders": "*"}, **parameters}
    Consumer(**given_)  # type: ignore[arg-type]


def test_nearness_shares_by_a_strategy() -> None:
    """NearbyRooms is compared by its name, with that of a strategy, which it needs."""
    rooms = (lambda queue: queue.broker_name, lambda member: "x")
    assert Plan.of(NearbyRooms(*rooms, "circular")).name == "NearbyRooms(circular)"
    with pytest.raises(BadInput, match="within='all': expected 'averaged'"):
        NearbyRooms(*rooms, "all")  # type: ignore[arg-type]


def test_only_who_shares_reads_the_groups_retry_topic() -> None:
    """Chosen queues bring their topics along, unless an expression is given for them."""

    def topics(plan: Plan, subscriptions: dict[str, str | Sql]) -> dict[str, str]:
        wanted = Wanted.of(plan, "G", subscriptions)
        return {topic: each.sub_string for topic, each in wanted.topics.items()}

    assert topics(Plan.of("averaged"), {"A": "x"}) == {"%RETRY%G": "*", "A": "x"}
    assert topics(Plan.of("all"), {"A": "x"}) == {"A": "x"}
    assert topics(Plan.of([QUEUE]), {}) == {"Orders": "*"}
    assert topics(Plan.of([QUEUE, OTHER]), {"Orders": "x"}) == {"Orders": "x"}


def test_a_pattern_matches_whole_names_of_users_topics() -> None:
    """The first pattern that does counts; the system's topics match none."""
    patterns: dict[re.Pattern[str], str | Sql] = {
        re.compile("orders-[a-z]+"): "x",
        re.compile(".*"): "*",
    }
    there = [
        "orders-eu",
        "orders-eu-2",
        "%RETRY%G",
        "%DLQ%G",
        *UNSENDABLE,
        TRACE_TOPIC,
        "c",
        "c_REPLY_TOPIC",
        "rmq_sys_REVIVE_LOG_c",
    ]
    assert matching(patterns, there, ["c"]) == {"orders-eu": "x", "orders-eu-2": "*"}


def test_a_place_is_a_word_or_a_time_with_a_zone() -> None:
    """A start is "first", "last", or a time with a zone after 1970."""
    with pytest.raises(BadInput, match="before 1970"):
        check_start(datetime(1900, 1, 1, tzinfo=UTC), "consume_from")
    for start in ("first", "last", datetime(2026, 1, 1, tzinfo=UTC)):
        assert check_start(start, "consume_from") == start  # type: ignore[arg-type]


OFFSETS = st.dictionaries(
    st.builds(MessageQueue, st.text(max_size=5), st.text(max_size=5), st.integers(0, 2**31 - 1)),
    st.builds(Place, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)),
    max_size=5,
)


@settings(max_examples=10)
@given(st.lists(OFFSETS, max_size=4))
def test_a_file_holds_what_was_stored_last(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[dict[MessageQueue, Place]]
) -> None:
    """A file holds what was stored last, over openings and for any queues."""
    path = tmp_path_factory.mktemp("offsets") / "o.json"
    known: dict[MessageQueue, Place] = {}
    for offsets in steps:
        file = FileOffsets(path)
        file.open()
        assert file._known == known
        known |= offsets
        file._write(known)
        file.close()


async def test_a_file_is_one_consumers_at_a_time(tmp_path: Path) -> None:
    """A second one is refused; once the first has left, it goes on where that was."""
    first, second = FileOffsets(tmp_path / "o.json"), FileOffsets(tmp_path / "o.json")
    first.open()
    assert await first.load(QUEUE) is None
    assert await first.store({QUEUE: Place(7)}, 1) == {QUEUE: Place(7)}
    assert await first.store({OTHER: Place(9)}, 1) == {OTHER: Place(9)}
    with pytest.raises(BadInput, match="another consumer that runs now"):
        second.open()
    first.close()
    second.open()
    assert [await second.load(queue) for queue in (QUEUE, OTHER)] == [Place(7), Place(9)]
    second.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"schema":2,"offsets":[]}',
        b'{"schema":1,"offsets":[{"topic":"T","broker_name":"b","queue_id":0,"offset":"x"}]}',
        b'{"schema":1,"offsets":[{"topic":"T","broker_name":"b","queue_id":0,"offset":-1}]}',
    ],
)
def test_a_file_that_is_none_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    """A file of something else is refused and never written over."""
    path = tmp_path / "o.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=re.escape(str(path))):
        FileOffsets(path).open()
    assert path.read_bytes() == content


async def test_a_file_that_can_not_be_written_is_told_of_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves the old file, and the new place is not reported as stored."""
    file = FileOffsets(tmp_path / "o.json")
    file.open()
    await file.store({QUEUE: Place(7)}, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Disk, "sync_data", full)
    assert await file.store({QUEUE: Place(8)}, 1) == {}
    assert json.loads((tmp_path / "o.json").read_bytes())["offsets"][0]["offset"] == 7
    with pytest.raises(BadInput, match="can't be used"):
        FileOffsets(tmp_path / "no folder" / "o.json").open()
