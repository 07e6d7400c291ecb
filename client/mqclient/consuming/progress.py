"""The progress of a consumer in one queue: fetched, handed out, finished, committed. Pure.

Messages are fetched ahead of need into a bounded buffer and handed out in order. They are finished
one by one, in any order, by whoever has them. Committed is only what has no gap below, so a crash
delivers again what was not finished; what a broker has committed is never fetched again, for
fetching starts there.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.arguments import check_count
from mqclient.connection.answers import checked_offset
from mqclient.consuming.columns.batch import Listed, MessageBatch
from mqclient.consuming.unfinished import Unfinished
from mqclient.models import ReceivedMessage


class Place(NamedTuple):
    """An offset in a queue, and the life of the topic to which it belongs: 0 if that is not
    known."""

    offset: int
    life: int = 0


@dataclass(slots=True)
class Chunk:
    """The messages of one pull, in order, and the bytes that they keep alive; whether some of them
    will expire, and how many of them are left."""

    messages: MessageBatch
    size_bytes: int
    expiring: bool = False
    left: int = field(init=False)
    _objects: list[ReceivedMessage] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.left = len(self.messages)

    def take(self, count: int) -> MessageBatch:
        """The next messages, at most `count`. Few at a time are objects that were all made at
        once."""
        begin = len(self.messages) - self.left
        self.left = max(0, self.left - count)
        end = len(self.messages) - self.left
        if count < limits.READ_TOGETHER_MIN:
            if self._objects is None:
                self._objects = self.messages.listed()
            return Listed(self._objects[begin:end])
        return self.messages if end - begin == len(self.messages) else self.messages[begin:end]

    @property
    def first(self) -> ReceivedMessage:
        """The next message to hand out."""
        return self.messages[-self.left]


@dataclass(slots=True)
class Ahead:
    """How much a consumer fetches ahead of what it has handed out, of all its queues together. Each
    of them has the same share, and never more than is useful for one."""

    messages: int = limits.PREFETCH_RECORDS_MAX
    size_bytes: int = limits.PREFETCH_BYTES_MAX
    queues: int = 1

    def __post_init__(self) -> None:
        check_count("prefetch_messages", self.messages)
        check_count("prefetch_bytes", self.size_bytes)

    @property
    def messages_each(self) -> int:
        """A queue's share of the messages."""
        share = max(1, self.messages // max(1, self.queues))
        return min(share, limits.PREFETCH_RECORDS_PER_QUEUE_MAX)

    @property
    def bytes_each(self) -> int:
        """A queue's share of the bytes."""
        share = max(1, self.size_bytes // max(1, self.queues))
        return min(share, limits.PREFETCH_BYTES_PER_QUEUE_MAX)

    @property
    def asked_bytes(self) -> int:
        """Bytes for which a queue's pull asks."""
        share = max(limits.PULL_BYTES_MIN, limits.PULLS_BYTES_MAX // max(1, self.queues))
        return min(share, limits.PULL_BYTES_MAX, self.bytes_each)


@dataclass(slots=True, eq=False)
class QueueProgress:
    """A queue that belongs to this consumer. Offsets are queue offsets.

    `epoch` changes when the position is moved by hand or the queue is given up: what was fetched
    or handed out under an earlier epoch no longer counts. While it is `paused` by the application,
    or `closing` since another member is to read it, nothing is handed out. What is `returned` was
    handed out before, and is to be again. `handling` counts what was taken for handlers, `begun_to`
    is behind the last message that one has begun with; `polled` is true while the application has
    some that it asked for itself. All of it is of one `life` of the topic, 0 until that is known.
    """

    queue: MessageQueue
    ahead: Ahead = field(default_factory=Ahead)
    started: bool = False
    fetch_offset: int = 0
    committed: int = -1
    life: int = 0
    epoch: int = 0
    buffered: int = 0
    buffered_bytes: int = 0
    max_offset: int = 0
    paused: bool = False
    closing: bool = False
    handling: int = 0
    begun_to: int = 0
    polled: bool = False
    unfinished: Unfinished = field(default_factory=Unfinished)
    _chunks: deque[Chunk] = field(default_factory=deque)
    returned: list[ReceivedMessage] = field(default_factory=list)

    def start(self, offset: int, life: int = 0) -> None:
        """Begin reading the queue at `offset`. Raises BadInput for what can't be an offset."""
        checked_offset(offset, f"where to begin with {self.queue}")
        self.started = True
        self.fetch_offset = self.committed = offset
        self.life = life

    @property
    def wants_more(self) -> bool:
        """Whether there is room to fetch ahead."""
        return (
            self.buffered < self.ahead.messages_each and self.buffered_bytes < self.ahead.bytes_each
        )

    @property
    def has_messages(self) -> bool:
        """Whether something can be handed out."""
        return bool(self.returned or self._chunks) and not (self.paused or self.closing)

    @property
    def may_expire(self) -> bool:
        """Whether some of what is handed out next may have expired meanwhile."""
        return bool(self._chunks) and self._chunks[0].expiring

    @property
    def is_in_hand(self) -> bool:
        """Whether anybody is at work on messages of it."""
        return self.handling > 0 or (self.polled and self.unfinished.lowest is not None)

    @property
    def lag(self) -> int:
        """Messages not processed yet, as of the last answer of the queue's broker."""
        return max(0, self.max_offset - self.position)

    @property
    def is_ahead(self) -> bool:
        """Whether there is something to commit."""
        return self.started and self.position != self.committed

    @property
    def buffered_from(self) -> int | None:
        """The offset of the first message that was fetched and not yet handed out."""
        return self._chunks[0].first.queue_offset if self._chunks else None

    def accept(self, epoch: int, chunk: Chunk, next_offset: int) -> bool:
        """Take in the answer to a pull made under `epoch`; whether it still counted. BadInput if
        the next offset is none, or not behind the messages."""
        if epoch != self.epoch:
            return False
        checked_offset(next_offset, f"the next offset of {self.queue}")
        if chunk.messages:
            first, last = chunk.messages[0].queue_offset, chunk.messages[-1].queue_offset
            if not self.fetch_offset <= first <= last < next_offset:
                raise BadInput(
                    f"a pull of {self.queue} at {self.fetch_offset} was answered with messages "
                    f"{first} to {last}, the next one at {next_offset}"
                )
        self.fetch_offset = next_offset
        if chunk.messages:
            self._chunks.append(chunk)
            self.buffered += chunk.left
            self.buffered_bytes += chunk.size_bytes
        return True

    def take(self, messages_max: int = 1, now_ms: int = 0) -> MessageBatch:
        """The next messages, at most one pull's worth; they are in the application's hands now.

        Those that have expired at `now_ms`, since they were fetched, are left out.
        """
        if self.returned:
            returned = self.returned[:messages_max]
            del self.returned[:messages_max]
            return Listed(returned)
        while self._chunks:
            messages, expiring = self._take_fetched(messages_max)
            if expiring:
                left = [each for each in messages if (each.expires_ms or now_ms + 1) > now_ms]
                messages = Listed(left)
            if messages:
                self._note_in_hand(messages)
                return messages
        return Listed([])

    def _take_fetched(self, messages_max: int) -> tuple[MessageBatch, bool]:
        """Messages of the first pull that there is, and whether some may expire."""
        chunk = self._chunks[0]
        messages = chunk.take(messages_max)
        self.buffered -= len(messages)
        if not chunk.left:
            self._chunks.popleft()
            self.buffered_bytes -= chunk.size_bytes
        return messages, chunk.expiring

    def _note_in_hand(self, messages: MessageBatch) -> None:
        count, first = len(messages), messages[0].queue_offset
        end = first + 1 if count == 1 else messages[-1].queue_offset + 1
        if end - first == count:
            self.unfinished.add(first, end)
            return
        for message in messages:
            self.unfinished.add(message.queue_offset, message.queue_offset + 1)

    @property
    def next_size_bytes(self) -> int:
        """Bytes in memory of the message that would be handed out next."""
        message = self.returned[0] if self.returned else self._chunks[0].first
        return message.held_bytes

    def finish(self, first: int, last: int) -> None:
        """The application is through with what it had in hand from `first` to `last`."""
        self.unfinished.remove(first, last + 1)

    def give_back(self, message: ReceivedMessage, epoch: int) -> None:
        """A message that was handed out under `epoch` was not handled: it is the next again."""
        if epoch == self.epoch and message.queue_offset in self.unfinished:
            insort(self.returned, message, key=lambda each: each.queue_offset)

    @property
    def position(self) -> int:
        """The offset to commit: everything below it is finished, or was filtered out."""
        lowest = self.unfinished.lowest
        if lowest is not None:
            return lowest
        return self.handed_out_to

    @property
    def handed_out_to(self) -> int:
        """Behind everything that was handed out, and what filters left out after it."""
        first = self.buffered_from
        return self.fetch_offset if first is None else first

    def seek(self, offset: int) -> None:
        """Go on from `offset`; nothing fetched before counts."""
        self._forget()
        self.started = True
        self.fetch_offset = offset

    def revoke(self) -> None:
        """The queue goes to another consumer: what was fetched is not handed out any more."""
        self._forget()

    def _forget(self) -> None:
        self.epoch += 1
        self.begun_to = 0
        self.polled = False
        self._chunks.clear()
        self.returned.clear()
        self.unfinished.clear()
        self.buffered = self.buffered_bytes = 0
