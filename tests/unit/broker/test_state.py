"""The small parts of the replicated state: dedup, offsets, locks, topics, control entries."""

from __future__ import annotations

import msgspec
import pytest

from dledger.errors import StorageError
from dledger.remoting.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from dledger.remoting.codes import ResponseCode
from mqbroker.refusal import Refused
from mqbroker.requests.sending.retries import retry_destination
from mqbroker.state import control
from mqbroker.state.dedup import DedupWindow, StoredCopy, dedup_key
from mqbroker.state.groups.locks import QueueKey, QueueLocks
from mqbroker.state.groups.offsets import ConsumerOffsets
from mqbroker.state.groups.subscriptions import SubscriptionGroups
from mqbroker.state.topics import (
    Topics,
    check_config,
    check_group_name,
    check_topic_name,
    default_topic,
    read_write,
    topic_for_first_send,
)
from mqbroker.testing.pictured import rows_in


def remembered(window: DedupWindow, keys: range) -> list[int]:
    return [key for key in keys if window.get(b"%d" % key) == StoredCopy(key * 100, 10)]


def fill(window: DedupWindow, keys: range) -> None:
    for key in keys:
        window.add(b"%d" % key, StoredCopy(key * 100, 10))


def test_the_dedup_window_forgets_the_oldest_a_chunk_at_a_time() -> None:
    """The dedup window holds as many entries as it should, and less than a chunk more."""
    window = DedupWindow(entries_max=6, chunk_entries=3)
    for count in range(1, 40):
        fill(window, range(count - 1, count))
        held = remembered(window, range(count))
        assert held == list(range(count - len(held), count))
        assert min(count, 6) <= len(held) == len(window) <= 9


def test_the_first_copy_of_a_key_stays_the_first() -> None:
    """The first copy of a key stays, whatever comes later under it."""
    window = DedupWindow(entries_max=6, chunk_entries=3)
    for position in range(5):
        window.add(b"a", StoredCopy(position, 10))
        fill(window, range(position, position + 1))
    assert window.get(b"a") == StoredCopy(0, 10)


@pytest.mark.parametrize("chunk_entries", [1, 3])
def test_the_newest_copy_of_a_key_is_known_beside_the_first(chunk_entries: int) -> None:
    """The newest copy of a key is known within and over chunks, and through a snapshot."""
    window, again = (DedupWindow(6, chunk_entries) for _ in range(2))
    assert window.last_position == -1
    for position in range(5):
        window.add(b"a", StoredCopy(position, 10))
        assert window.newest(b"a") == StoredCopy(position, 10)
        assert window.last_position == position
        again.restore(rows_in(window.picture()))
        assert again.newest(b"a") == StoredCopy(position, 10)
    assert window.get(b"a") == StoredCopy(0, 10)
    window.first_position = 4
    assert (window.get(b"a"), window.newest(b"a")) == (StoredCopy(4, 10), StoredCopy(4, 10))
    window.first_position = 5
    assert (window.get(b"a"), window.newest(b"a")) == (None, None)


def test_the_dedup_window_survives_a_snapshot_in_order() -> None:
    """A restored dedup window forgets in the same order as the original, on every replica."""
    window, again = (DedupWindow(entries_max=6, chunk_entries=3) for _ in range(2))
    fill(window, range(8))
    again.restore(rows_in(window.picture()))
    for each in (window, again):
        fill(each, range(8, 20))
    assert rows_in(again.picture()) == rows_in(window.picture())
    assert remembered(again, range(20)) == remembered(window, range(20))


def test_a_dedup_key_is_bounded_and_tells_topics_apart() -> None:
    """A client may choose a long unique key; it must not cost the memory."""
    assert dedup_key(b"A", b"k") != dedup_key(b"B", b"k")
    assert len(dedup_key(b"A", b"k" * 30_000)) < 100
    assert dedup_key(b"A", b"k" * 30_000) != dedup_key(b"A", b"k" * 30_001)


def test_offsets_of_a_deleted_topic_are_gone_for_every_group() -> None:
    """A deleted topic's offsets are gone for every group; other topics keep theirs."""
    offsets = ConsumerOffsets()
    offsets.commit("G1", "A", 0, 5)
    offsets.commit("G1", "B", 0, 6)
    offsets.commit("G2", "A", 3, 7)
    assert set(offsets.groups_of("A")) == {"G1", "G2"}
    offsets.delete_topic("A")
    assert offsets.get("G2", "A", 3) is None
    assert rows_in(offsets.picture()) == [("G1", "B", 0, 6)]
    assert len(offsets) == 1


def test_a_queue_lock_is_held_by_one_client_until_it_ends() -> None:
    """60 s after the last renewal another client may have it; a stranger can't release it."""
    locks, key = QueueLocks(), QueueKey("G", "A", 0)
    assert locks.acquire("c1", [key], now_ms=0, token=1) == [key]
    assert locks.acquire("c2", [key], now_ms=20_000, token=1) == []
    locks.release("c2", [key])
    assert locks.acquire("c1", [key], now_ms=30_000, token=1) == [key]
    assert locks.acquire("c2", [key], now_ms=89_999, token=1) == []
    assert locks.acquire("c2", [key], now_ms=90_000, token=1) == [key]
    locks.release("c2", [key])
    assert locks.acquire("c1", [key], now_ms=90_001, token=1) == [key]


def test_each_owner_of_a_lock_has_a_token_of_its_own() -> None:
    """A renewed lock keeps its token, also if late; the next owner's token is higher."""
    locks, key = QueueLocks(), QueueKey("G", "A", 0)

    def token() -> int | None:
        held = locks.held(key)
        return None if held is None else held.token

    locks.acquire("c1", [key], now_ms=0, token=5)
    locks.acquire("c1", [key], now_ms=90_000, token=6)
    assert token() == 5
    assert not locks.obtainable("c2", [key], now_ms=149_999)
    assert locks.obtainable("c2", [key], now_ms=150_000)
    locks.acquire("c2", [key], now_ms=150_000, token=7)
    assert token() == 7
    again = QueueLocks()
    again.restore(*map(rows_in, locks.picture()))
    assert again.held(key) == locks.held(key)
    again.restore(rows_in(locks.picture()[0]))
    assert again.held(key) == ("c2", 210_000, 0)
    locks.release("c2", [key])
    assert token() is None
    locks.acquire("c2", [key], now_ms=150_001, token=9)
    assert token() == 9


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "..", "x" * 128, "a.b", "a\x01b"])
def test_bad_topic_and_group_names_are_refused(name: str) -> None:
    """A topic's name becomes a directory's."""
    for check in (check_topic_name, check_group_name):
        with pytest.raises(Refused) as caught:
            check(name)
        assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_the_first_send_makes_a_topic_like_the_default_one() -> None:
    """The queue count is the smaller of what the producer wants and what TBW102 has."""
    config = topic_for_first_send("A", default_topic(8), 4)
    assert (config.write_queue_nums, config.read_queue_nums, config.perm) == (4, 4, 6)
    assert topic_for_first_send("A", default_topic(8), None).write_queue_nums == 8
    assert topic_for_first_send("A", default_topic(8), 100).write_queue_nums == 8
    assert topic_for_first_send("%RETRY%g", None, 4).write_queue_nums == 1


def test_without_a_default_topic_a_send_makes_no_topic() -> None:
    """The refusal says how to make it."""
    with pytest.raises(Refused, match="updateTopic") as caught:
        topic_for_first_send("A", None, 4)
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("queues", [0, -1, 100_000])
def test_a_topic_needs_a_sensible_number_of_queues(queues: int) -> None:
    """The refusal names the field."""
    config = msgspec.structs.replace(read_write("A", 1), write_queue_nums=queues)
    with pytest.raises(Refused, match="writeQueueNums"):
        check_config(config)


def test_versions_change_only_when_something_does() -> None:
    """Name servers compare versions: an unchanged table must keep its own."""
    topics, groups = Topics(), SubscriptionGroups()
    for now_ms in (5, 9):
        topics.put([read_write("A", 4)], now_ms)
        groups.put([SubscriptionGroupConfig("G")], now_ms)
        topics.delete("Missing", now_ms)
    assert topics.version == DataVersion(counter=1, timestamp=5)
    assert groups.version == DataVersion(counter=1, timestamp=5)


def test_too_many_tries_lead_to_the_dead_letters() -> None:
    """The consumer's own limit wins over the group's."""
    group = SubscriptionGroupConfig("G", retry_max_times=3)
    assert retry_destination(group, 2, None) == "%RETRY%G"
    assert retry_destination(group, 3, None) == "%DLQ%G"
    assert retry_destination(group, 3, 5) == "%RETRY%G"
    assert retry_destination(group, 3, -1) == "%DLQ%G"


@pytest.mark.parametrize(
    "change",
    [
        control.PutTopics([TopicConfig("A")], 5),
        control.DeleteTopic("A", 6),
        control.PutGroups([SubscriptionGroupConfig("G")], 7),
        control.CommitOffsets([("G", "A", 0, 9)]),
        control.LockQueues("G", "c", [("A", 0)], 8),
        control.UnlockQueues("G", "c", [("A", 0)]),
    ],
)
def test_control_entries_come_back_as_they_went(change: control.Control) -> None:
    """A control entry is decoded with all its fields."""
    assert control.decode_control(control.encode_control(change)) == change


def test_an_operation_of_a_newer_version_stops_the_replica() -> None:
    """Skipping it would make this replica's state another than the others'."""
    body = msgspec.msgpack.encode(("grow_wings", {}))
    with pytest.raises(StorageError, match="grow_wings"):
        control.decode_control(body)
