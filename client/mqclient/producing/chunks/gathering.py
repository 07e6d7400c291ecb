"""Gathering messages that have nothing but a body: each costs an object and a few counts.

A gathering is a chunk that still grows, at the end of a batch that waits for its turn. All of it
is encoded at once when the batch leaves. It takes messages for a moment only, as they share a
deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter

from dledger.limits import MESSAGE_BODY_BYTES_MAX
from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.models import Message, SendResult
from mqclient.producing.batching import Budget
from mqclient.producing.chunks.many import Chunk
from mqclient.producing.encoding import Encoder, Pattern
from mqclient.producing.pending import PendingSend

_all_else = attrgetter(
    *(each.name for each in fields(Message) if each.name not in {"topic", "body"})
)
_NOTHING_ELSE = _all_else(Message("", b""))


class Gathered(PendingSend):
    """A message of a chunk."""

    __slots__ = ("_chunk", "_number")

    def __init__(self, chunk: Chunk, number: int) -> None:
        self._chunk = chunk
        self._number = number

    @property
    def unique_key(self) -> str:
        """Unique key of the message, made of the chunk's key and its number."""
        return self._chunk.key_of(self._number)

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""
        return self._chunk.settled

    def result(self) -> SendResult:
        """Place at which the message is stored. Raises the error if the send failed. Only for a
        settled send."""
        return self._chunk.result_of(self._number)

    def _when_settled(self, listener: Callable[[], None]) -> None:
        self._chunk.batch.listeners.append(listener)


def _nothing() -> None:
    pass


class Growing:
    """The records of a chunk, as a piece of a batch: encoded when they are asked for."""

    def __init__(self, chunk: Chunk, pattern: Pattern, encoder: Encoder, first_body: bytes) -> None:
        self.chunk = chunk
        self.on_encoded: Callable[[], None] = _nothing
        self.overhead_bytes = pattern.size_bytes
        self.bodies = [first_body]
        self._pattern = pattern
        self._encoder = encoder
        self._records = b""

    def __len__(self) -> int:
        return len(self.bodies) * self.overhead_bytes + sum(map(len, self.bodies))

    def __bytes__(self) -> bytes:
        """From now on it does not grow."""
        if self.bodies:
            self._records, self.chunk.ends = self._encoder.fill(self._pattern, self.bodies)
            self.bodies = []
            self.on_encoded()
        return self._records


class Gathering:
    """A chunk that grows, of messages with the same time-out, until its time is over."""

    __slots__ = (
        *("_batch", "_batch_bytes_max", "_bodies", "_budget", "_closes_s", "_growing", "_lane"),
        *("_overhead_bytes", "_queue", "_run", "_chunk", "_timeout_s"),
    )

    def __init__(
        self,
        growing: Growing,
        queue: MessageQueue,
        budget: Budget,
        batch_bytes_max: int,
        closes_s: float,
        timeout_s: float,
    ) -> None:
        chunk = growing.chunk
        self._growing = growing
        self._queue = queue
        self._bodies = growing.bodies
        self._overhead_bytes = growing.overhead_bytes
        self._chunk = chunk
        self._batch = chunk.batch
        self._lane = chunk.batch.lanes[0]
        self._run = chunk.batch.runs[chunk.queue_id]
        self._budget = budget
        self._batch_bytes_max = batch_bytes_max
        self._closes_s = closes_s
        self._timeout_s = timeout_s

    @property
    def first(self) -> Gathered:
        """The first message of the chunk."""
        return Gathered(self._chunk, 0)

    @property
    def begins_a_batch(self) -> bool:
        """Whether nothing is in its batch but this."""
        return len(self._batch.slots) == 1

    @property
    def open_queue(self) -> MessageQueue | None:
        """The queue, as long as its batch waits and was not taken apart."""
        return self._queue if self._lane.open is self._batch else None

    def takes(self, body: bytes, now_s: float, timeout_s: float) -> bool:
        """Whether a message may be added: its batch waits and has room, nothing came behind."""
        batch = self._batch
        return (
            now_s <= self._closes_s
            and timeout_s == self._timeout_s
            and self._lane.open is batch
            and self._run.pieces[-1] is self._growing
            and batch.size_bytes + len(body) + self._overhead_bytes <= self._batch_bytes_max
            and batch.count < limits.BATCH_RECORDS_MAX
        )

    def add(self, body: bytes) -> Gathered:
        """Add a message to the chunk."""
        size_bytes = self._overhead_bytes + len(body)
        chunk, budget = self._chunk, self._budget
        pending = Gathered(chunk, chunk.count)
        self._bodies.append(body)
        chunk.count += 1
        self._batch.grow(self._run, size_bytes)
        budget.messages += 1
        budget.size_bytes += size_bytes
        return pending


def plain(message: Message) -> bool:
    """Whether it has nothing but a topic and a body that a record can hold."""
    body = message.body
    whole = type(body) is bytes and len(body) <= MESSAGE_BODY_BYTES_MAX
    return whole and _all_else(message) == _NOTHING_ELSE
