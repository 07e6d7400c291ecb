"""A queue's progress: only what was handed out and processed is committed."""

from __future__ import annotations

from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.record import encode_record
from mqclient import limits
from mqclient.consuming.progress import Chunk, QueueProgress
from mqclient.models import ReceivedMessage

QUEUE = MessageQueue("T", "b", 0)


def message(offset: int) -> ReceivedMessage:
    data = encode_record(
        topic=b"T",
        queue_id=0,
        body=b"x",
        properties=b"",
        born_timestamp_ms=0,
        born_host=bytes(8),
        queue_offset=offset,
    )
    return ReceivedMessage(memoryview(data), "b")


def started(*offsets: int, next_offset: int) -> QueueProgress:
    progress = QueueProgress(QUEUE)
    progress.start(offsets[0])
    progress.accept(0, Chunk([message(offset) for offset in offsets], 100), next_offset)
    return progress


def test_fetched_is_not_processed() -> None:
    """What was only fetched is not committed."""
    assert started(5, 6, 7, next_offset=8).position == 5


def test_handed_out_is_not_processed() -> None:
    """The message in the application's hands is not committed; the one before it is."""
    progress = started(5, 6, next_offset=7)
    first, second = progress.hand_out()
    progress.handed(first)
    progress.processed(first, 0)
    progress.handed(second)
    assert progress.position == 6
    progress.process_handed()
    assert progress.position == 7


def test_filtered_messages_are_skipped_once_all_is_processed() -> None:
    """With nothing in hand the position follows the broker's next offset over filtered ones."""
    progress = started(5, next_offset=40)
    (only,) = progress.hand_out()
    progress.handed(only)
    assert progress.position == 5
    progress.processed(only, 0)
    assert progress.position == 40


def test_a_chunk_that_is_being_handed_out_holds_the_position() -> None:
    """Messages taken out of the buffer but not seen yet keep the position back."""
    progress = started(5, 6, next_offset=7)
    progress.busy = True
    progress.hand_out()
    assert progress.position == 5


def test_a_seek_outdates_what_was_fetched_and_handed_out() -> None:
    """After a seek, older answers and older messages move nothing."""
    progress = started(5, 6, next_offset=7)
    (first, _) = progress.hand_out()
    progress.seek(2)
    progress.processed(first, 0)
    assert not progress.accept(0, Chunk([message(7)], 100), 8)
    assert (progress.position, progress.fetch_offset) == (2, 2)


def test_the_buffer_is_bounded() -> None:
    """A queue with a full buffer wants no more until something is handed out."""
    progress = QueueProgress(QUEUE)
    progress.start(0)
    progress.accept(0, Chunk([message(0)], limits.PREFETCH_BYTES_PER_QUEUE_MAX), 1)
    assert not progress.wants_more
    progress.hand_out()
    assert progress.wants_more


def test_part_of_a_chunk_can_be_handed_out() -> None:
    """`hand_out(n)` gives the first n in order and keeps the rest for the next call."""
    progress = started(5, 6, 7, next_offset=8)
    assert [m.queue_offset for m in progress.hand_out(2)] == [5, 6]
    assert [m.queue_offset for m in progress.hand_out(2)] == [7]
    assert progress.hand_out(2) == []
