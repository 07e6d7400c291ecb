"""A batch of messages on its way to one broker group, and each message's place in it. Pure.

A batch is mutable until it is first sent. From then on its bytes are frozen: every retry is byte
for byte the same, so that the broker's window of seen batches recognises it by its first record.
An acknowledgement settles a whole batch at once; the result of one message is computed only when it
is asked for. A broker may hold the batch or not:

=========  ===================================  ==========================  =======================
state      a broker                             when a deadline is over     the messages may move to
=========  ===================================  ==========================  =======================
UNSENT     has not stored it: it was never      they have failed, and       another group
           sent, or each try was refused        leave the batch
ON_WIRE    may store it: the first try that     their outcome is unknown,   another group, if twice
           counts is under way                  their records stay          is allowed
DOUBTFUL   may have stored it: a try ended      the same                    the same
           without an answer
ENDED      has stored it, if there is an        each has its outcome: a     none
           acknowledgement                      place, or an error
=========  ===================================  ==========================  =======================

A batch changes by these methods only. No way leads out of DOUBTFUL but the end: a later try that is
refused does not tell what became of an earlier one.

=================  ============================================  =======================
method             event                                         state
=================  ============================================  =======================
`Delivery.number`  a named producer gives it its number, once    stays
`Delivery.park`    it waits for a leader, or for its next try    stays
`Delivery.send`    a try begins                                  UNSENT becomes ON_WIRE
`Delivery.renew`   the silent server is still the leader         stays
`Delivery.refuse`  the try was answered, and stored nothing      ON_WIRE becomes UNSENT
`Delivery.lose`    the try ended without an answer               becomes DOUBTFUL
`Batch.end`        it is acknowledged, or its messages failed    becomes ENDED
=================  ============================================  =======================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sized
from enum import Enum, auto
from typing import Protocol, SupportsBytes

import msgspec
from msgspec import field

from mqclient.errors import SendError, SendFailed, SendUnknown
from mqclient.models import SendResult


class Slot:
    """The place of a message in a batch. Its result follows from this and the batch's
    acknowledgement.

    A kind of slot may stand for `count` messages next to each other, whose records are one piece;
    the place is the first one's. `nth` and `start_bytes` count within the batch's run of
    `queue_id`. `moves_left` is how often it may still move to another queue: 0 if its sender chose
    one.
    """

    __slots__ = (
        "batch",
        "deadline_s",
        "error",
        "moves_left",
        "nth",
        "queue_id",
        "start_bytes",
        "unique_key",
    )

    count = 1
    batch: Batch
    moves_left: int
    queue_id: int
    nth: int
    start_bytes: int
    error: SendError | None

    def __init__(self, unique_key: str, deadline_s: float, moves_left: int = 0) -> None:
        self.unique_key = unique_key
        self.deadline_s = deadline_s
        self.moves_left = moves_left
        self.error = None

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""
        return self.error is not None or self.batch.ack is not None

    def result(self) -> SendResult:
        """Place at which the message is stored. Raises the error if it failed. Only for a settled
        slot."""
        if self.error is not None:
            raise self.error
        return self._place(self.unique_key, 0, 0)

    def _place(self, unique_key: str, number: int, start_bytes: int) -> SendResult:
        """Where a message of the slot went, by its number and its first byte within it."""
        batch, queue_id, ack = self.batch, self.queue_id, self.batch.ack
        if ack is None:
            raise RuntimeError(f"message {unique_key} is still on its way: wait for it")
        return SendResult(
            unique_key,
            batch.topic,
            batch.broker_name,
            queue_id,
            ack.offsets[queue_id] + self.nth + number,
            ack.position_of(
                self.nth + number, batch.run_starts[queue_id] + self.start_bytes + start_bytes
            ),
            ack.leader,
            ack.recall_handle,
        )


class Ack(msgspec.Struct, frozen=True):
    """The acknowledgement of a whole batch: log position of its first record, offset per queue.

    `positions` are those of all records, from a broker that does not keep them next to each other.
    """

    position: int
    offsets: dict[int, int]
    leader: str
    recall_handle: str = ""
    positions: tuple[int, ...] = ()

    def position_of(self, number: int, start_bytes: int) -> int:
        """Where a record lies, by its number and its first byte within the batch."""
        return self.positions[number] if self.positions else self.position + start_bytes


class Unencoded(Sized, SupportsBytes, Protocol):
    """Records that are encoded when their batch is first sent; its length is theirs."""


class Run(msgspec.Struct):
    """The records of one queue within a batch, in order: a piece for each slot."""

    pieces: list[bytes | Unencoded] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0


class State(Enum):
    """The state of a batch: whether a broker may hold it. See the table above."""

    UNSENT = auto()
    ON_WIRE = auto()
    DOUBTFUL = auto()
    ENDED = auto()


class Delivery(msgspec.Struct):
    """The tries of one batch: how many, the last one's time and server, and when the next is due.

    A named producer's batch has a `stamp`, (stream, sequence), from its first try on.
    """

    state: State = State.UNSENT
    attempt: int = 0
    sent_s: float = 0.0
    sent_to: str = ""
    retry_at_s: float = 0.0
    stamp: tuple[int, int] | None = None

    @property
    def maybe_stored(self) -> bool:
        """Whether a broker may have stored the batch."""
        return self.state is not State.UNSENT

    @property
    def doubtful(self) -> bool:
        """Whether a try ended without an answer."""
        return self.state is State.DOUBTFUL

    def number(self, stream: int, sequence: int) -> None:
        """The batch gets the number by which brokers know it again."""
        self.stamp = (stream, sequence)

    def park(self, until_s: float) -> None:
        """The next try waits, until then at least."""
        self.retry_at_s = until_s

    def send(self, now_s: float, server: str) -> int:
        """A try begins; its number."""
        if self.state is State.UNSENT:
            self.state = State.ON_WIRE
        self.attempt += 1
        self.sent_s, self.sent_to = now_s, server
        return self.attempt

    def renew(self, now_s: float) -> None:
        """The server of the last try is still the leader: it has more time to answer."""
        self.sent_s = now_s

    def refuse(self) -> None:
        """The last try was answered, and has certainly stored nothing."""
        if self.state is State.ON_WIRE:
            self.state = State.UNSENT

    def lose(self) -> None:
        """The last try ended without an answer, or nobody waits for it any more."""
        self.state = State.DOUBTFUL


class Kind(Enum):
    """The messages of a batch, and which lane it takes:

    =======  ==============================================  ====================================
    kind     messages                                        lane
    =======  ==============================================  ====================================
    SHARED   which came while their lane was busy, or by     that of their queues
             one call
    ALONE    one, which its sender may send again            that of its queue
    DELAYED  one, whose record the broker makes              any: it keeps no order with others
    HALF     one, of a transaction; else like a delayed one  the same
    ONEWAY   which nobody acknowledges                       one of their own
    =======  ==============================================  ====================================
    """

    SHARED = auto()
    ALONE = auto()
    DELAYED = auto()
    HALF = auto()
    ONEWAY = auto()

    @property
    def waits_at_broker(self) -> bool:
        """Whether the broker stores such a message elsewhere, until its time or its end comes."""
        return self in (Kind.DELAYED, Kind.HALF)


class Batch(msgspec.Struct, eq=False):
    """Records of one topic, a run per queue, that become one entry of one group's log.

    `lanes` are all that its queues belong to. `late`: how many messages of it had no outcome inside
    their deadlines, though they may be stored.
    """

    topic: str
    broker_name: str
    lanes: tuple[Lane, ...]
    opened_s: float
    kind: Kind = Kind.SHARED
    runs: dict[int, Run] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
    first_deadline_s: float = float("inf")
    body: bytes | None = None
    run_starts: dict[int, int] = field(default_factory=dict)
    delivery: Delivery = field(default_factory=Delivery)
    late: int = 0
    ack: Ack | None = None
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def append(self, slot: Slot, queue_id: int, piece: bytes | Unencoded) -> None:
        """Add a slot's encoded records at the end of their queue's run and fill in `slot`."""
        run = self.runs.get(queue_id)
        if run is None:
            run = self.runs[queue_id] = Run()
        slot.batch = self
        slot.queue_id = queue_id
        slot.nth = run.count
        slot.start_bytes = run.size_bytes
        run.pieces.append(piece)
        run.count += slot.count
        self.count += slot.count
        size_bytes = len(piece)
        run.size_bytes += size_bytes
        self.size_bytes += size_bytes
        self.slots.append(slot)
        if slot.deadline_s < self.first_deadline_s:  # noqa: PLR1730  (min() costs three times this)
            self.first_deadline_s = slot.deadline_s

    def grow(self, run: Run, size_bytes: int) -> None:
        """Count one message more in the last piece of a run, which is not encoded yet."""
        run.count += 1
        run.size_bytes += size_bytes
        self.count += 1
        self.size_bytes += size_bytes

    def freeze(self) -> bytes:
        """The body as it will be sent, now and at every retry."""
        if self.body is None:
            at = 0
            for queue_id, run in self.runs.items():
                self.run_starts[queue_id] = at
                at += run.size_bytes
            pieces = [piece for run in self.runs.values() for piece in run.pieces]
            self.body = b"".join(map(bytes, pieces))
        return self.body

    @property
    def under_way(self) -> bool:
        """Whether it was given out to be sent, and is not done."""
        return self.lanes[0].in_flight is self

    @property
    def run_counts(self) -> list[tuple[int, int]]:
        """(queue id, number of records) in the order of the body."""
        return [(queue_id, run.count) for queue_id, run in self.runs.items()]

    @property
    def movable(self) -> bool:
        """Whether all of its messages may move to another queue."""
        return all(slot.moves_left > 0 and not slot.settled for slot in self.slots)

    @property
    def abandoned(self) -> bool:
        """Whether no caller waits for it any more."""
        return all(slot.error is not None for slot in self.slots)

    @property
    def last_deadline_s(self) -> float:
        """The last deadline of its messages."""
        return max((s.deadline_s for s in self.slots if s.error is None), default=0.0)

    def fail(self, error_type: type[SendError], reason: str) -> list[Slot]:
        """Fail every message of it that is not settled, and return these."""
        open_slots = [slot for slot in self.slots if slot.error is None]
        for slot in open_slots:
            slot.error = error_type(reason, self.topic, self.broker_name, slot.unique_key)
        return open_slots

    def expire(self, now_s: float) -> list[Slot]:
        """Fail the messages whose deadline is over.

        If the batch was never sent, they leave it and have definitely failed. If it was sent they
        may be stored: their records stay, and their outcome is unknown.
        """
        return (
            self._expire_sent(now_s) if self.delivery.maybe_stored else self._expire_unsent(now_s)
        )

    def end(self, ack: Ack | None) -> None:
        """Every message has its outcome: a place by the acknowledgement, or an error."""
        self.ack = ack
        self.delivery.state = State.ENDED

    def release(self) -> None:
        """Drop the bytes once the outcome is known; a slot that is kept then holds only numbers."""
        self.body = None
        self.runs = {}
        self.slots = []

    def settle(self) -> None:
        """Wake the callers whose messages are settled."""
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener()

    def _expire_sent(self, now_s: float) -> list[Slot]:
        late = [slot for slot in self.slots if slot.error is None and slot.deadline_s <= now_s]
        reason = f"no acknowledgement inside the deadline, after {self.delivery.attempt} tries"
        for slot in late:
            slot.error = SendUnknown(reason, self.topic, self.broker_name, slot.unique_key)
        self.late += sum(slot.count for slot in late)
        left = [slot.deadline_s for slot in self.slots if slot.error is None]
        self.first_deadline_s = min(left, default=float("inf"))
        return late

    def _expire_unsent(self, now_s: float) -> list[Slot]:
        reason = "the deadline was over before it could be sent"
        late = [slot for slot, _ in self._take_out(lambda slot: slot.deadline_s <= now_s)]
        for slot in late:
            slot.error = SendFailed(reason, self.topic, self.broker_name, slot.unique_key)
        return late

    def withdraw(self) -> list[tuple[list[Slot], list[bytes]]]:
        """Take out the messages that may move to another queue, and their records, by run.

        Only while the batch is certainly not stored: another group would not recognise a second
        copy.
        """
        runs: dict[int, tuple[list[Slot], list[bytes]]] = {}
        for slot, piece in self._take_out(lambda slot: slot.moves_left > 0 and not slot.settled):
            slot.moves_left -= 1
            slots, pieces = runs.setdefault(slot.queue_id, ([], []))
            slots.append(slot)
            pieces.append(piece)
        return list(runs.values())

    def _take_out(self, leaves: Callable[[Slot], bool]) -> list[tuple[Slot, bytes]]:
        """Remove messages and their records, and renumber the others."""
        pieces = {queue_id: iter(run.pieces) for queue_id, run in self.runs.items()}
        slots = self.slots
        self.runs, self.slots, self.count, self.size_bytes, self.body = {}, [], 0, 0, None
        self.first_deadline_s = float("inf")
        taken = []
        for slot in slots:
            piece = bytes(next(pieces[slot.queue_id]))
            if leaves(slot):
                taken.append((slot, piece))
            else:
                self.append(slot, slot.queue_id, piece)
        return taken


class Lane(msgspec.Struct, eq=False):
    """A few queues of one topic, of which at most one batch is under way.

    A batch of several lanes stands in each of them, and leaves when it is the next in all. A lane
    changes by these methods only:

    ============  ===========================================  ===================================
    method        event                                        the batch
    ============  ===========================================  ===================================
    `begin`       a batch opens, to gather messages            becomes `open`
    `close`       the open batch takes no more messages        moves from `open` to `full`
    `send`        the first batch that waits is sent           moves to `in_flight`
    `finish`      it is acknowledged, or has failed            leaves `in_flight`
    `drop_empty`  messages that waited have failed or moved    leaves `open` or `full`, if empty
    ============  ===========================================  ===================================
    """

    topic: str
    number: int
    open: Batch | None = None
    full: deque[Batch] = field(default_factory=deque)
    in_flight: Batch | None = None

    @property
    def first(self) -> Batch | None:
        """The first batch that waits."""
        return self.full[0] if self.full else self.open

    @property
    def next(self) -> Batch | None:
        """The first batch that waits, if it is the first in all its lanes, and they are free."""
        batch = self.first
        for each in () if batch is None else batch.lanes:
            if each.in_flight is not None or each.first is not batch:
                return None
        return batch

    @property
    def batches(self) -> Iterator[Batch]:
        """Every batch that is under way or waits here."""
        every = (self.in_flight, *self.full, self.open)
        return (batch for batch in every if batch is not None)

    def begin(self, batch: Batch) -> None:
        """A new batch gathers messages; the one before takes no more."""
        self.close()
        self.open = batch

    def close(self) -> None:
        """The open batch takes no more messages."""
        if self.open is not None:
            self.full.append(self.open)
            self.open = None

    def send(self) -> None:
        """The first batch that waits is under way."""
        if self.full:
            self.in_flight = self.full.popleft()
        else:
            self.in_flight, self.open = self.open, None

    def finish(self) -> None:
        """The batch that was under way is acknowledged or has failed."""
        self.in_flight = None

    def drop_empty(self) -> None:
        """Forget batches that wait and have no message left."""
        self.full = deque(batch for batch in self.full if batch.slots)
        if self.open is not None and not self.open.slots:
            self.open = None
