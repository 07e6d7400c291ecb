"""How far a consumer is in one queue: fetched, handed out, processed, committed. Pure.

The four only ever follow each other. Messages are fetched ahead of need into a bounded buffer,
handed out in order, and count as processed when the application comes back for more (or its
handler returns). Only what was processed is committed, so a crash delivers the rest again; what a
broker has committed is never fetched again, for fetching starts there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.connection.answers import checked_offset
from mqclient.models import ReceivedMessage


@dataclass(slots=True)
class Chunk:
    """The messages of one pull, in order, and the bytes that they keep alive."""

    messages: list[ReceivedMessage]
    size_bytes: int


@dataclass(slots=True, eq=False)
class QueueProgress:
    """One queue that belongs to this consumer. Offsets are queue offsets.

    `epoch` changes when the position is moved by hand or the queue is given up: what was fetched
    or handed out under an earlier epoch no longer counts. `busy` means that someone is handing a
    chunk of it to the application at the moment.
    """

    queue: MessageQueue
    started: bool = False
    fetch_offset: int = 0
    committed: int = -1
    epoch: int = 0
    busy: bool = False
    buffered: int = 0
    buffered_bytes: int = 0
    max_offset: int = 0
    _chunks: deque[Chunk] = field(default_factory=deque)
    _handed: ReceivedMessage | None = None
    _processed: ReceivedMessage | None = None
    _start: int = 0

    def start(self, offset: int) -> None:
        """Begin reading at `offset`. BadInput if a broker told what is none."""
        checked_offset(offset, f"where to begin with {self.queue}")
        self.started = True
        self.fetch_offset = self._start = self.committed = offset

    @property
    def wants_more(self) -> bool:
        """Whether there is room to fetch ahead."""
        return (
            self.buffered < limits.PREFETCH_RECORDS_PER_QUEUE_MAX
            and self.buffered_bytes < limits.PREFETCH_BYTES_PER_QUEUE_MAX
        )

    @property
    def has_messages(self) -> bool:
        """Whether something can be handed out."""
        return bool(self._chunks)

    @property
    def buffered_from(self) -> int | None:
        """The offset of the first message that was fetched and not yet handed out."""
        return self._chunks[0].messages[0].queue_offset if self._chunks else None

    def accept(self, epoch: int, chunk: Chunk, next_offset: int) -> bool:
        """Take in the answer to a pull made under `epoch`; whether it still counted. BadInput if
        the next offset is none."""
        if epoch != self.epoch:
            return False
        self.fetch_offset = checked_offset(next_offset, f"the next offset of {self.queue}")
        if chunk.messages:
            self._chunks.append(chunk)
            self.buffered += len(chunk.messages)
            self.buffered_bytes += chunk.size_bytes
        return True

    def hand_out(self, messages_max: int | None = None) -> list[ReceivedMessage]:
        """The next messages, at most one pull's worth; they are in the application's hands now."""
        if not self._chunks:
            return []
        chunk = self._chunks[0]
        if messages_max is None or messages_max >= len(chunk.messages):
            self._chunks.popleft()
            messages = chunk.messages
            self.buffered_bytes -= chunk.size_bytes
        else:
            messages = chunk.messages[:messages_max]
            del chunk.messages[:messages_max]
        self.buffered -= len(messages)
        return messages

    def handed(self, message: ReceivedMessage) -> None:
        """`message` is the last one that the application has seen."""
        self._handed = message

    def processed(self, message: ReceivedMessage, epoch: int) -> None:
        """The application is through with `message` and all before it."""
        if epoch == self.epoch:
            self._handed = self._processed = message

    def process_handed(self) -> None:
        """The application is through with all that it has seen."""
        self._processed = self._handed

    @property
    def position(self) -> int:
        """The offset to commit: everything below it is processed, or was filtered out."""
        if self._processed is self._handed and not self._chunks and not self.busy:
            return self.fetch_offset
        return self._start if self._processed is None else self._processed.queue_offset + 1

    def seek(self, offset: int) -> None:
        """Go on from `offset`; nothing fetched before counts."""
        self.epoch += 1
        self.started = True
        self.fetch_offset = self._start = offset
        self._chunks.clear()
        self.buffered = self.buffered_bytes = 0
        self._handed = self._processed = None

    def revoke(self) -> None:
        """The queue goes to another consumer: what was fetched is not handed out any more."""
        self.epoch += 1
        self._chunks.clear()
        self.buffered = self.buffered_bytes = 0
