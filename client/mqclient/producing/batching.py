"""Gathering messages into batches for one broker group, without I/O. Pure.

Order per queue must be kept even after a refused batch, a lost connection, or with a new leader. It
would not be if two batches with records of the same queue were under way at once, since the first
may be refused and the second accepted. So the queues of a topic are spread over a few *lanes*. Each
lane has at most one batch under way, and messages that come meanwhile are gathered in its next
batch. Several lanes keep the connection busy, batches grow with a slow broker, and neither needs a
clock. A batch for queues of several lanes waits until all of them are free.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mqclient import limits
from mqclient.producing.batch import Batch, Kind, Lane, Slot, Unencoded

#: The lane of one-way messages: they keep no order with the others.
ONEWAY_LANE = -1


@dataclass(slots=True)
class Budget:
    """How much a producer holds for all broker groups, and the bound."""

    messages_max: int = limits.PENDING_MESSAGES_MAX
    bytes_max: int = limits.PENDING_BYTES_MAX
    messages: int = 0
    size_bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether no more messages may be added. The last one may exceed the bound on bytes."""
        return self.messages >= self.messages_max or self.size_bytes >= self.bytes_max

    def take(self, messages: int, size_bytes: int) -> None:
        """Count added messages; or removed ones, with negative numbers."""
        self.messages += messages
        self.size_bytes += size_bytes

    def clear(self) -> None:
        """Nothing is held any more."""
        self.messages = self.size_bytes = 0


@dataclass(slots=True)
class Accumulator:
    """All batches of one broker group.

    Call `add` for each message, then `take` until it returns None; send these batches, and call
    `done` when a batch is acknowledged or has failed. `expire` fails messages that are too late.
    """

    broker_name: str
    budget: Budget = field(default_factory=Budget)
    linger_s: float = limits.LINGER_S
    batch_bytes_max: int = limits.BATCH_BYTES_MAX
    lanes_per_topic: int = limits.BATCHES_IN_FLIGHT_PER_GROUP_MAX
    in_flight_max: int = limits.BATCHES_IN_FLIGHT_PER_GROUP_MAX
    one_queue_each: bool = False
    """Whether a batch holds messages of one queue only, as RocketMQ's brokers want it."""
    in_flight: int = 0
    flushes: int = 0
    """How many callers wait for what was added before: meanwhile nothing lingers."""
    _turn: int = 0
    _lanes: dict[tuple[str, int], Lane] = field(default_factory=dict)
    _ready: OrderedDict[Lane, None] = field(default_factory=OrderedDict)
    """Lanes in line, each once, as something may have to be sent there."""

    def add(
        self,
        slot: Slot,
        topic: str,
        queue_id: int,
        record: bytes,
        now_s: float,
        kind: Kind = Kind.SHARED,
    ) -> None:
        """Take in one encoded record. It is a batch by itself, unless its kind shares batches.

        This runs once for each message, so it is written for speed.
        """
        shared = kind is Kind.SHARED
        number = queue_id % self.lanes_per_topic if shared else self._lane_number(kind, queue_id)
        lane = self._lanes.get((topic, number))
        if lane is None:
            lane = self._lane(topic, number)
        size_bytes = len(record)
        self._with_room(lane, 1, size_bytes, now_s, kind).append(slot, queue_id, record)
        budget = self.budget
        budget.messages += 1
        budget.size_bytes += size_bytes
        if not shared and (kind is not Kind.ONEWAY or self.one_queue_each):
            lane.close()

    def _lane_number(self, kind: Kind, queue_id: int) -> int:
        if kind is Kind.ONEWAY:
            return ONEWAY_LANE
        if kind.waits_at_broker:
            self._turn += 1
            queue_id = self._turn
        return queue_id % self.lanes_per_topic

    def add_together(
        self,
        slots: Sequence[Slot],
        topic: str,
        queue_ids: Sequence[int],
        pieces: Sequence[bytes | Unencoded],
        now_s: float,
    ) -> None:
        """Add records that become part of the same entry, those of a queue next to each other.

        They may be more than a batch otherwise holds, so they get their own batch.
        """
        numbers = dict.fromkeys(queue_id % self.lanes_per_topic for queue_id in queue_ids)
        lanes = tuple(self._lane(topic, number) for number in numbers)
        size_bytes = sum(map(len, pieces))
        count = sum(slot.count for slot in slots)
        if len(lanes) == 1:
            batch = self._with_room(lanes[0], count, size_bytes, now_s)
        else:
            batch = Batch(topic, self.broker_name, lanes, now_s)
            for lane in lanes:
                lane.begin(batch)
                lane.close()
                self._line_up(lane)
        for slot, queue_id, piece in zip(slots, queue_ids, pieces, strict=True):
            batch.append(slot, queue_id, piece)
        self.budget.take(count, size_bytes)

    def take(self, now_s: float) -> Batch | None:
        """The next batch to send, or None if there is none to send at this moment."""
        for _ in range(len(self._ready)):
            if self.in_flight >= self.in_flight_max:
                return None
            lane, _ = self._ready.popitem(last=False)
            batch = lane.next
            if batch is None:
                continue
            if batch is lane.open and not self.flushes and now_s < batch.opened_s + self.linger_s:
                self._ready[lane] = None
                continue
            for each in batch.lanes:
                each.send()
            self.in_flight += 1
            return batch
        return None

    def done(self, batch: Batch) -> None:
        """A batch is acknowledged or has failed: its lane goes on with the next one."""
        if not batch.under_way:
            return
        self.in_flight -= 1
        self.budget.take(-batch.count, -batch.size_bytes)
        for lane in batch.lanes:
            lane.finish()
        for lane in batch.lanes:
            if lane.first is not None:
                self._ready.setdefault(lane)
            else:
                # Only lanes with messages are kept, as producers of many topics look through all.
                self._lanes.pop((lane.topic, lane.number), None)

    def expire(self, now_s: float) -> list[Slot]:
        """Fail the messages whose deadline is over (see `Batch.expire`).

        The caller settles their batches, and calls `done` for those that are abandoned.
        """
        expired: list[Slot] = []
        for lane in self._lanes.values():
            for batch in lane.batches:
                if batch.first_deadline_s > now_s:
                    continue
                messages, size_bytes = batch.count, batch.size_bytes
                expired += batch.expire(now_s)
                self.budget.take(batch.count - messages, batch.size_bytes - size_bytes)
        for lane in self._lanes.values():
            lane.drop_empty()
            self._line_up(lane)
        return expired

    def withdraw(self, batch: Batch) -> list[tuple[list[Slot], list[bytes]]]:
        """Take out of a batch the messages that may move (see `Batch.withdraw`).

        The caller settles the batch, and calls `done` if it is under way and nothing is left of it.
        """
        messages, size_bytes = batch.count, batch.size_bytes
        runs = batch.withdraw()
        self.budget.take(batch.count - messages, batch.size_bytes - size_bytes)
        for lane in batch.lanes:
            lane.drop_empty()
        return runs

    def batches(self) -> Iterator[Batch]:
        """Every batch that is not done, in no particular order."""
        for lane in self._lanes.values():
            for batch in lane.batches:
                if batch.lanes[0] is lane:
                    yield batch

    @property
    def empty(self) -> bool:
        """Whether all batches are done."""
        return next(self.batches(), None) is None

    def ready_in_s(self, now_s: float) -> float | None:
        """How long until `take` may give a batch whose linger is running, or None if none is."""
        lingering = [
            lane.open.opened_s + self.linger_s - now_s
            for lane in self._ready
            if lane.open is not None and lane.in_flight is None
        ]
        return max(0.0, min(lingering)) if lingering else None

    def _with_room(
        self, lane: Lane, count: int, size_bytes: int, now_s: float, kind: Kind = Kind.SHARED
    ) -> Batch:
        """The lane's open batch, or a new one if that has no room or is of another kind."""
        batch = lane.open
        if (
            batch is None
            or batch.kind is not kind
            or batch.size_bytes + size_bytes > self.batch_bytes_max
            or batch.count + count > limits.BATCH_RECORDS_MAX
        ):
            batch = Batch(lane.topic, self.broker_name, (lane,), now_s, kind)
            lane.begin(batch)
            if lane.in_flight is None:
                self._ready.setdefault(lane)
        return batch

    def _lane(self, topic: str, number: int) -> Lane:
        lane = self._lanes.get((topic, number))
        if lane is None:
            lane = self._lanes[topic, number] = Lane(topic, number)
        return lane

    def _line_up(self, lane: Lane) -> None:
        """A lane that may have something to send gets in line, unless a batch of it is under way.
        One that is in line keeps its place."""
        if lane.in_flight is None and lane.first is not None:
            self._ready.setdefault(lane)
