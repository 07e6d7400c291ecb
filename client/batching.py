"""Gathering messages into batches for one broker group, without I/O.

Order per queue must survive anything: a refused batch, a lost connection, a new leader. It would
not if two batches with records of the same queue were under way at once, since the first may be
refused and the second accepted. So the queues of a topic are dealt onto a few *lanes*, each lane
has at most one batch under way, and what arrives meanwhile gathers in the lane's next batch. The
lanes keep the pipe full, a slow broker makes batches grow, and no clock is needed for either.

A batch is mutable until it is first sent. From then on its bytes are frozen: every retry is byte
for byte the same, so that the broker's window of seen batches recognises it by its first record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from client import limits
from client.errors import SendError, SendFailed, SendUnknown
from client.models import SendResult


ONEWAY_LANE = -1


class Slot:
    """One message's place in a batch; from it and the batch's acknowledgement follows its result.

    `nth` and `start_bytes` count within the batch's run of `queue_id`.
    """

    __slots__ = ("batch", "deadline_s", "error", "nth", "queue_id", "start_bytes", "unique_key")

    batch: Batch
    queue_id: int
    nth: int
    start_bytes: int
    error: SendError | None

    def __init__(self, unique_key: str, deadline_s: float) -> None:
        self.unique_key = unique_key
        self.deadline_s = deadline_s
        self.error = None

    @property
    def settled(self) -> bool:
        """Whether the outcome stands."""
        return self.error is not None or self.batch.ack is not None

    def result(self) -> SendResult:
        """Where the message went. Raises what made it fail; only for a settled slot."""
        if self.error is not None:
            raise self.error
        batch, ack = self.batch, self.batch.ack
        if ack is None:
            raise RuntimeError(f"message {self.unique_key} is still on its way: wait for it")
        return SendResult(
            message_id=self.unique_key,
            topic=batch.topic,
            broker_name=batch.broker_name,
            queue_id=self.queue_id,
            queue_offset=ack.offsets[self.queue_id] + self.nth,
            position=ack.position + batch.run_starts[self.queue_id] + self.start_bytes,
            leader=ack.leader,
        )


@dataclass(frozen=True, slots=True)
class Ack:
    """A broker's word for a whole batch: log position of its first record, offset per queue."""

    position: int
    offsets: dict[int, int]
    leader: str


@dataclass(slots=True)
class Run:
    """The records of one queue within a batch, in order."""

    records: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one topic, a run per queue, that become one entry of one group's log."""

    topic: str
    broker_name: str
    lane: Lane
    opened_s: float
    oneway: bool = False
    runs: dict[int, Run] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    size_bytes: int = 0
    first_deadline_s: float = float("inf")
    body: bytes | None = None
    run_starts: dict[int, int] = field(default_factory=dict)
    attempt: int = 0
    sent_s: float = 0.0
    sent_to: str = ""
    retry_at_s: float = 0.0
    on_wire: bool = False
    lost: bool = False
    ack: Ack | None = None
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def append(self, slot: Slot, queue_id: int, record: bytes) -> None:
        """Add one encoded record at the end of its queue's run and fill in `slot`."""
        run = self.runs.get(queue_id)
        if run is None:
            run = self.runs[queue_id] = Run()
        records = run.records
        slot.batch = self
        slot.queue_id = queue_id
        slot.nth = len(records)
        slot.start_bytes = run.size_bytes
        records.append(record)
        size_bytes = len(record)
        run.size_bytes += size_bytes
        self.size_bytes += size_bytes
        self.slots.append(slot)
        if slot.deadline_s < self.first_deadline_s:  # noqa: PLR1730  (min() costs three times this)
            self.first_deadline_s = slot.deadline_s

    def freeze(self) -> bytes:
        """The body as it will be sent, now and at every retry."""
        if self.body is None:
            at = 0
            for queue_id, run in self.runs.items():
                self.run_starts[queue_id] = at
                at += run.size_bytes
            self.body = b"".join([record for run in self.runs.values() for record in run.records])
        return self.body

    @property
    def run_counts(self) -> list[tuple[int, int]]:
        """(queue id, number of records) in the order of the body."""
        return [(queue_id, len(run.records)) for queue_id, run in self.runs.items()]

    @property
    def maybe_stored(self) -> bool:
        """Whether a broker may hold it: a try is under way, or one ended without an answer."""
        return self.on_wire or self.lost

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for it any more."""
        return all(slot.error is not None for slot in self.slots)

    @property
    def last_deadline_s(self) -> float:
        """Until when somebody waits for it."""
        return max((s.deadline_s for s in self.slots if s.error is None), default=0.0)

    def fail(self, error_type: type[SendError], reason: str) -> None:
        """Give up every message of it that is not settled."""
        for slot in self.slots:
            if slot.error is None:
                slot.error = error_type(reason, self.topic, self.broker_name, slot.unique_key)

    def settle(self) -> None:
        """Tell those who wait that the outcome of some message stands."""
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener()


@dataclass(slots=True, eq=False)
class Lane:
    """A few queues of one topic, of which at most one batch is under way."""

    topic: str
    oneway: bool = False
    open: Batch | None = None
    full: deque[Batch] = field(default_factory=deque)
    in_flight: Batch | None = None
    queued: bool = False


@dataclass(slots=True)
class Budget:
    """How much a producer holds, over all broker groups, and how much it may hold."""

    messages_max: int = limits.PENDING_MESSAGES_MAX
    bytes_max: int = limits.PENDING_BYTES_MAX
    messages: int = 0
    size_bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether nothing more may be taken in. The last message taken in may go over the bytes."""
        return self.messages >= self.messages_max or self.size_bytes >= self.bytes_max

    def take(self, messages: int, size_bytes: int) -> None:
        """Account for what was taken in, or, with negative numbers, for what left."""
        self.messages += messages
        self.size_bytes += size_bytes


@dataclass(slots=True)
class Accumulator:
    """All batches of one broker group.

    Call `add` for each message, then `take` until it gives None; send what it gives, and call
    `done` when a batch is acknowledged or given up. `expire` gives up messages that are too late.
    """

    broker_name: str
    budget: Budget = field(default_factory=Budget)
    linger_s: float = 0.0
    batch_bytes_max: int = limits.BATCH_BYTES_MAX
    lanes_per_topic: int = limits.BATCHES_IN_FLIGHT_PER_GROUP_MAX
    in_flight_max: int = limits.BATCHES_IN_FLIGHT_PER_GROUP_MAX
    in_flight: int = 0
    flushing: bool = False
    _lanes: dict[tuple[str, int], Lane] = field(default_factory=dict)
    _ready: deque[Lane] = field(default_factory=deque)

    def add(self, slot: Slot, topic: str, queue_id: int, record: bytes, now_s: float) -> Batch:
        """Take in one encoded record; the batch that it became part of.

        This runs once for each message, so it is written for speed.
        """
        lane = self._lanes.get((topic, queue_id % self.lanes_per_topic))
        if lane is None:
            lane = self._lane(topic, queue_id % self.lanes_per_topic)
        return self._put(lane, slot, queue_id, record, now_s)

    def add_oneway(
        self, slot: Slot, topic: str, queue_id: int, record: bytes, now_s: float
    ) -> None:
        """Take in a record that nobody will acknowledge, on a lane of its own."""
        lane = self._lane(topic, ONEWAY_LANE)
        lane.oneway = True
        self._put(lane, slot, queue_id, record, now_s)

    def add_together(
        self, slots: Sequence[Slot], topic: str, queue_id: int, records: list[bytes], now_s: float
    ) -> None:
        """Take in records that become part of the same entry, next to each other.

        They may be more than a batch otherwise holds: a batch of their own is opened for them.
        """
        lane = self._lane(topic, queue_id % self.lanes_per_topic)
        size_bytes = sum(map(len, records))
        batch = lane.open
        if (
            batch is None
            or batch.size_bytes + size_bytes > self.batch_bytes_max
            or len(batch.slots) + len(records) > limits.BATCH_RECORDS_MAX
        ):
            batch = self._open(lane, now_s)
        for slot, record in zip(slots, records, strict=True):
            batch.append(slot, queue_id, record)
        self.budget.take(len(records), size_bytes)

    def take(self, now_s: float) -> Batch | None:
        """The next batch to send, or None if there is none to send at this moment."""
        for _ in range(len(self._ready)):
            if self.in_flight >= self.in_flight_max:
                return None
            lane = self._ready.popleft()
            batch = self._next(lane, now_s)
            if batch is None and lane.open is not None:
                self._ready.append(lane)
                continue
            lane.queued = False
            if batch is not None:
                lane.in_flight = batch
                self.in_flight += 1
                return batch
        return None

    def done(self, batch: Batch) -> None:
        """A batch is acknowledged or given up: its lane goes on with the next one."""
        lane = batch.lane
        if lane.in_flight is not batch:
            return
        lane.in_flight = None
        self.in_flight -= 1
        self.budget.take(-len(batch.slots), -batch.size_bytes)
        if lane.full or lane.open is not None:
            self._queue(lane)

    def expire(self, now_s: float) -> list[Slot]:
        """Give up the messages whose deadline is over; they are settled by the caller's `settle`.

        A message that was never sent leaves its batch and has definitely failed. One that was sent
        may be stored; its batch stays as long as another of its messages may wait.
        """
        expired: list[Slot] = []
        for lane in self._lanes.values():
            for batch in (lane.in_flight, *lane.full, lane.open):
                if batch is None or batch.first_deadline_s > now_s:
                    continue
                messages, size_bytes = len(batch.slots), batch.size_bytes
                give_up = _expire_sent if batch.maybe_stored else _expire_unsent
                expired += give_up(batch, now_s)
                self.budget.take(len(batch.slots) - messages, batch.size_bytes - size_bytes)
            lane.full = deque(batch for batch in lane.full if batch.slots)
            if lane.open is not None and not lane.open.slots:
                lane.open = None
        return expired

    def batches(self) -> Iterator[Batch]:
        """Every batch that is not done, in no particular order."""
        for lane in self._lanes.values():
            if lane.in_flight is not None:
                yield lane.in_flight
            yield from lane.full
            if lane.open is not None:
                yield lane.open

    @property
    def empty(self) -> bool:
        """Whether everything that was taken in is done."""
        return next(self.batches(), None) is None

    def ready_in_s(self, now_s: float) -> float | None:
        """How long until `take` may give a batch whose linger is running, or None if none is."""
        lingering = [
            lane.open.opened_s + self.linger_s - now_s
            for lane in self._ready
            if lane.open is not None and lane.in_flight is None
        ]
        return max(0.0, min(lingering)) if lingering else None

    def _put(self, lane: Lane, slot: Slot, queue_id: int, record: bytes, now_s: float) -> Batch:
        size_bytes = len(record)
        batch = lane.open
        if (
            batch is None
            or batch.size_bytes + size_bytes > self.batch_bytes_max
            or len(batch.slots) >= limits.BATCH_RECORDS_MAX
        ):
            batch = self._open(lane, now_s)
        batch.append(slot, queue_id, record)
        budget = self.budget
        budget.messages += 1
        budget.size_bytes += size_bytes
        return batch

    def _lane(self, topic: str, number: int) -> Lane:
        lane = self._lanes.get((topic, number))
        if lane is None:
            lane = self._lanes[topic, number] = Lane(topic)
        return lane

    def _open(self, lane: Lane, now_s: float) -> Batch:
        if lane.open is not None:
            lane.full.append(lane.open)
        lane.open = Batch(lane.topic, self.broker_name, lane, now_s, lane.oneway)
        if lane.in_flight is None:
            self._queue(lane)
        return lane.open

    def _queue(self, lane: Lane) -> None:
        if not lane.queued:
            lane.queued = True
            self._ready.append(lane)

    def _next(self, lane: Lane, now_s: float) -> Batch | None:
        if lane.full:
            return lane.full.popleft()
        batch = lane.open
        if batch is None or not (self.flushing or now_s >= batch.opened_s + self.linger_s):
            return None
        lane.open = None
        return batch


def _expire_sent(batch: Batch, now_s: float) -> list[Slot]:
    late = [s for s in batch.slots if s.error is None and s.deadline_s <= now_s]
    for slot in late:
        slot.error = SendUnknown(
            f"no acknowledgement inside the deadline, after {batch.attempt} tries",
            batch.topic,
            batch.broker_name,
            slot.unique_key,
        )
    left = [slot.deadline_s for slot in batch.slots if slot.error is None]
    batch.first_deadline_s = min(left, default=float("inf"))
    return late


def _expire_unsent(batch: Batch, now_s: float) -> list[Slot]:
    runs, slots = batch.runs, batch.slots
    batch.runs, batch.slots, batch.size_bytes, batch.body = {}, [], 0, None
    batch.first_deadline_s = float("inf")
    late: list[Slot] = []
    for slot in slots:
        if slot.deadline_s > now_s:
            batch.append(slot, slot.queue_id, runs[slot.queue_id].records[slot.nth])
            continue
        late.append(slot)
        slot.error = SendFailed(
            "the deadline was over before it could be sent",
            batch.topic,
            batch.broker_name,
            slot.unique_key,
        )
    return late
