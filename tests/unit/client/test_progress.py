"""A queue's progress: only what was handed out and finished, without a gap, is committed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.record import encode_record
from dledger.remoting.record.table import RecordTable
from mqclient import limits
from mqclient.consuming.columns.batch import Listed, MessageBatch, Rows
from mqclient.consuming.progress import Ahead, Chunk, QueueProgress
from mqclient.models import ReceivedMessage

QUEUE = MessageQueue("T", "b", 0)


def record(offset: int) -> bytes:
    return encode_record(
        topic=b"T",
        queue_id=0,
        body=b"x",
        properties=b"",
        born_timestamp_ms=0,
        born_host=bytes(8),
        queue_offset=offset,
    )


def message(offset: int) -> ReceivedMessage:
    return ReceivedMessage(memoryview(record(offset)), "b")


def rows(*offsets: int) -> MessageBatch:
    table = RecordTable(b"".join(record(offset) for offset in offsets))
    return Rows(table, "b", range(len(offsets)))


def offsets(messages: Sequence[ReceivedMessage]) -> list[int]:
    return [each.queue_offset for each in messages]


def test_the_buffer_is_bounded() -> None:
    """A queue with a full buffer wants no more until something is handed out."""
    progress = QueueProgress(QUEUE)
    progress.start(0)
    progress.accept(0, Chunk(Listed([message(0)]), limits.PREFETCH_BYTES_PER_QUEUE_MAX), 1)
    assert not progress.wants_more
    progress.take()
    assert progress.wants_more


@pytest.mark.parametrize(("first", "next_offset"), [(4, 9), (5, 5), (9, 8)])
def test_messages_that_are_not_where_they_were_asked_for_are_refused(
    first: int, next_offset: int
) -> None:
    """Messages before the pull's offset, or not below the next one, are refused."""
    progress = QueueProgress(QUEUE)
    progress.start(5)
    with pytest.raises(BadInput, match="a pull of T/b/0 at 5" if str(QUEUE) == "T/b/0" else "at 5"):
        progress.accept(0, Chunk(Listed([message(first)]), 100), next_offset)
    assert (progress.position, progress.has_messages) == (5, False)


class Model:
    """Sets of what was fetched, what is in hand, and what is finished."""

    def __init__(self) -> None:
        self.buffer: list[int] = []
        self.in_hand: set[int] = set()
        self.returned: set[int] = set()
        self.next = 0

    @property
    def position(self) -> int:
        open_ = self.in_hand | self.returned | set(self.buffer)
        return min(open_, default=self.next)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.booleans(), st.lists(st.integers(0, 3), max_size=5)),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("finish"), st.tuples(st.integers(0, 40), st.integers(0, 4))),
        st.tuples(st.just("give back"), st.integers(0, 40)),
        st.tuples(st.just("seek"), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(STEPS)
def test_progress_is_what_sets_of_offsets_say(steps: list[tuple[object, ...]]) -> None:
    """Progress is what sets of offsets say, whatever is fetched, finished, returned or sought.

    Offsets have gaps, and come as a list or a table; messages that were handed out before a seek
    move nothing.
    """
    progress, model = QueueProgress(QUEUE), Model()
    progress.start(0)
    for step in steps:
        match step:
            case "fetch", bool(together), [*gaps]:
                fetched = []
                for gap in gaps:
                    model.next += gap + 1
                    fetched.append(model.next - 1)
                model.buffer += fetched
                listed = Listed([message(offset) for offset in fetched])
                chunk = Chunk(rows(*fetched) if together else listed, 1)
                assert progress.accept(progress.epoch, chunk, model.next)
            case "take", int(count):
                taken = progress.take(count)
                expected = sorted(model.returned) or model.buffer
                assert offsets(taken) == expected[: len(taken)]
                assert bool(taken) == bool(expected)
                model.returned -= set(offsets(taken))
                model.buffer = [each for each in model.buffer if each not in offsets(taken)]
                model.in_hand |= set(offsets(taken))
            case "finish", (int(first), int(more)):
                if model.returned.isdisjoint(range(first, first + more + 1)):
                    progress.finish(first, first + more)
                    model.in_hand -= set(range(first, first + more + 1))
            case "give back", int(offset):
                if offset in model.in_hand:
                    progress.give_back(message(offset), progress.epoch)
                    model.in_hand.remove(offset)
                    model.returned.add(offset)
            case "seek", int(offset):
                epoch, outdated = progress.epoch, sorted(model.in_hand)
                progress.seek(offset)
                for each in outdated:
                    progress.give_back(message(each), epoch)
                assert not progress.accept(epoch, Chunk(Listed([message(offset)]), 1), offset + 1)
                model.__init__()  # type: ignore[misc]
                model.next = offset
        assert (progress.position, progress.fetch_offset) == (model.position, model.next)
        assert progress.has_messages == bool(model.returned or model.buffer)
        assert progress.unfinished.runs <= len(model.in_hand | model.returned)


@given(
    st.integers(1, 10**7), st.integers(1, 10**10), st.integers(0, 5000), st.lists(st.integers(1, 9))
)
def test_all_queues_together_hold_no_more_than_they_may(
    messages: int, size_bytes: int, queues: int, sizes: list[int]
) -> None:
    """Each has a share, one message at least; none has more than is useful for one."""
    ahead = Ahead(messages, size_bytes, queues)
    assert 1 <= ahead.messages_each <= limits.PREFETCH_RECORDS_PER_QUEUE_MAX
    assert 1 <= ahead.bytes_each <= limits.PREFETCH_BYTES_PER_QUEUE_MAX
    assert ahead.messages_each * queues <= max(messages, queues)
    assert ahead.bytes_each * queues <= max(size_bytes, queues)
    assert 1 <= ahead.asked_bytes <= ahead.bytes_each
    least_bytes = limits.PULL_BYTES_MIN * queues
    assert ahead.asked_bytes * queues <= max(limits.PULLS_BYTES_MAX, least_bytes)
    progress = QueueProgress(QUEUE, ahead)
    progress.start(0)
    for size in sizes:
        if progress.wants_more:
            at = progress.fetch_offset
            progress.accept(0, Chunk(Listed([message(at)]), size), at + 1)
    assert progress.buffered <= ahead.messages_each
    assert progress.buffered_bytes < ahead.bytes_each + 9


@pytest.mark.parametrize(("messages", "size_bytes"), [(0, 1), (1, 0), (-1, 1)])
def test_a_consumer_that_may_fetch_nothing_is_refused(messages: int, size_bytes: int) -> None:
    """A consumer that may fetch nothing would never read, and is refused."""
    with pytest.raises(BadInput, match="prefetch_(messages|bytes)=(0|-1): expected"):
        Ahead(messages, size_bytes)
