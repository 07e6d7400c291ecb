"""Consume queues: units in memory and on disk, and what a restart keeps of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dledger.errors import StorageError
from dledger.slices import drained
from mqbroker import limits
from mqbroker.state.derived.consume_queue import (
    UNIT,
    ConsumeQueue,
    ConsumeQueues,
    remove_paths,
    sync_files,
)
from mqbroker.state.derived.file_pool import FilePool
from mqbroker.testing.pictured import ends_of


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNITS_PER_FILE", 10)


def units(first: int, count: int) -> bytes:
    array = np.empty(count, UNIT)
    array["position"] = np.arange(first, first + count) * 100
    array["size"] = 100
    array["tags_code"] = np.arange(first, first + count) % 3 - 1
    array["store_timestamp_ms"] = np.arange(first, first + count) // 4 * 10
    return array.tobytes()


def positions(queue: ConsumeQueue, first: int, count: int) -> list[int]:
    return [int(position) // 100 for position in queue.read(first, count)["position"]]


def queue_in(path: Path) -> ConsumeQueue:
    return ConsumeQueue(path / "0", FilePool(open_max=2))


def test_a_queue_gives_back_what_was_appended_from_memory_and_from_files(tmp_path: Path) -> None:
    """Reads cross file borders and the border between what is written and what is pending."""
    queue = queue_in(tmp_path)
    for first in range(0, 35, 7):
        queue.append(units(first, 7))
        if first in (7, 21):
            queue.flush()
    assert queue.end == 35
    for first in range(35):
        for count in (1, 9, 12, 100):
            assert positions(queue, first, count) == list(range(first, min(35, first + count)))


def test_reading_outside_a_queue_finds_nothing(tmp_path: Path) -> None:
    """A read outside a queue finds nothing, and is not an error."""
    queue = queue_in(tmp_path)
    assert len(queue.read(0, 5)) == 0
    queue.append(units(0, 3))
    assert len(queue.read(3, 1)) == 0
    assert len(queue.read(-1, 1)) == 0


def test_search_by_time_finds_the_first_unit_at_or_after_it(tmp_path: Path) -> None:
    """A time before the first unit finds it, and a time after the last one the queue's end."""
    queue = queue_in(tmp_path)
    queue.append(units(0, 20))
    queue.flush()
    queue.append(units(20, 5))
    assert [queue.first_at(ms) for ms in (-5, 0, 1, 10, 11, 60, 61)] == [0, 0, 4, 4, 8, 24, 25]


def test_many_pending_units_are_written_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue keeps at most `QUEUE_PENDING_BYTES_MAX` in memory."""
    monkeypatch.setattr(limits, "QUEUE_PENDING_BYTES_MAX", 5 * UNIT.itemsize)
    queue = queue_in(tmp_path)
    for number in range(30):
        queue.append(units(number, 1))
        assert queue.pending_bytes <= 5 * UNIT.itemsize
    assert positions(queue, 0, 100) == list(range(30))


def filled(path: Path) -> ConsumeQueues:
    queues = ConsumeQueues(path)
    for number in range(25):
        queues.append("Orders", number % 2, units(number // 2, 1), index=7)
    queues.append("Other", 0, units(0, 3), index=9)
    return queues


def test_a_restart_keeps_what_the_snapshot_claims_and_cuts_the_rest(tmp_path: Path) -> None:
    """Units written after the snapshot go: they will be applied again."""
    queues = filled(tmp_path)
    queues.flush()
    sync_files(queues.take_unsynced())
    ends = ends_of(queues)
    for number in range(30):
        queues.append("Orders", 0, units(13 + number, 1), index=7)
    queues.append("Later", 0, units(0, 2), index=11)
    queues.flush()
    queues.close()

    again = ConsumeQueues(tmp_path)
    again.adopt(drained(again.restoring(ends, {})))
    again.trim()
    assert ends_of(again) == ends
    assert {path.name for path in tmp_path.iterdir()} == {"Orders.7", "Other.9"}
    again.append("Orders", 0, units(50, 1), index=7)
    queue = again.get("Orders", 0)
    assert queue is not None
    again.flush()
    assert positions(queue, 0, 100) == [*range(13), 50]


def test_restoring_changes_no_file_before_it_is_trimmed(tmp_path: Path) -> None:
    """The store may turn out to be another broker's."""
    queues = filled(tmp_path)
    queues.flush()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = ConsumeQueues(tmp_path)
    again.adopt(drained(again.restoring({"Orders": (7, {0: 3})}, {})))
    assert {path: path.read_bytes() for path in before} == before


def test_files_shorter_than_the_snapshot_claims_are_not_trusted(tmp_path: Path) -> None:
    """The caller then rebuilds the queues from the log."""
    queues = filled(tmp_path)
    queues.flush()
    with pytest.raises(StorageError, match="shorter than"):
        drained(ConsumeQueues(tmp_path).restoring({"Orders": (7, {0: 14})}, {}))
    with pytest.raises(StorageError, match="shorter than"):
        drained(ConsumeQueues(tmp_path).restoring({"Missing": (7, {0: 1})}, {}))


def test_a_topic_made_again_gets_new_queues_and_the_old_files_stay_for_a_while(
    tmp_path: Path,
) -> None:
    """A deleted topic's files stay: a restart before the next snapshot reads them."""
    queues = filled(tmp_path)
    queues.flush()
    queues.delete("Orders")
    assert queues.get("Orders", 0) is None
    queues.append("Orders", 0, units(0, 1), index=20)
    queues.flush()
    assert queues.end("Orders", 0) == 1
    assert (tmp_path / "Orders.7").exists()
    assert (tmp_path / "Orders.20").exists()
    remove_paths(queues.take_deleted())
    assert not (tmp_path / "Orders.7").exists()
