"""Messages that POP has handed out: for each group and queue, which member has which until when.
Pure.

Below the `cursor` of a queue every message was handed out once, or passed over by a filter. One
that is not acknowledged is in flight: it has a `fence` (RocketMQ's pop time), which the handle of
its receiver names, the time from which it is visible again, and a count of its deliveries. Messages
that one POP took of a queue share all that, so they are one `Delivery`: a first offset, and a bit
for each message from there on. An acknowledged one costs a bit that is cleared.

====================  ==========================  =================================================
a message that is     and then                    is
====================  ==========================  =================================================
at the cursor         POP takes it as new         in flight: fence f1, visible at t1, 1 delivery
at the cursor         POP's filter passes it      done: it never was in flight
in flight (f1)        POP takes it again          in flight: fence f2 > f1, 1 delivery more
in flight (f1)        POP repeats its attempt     in flight: fence f2 > f1, as many deliveries
in flight (f1)        ACK with f1                 done, for ever
in flight (f2)        ACK, CHANGE with f1         as it was: its receiver of then came too late
in flight (f1)        CHANGE with f1              in flight: fence f2 > f1 (the same if ordered),
                                                  visible at another time
in flight or done     the group's offset is set   at the cursor if not below the offset, else done
in flight             retention drops it          done: it is gone
====================  ==========================  =================================================

Time is no part of it. Visible again means that `visible_ms` is not after the leader's clock when it
plans a POP; the entry then names the message. A fence grows with each delivery of a queue, so an
old handle never meets a newer delivery. The offset that the group has committed is the lowest that
is in flight, else the cursor (`ConsumerOffsets` is told); so it never passes a message that is not
acknowledged. What an entry asks of messages that are not there (any more) has no effect: entries
behind each other in the log may have been planned before the first was applied.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from dledger.slices import drained
from mqbroker import limits
from mqbroker.state.groups.bits import bits_from_bytes, lowest_bit
from mqbroker.state.groups.deliveries import STALE, Delivery, DeliveryRow, Heap, OfFence
from mqbroker.state.rows.picture import Rows, rows_of
from mqbroker.state.shares import Shares

#: (group, topic, queue id, cursor, last fence, deliveries), as a snapshot keeps it.
PoppedRow: TypeAlias = tuple[str, str, int, int, int, list[DeliveryRow]]

_LOOKED_AT: Final = 256
"""Deliveries of other queues that are passed over before those of one queue are looked at alone."""


class Taken(NamedTuple):
    """Messages that a POP has: a bit for each from `base` on, all in their n-th delivery. `again`:
    they were in flight before, whether that counted or not."""

    queue_id: int
    base: int
    bits: int
    deliveries: int
    again: bool = False


class Granted(NamedTuple):
    """The result of a POP entry. `passed` are the queues whose cursor it moved."""

    fence: int
    taken: Sequence[Taken]
    passed: frozenset[int]


class Again(NamedTuple):
    """Messages in flight that are to be handed out again."""

    fence: int
    base: int
    bits: int


class Take(NamedTuple):
    """The messages that a POP takes of one queue. New ones are taken if the cursor is still at
    `expected` (-1: there is no cursor yet); the cursor then moves to `cursor`. The messages of
    `again` are handed out once more."""

    queue_id: int
    expected: int
    cursor: int
    base: int
    bits: int
    again: Sequence[Again] = ()


class PoppedQueue:
    """The popped messages of one queue, for one group."""

    def __init__(self, cursor: int, last_fence: int = 0) -> None:
        self.cursor = cursor
        self.last_fence = last_fence
        #: Messages in flight.
        self.count = 0
        self._deliveries: dict[int, OfFence] = {}
        self._lowest = Heap(attrgetter("base"))

    @property
    def committed(self) -> int:
        """The lowest offset that is in flight, else the cursor."""
        lowest = self._lowest.first()
        return self.cursor if lowest is None else lowest.base

    def deliveries(self) -> Iterator[Delivery]:
        """Everything that is in flight."""
        return (each for some in self._deliveries.values() for each in some)

    def of_fence(self, fence: int) -> Iterable[Delivery]:
        """The messages that were handed out under a fence and are in flight."""
        return self._deliveries.get(fence, ())

    def add(self, delivery: Delivery) -> None:
        """Messages are in flight from now on."""
        of_fence = self._deliveries.get(delivery.fence)
        if of_fence is None:
            of_fence = self._deliveries[delivery.fence] = OfFence()
        of_fence.add(delivery)
        self._lowest.add(delivery)
        self.last_fence = max(self.last_fence, delivery.fence)
        self.count += len(delivery)

    def take_out(self, again: Again) -> list[tuple[Delivery, int]]:
        """Messages of a fence are no longer in flight: (whose they were, bits from `again.base`
        on)."""
        of_fence = self._deliveries.get(again.fence)
        if of_fence is None:
            return []
        found = of_fence.take_out(again.base, again.bits)
        self.count -= sum(bits.bit_count() for _, bits in found)
        if not of_fence:
            del self._deliveries[again.fence]
        return found

    def take_out_range(self, first: int, end: int) -> None:
        """Nothing from `first` to `end` (exclusive) is in flight any more."""
        for delivery in [*self.deliveries()]:
            low, high = max(first, delivery.base), min(end, delivery.end)
            if low < high:
                self.take_out(Again(delivery.fence, low, (1 << high - low) - 1))


class PoppedTopic:
    """The queues of a topic that a group pops."""

    def __init__(self) -> None:
        self.queues: dict[int, PoppedQueue] = {}
        self._visible = Heap(attrgetter("visible_ms"))
        # Deliveries by the attempt that they were made for, if it had an id.
        self._attempts: dict[str, list[Delivery]] = {}
        self._attempts_room = STALE

    @property
    def count(self) -> int:
        """Number of messages in flight, in all queues of the topic."""
        return sum(queue.count for queue in self.queues.values())

    def add(self, delivery: Delivery) -> None:
        """Messages are in flight from now on."""
        self.queues[delivery.queue_id].add(delivery)
        self._visible.add(delivery)
        if delivery.attempt_id:
            self._attempts.setdefault(delivery.attempt_id, []).append(delivery)
            if len(self._attempts) > self._attempts_room:
                self._attempts = {key: left for key in self._attempts if (left := self.of(key))}
                self._attempts_room = 2 * len(self._attempts) + STALE

    def of(self, attempt_id: str) -> list[Delivery]:
        """The messages that were handed out for an attempt and are in flight."""
        return [each for each in self._attempts.get(attempt_id, ()) if each.bits]

    def next_ms(self) -> int | None:
        """When the next message is visible again; None if none is in flight."""
        first = self._visible.first()
        return None if first is None else first.visible_ms

    def visible(
        self,
        now_ms: int,
        count_max: int,
        wanted: Callable[[Delivery], bool],
        queue_id: int | None = None,
    ) -> list[Delivery]:
        """Up to `count_max` wanted ones that are visible again, the longest first. If only those of
        one queue are wanted, `queue_id` says so: others may be very many."""
        looked_at_max = None if queue_id is None else count_max + _LOOKED_AT
        found = self._visible.up_to(now_ms, count_max, wanted, looked_at_max)
        if found is None:
            queue = None if queue_id is None else self.queues.get(queue_id)
            if queue is None:
                return []
            visible = (each for each in queue.deliveries() if each.visible_ms <= now_ms)
            found = heapq.nsmallest(
                count_max, filter(wanted, visible), key=attrgetter("visible_ms")
            )
        return found


class Popped:
    """All that POP has handed out, and not got back."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], PoppedTopic] = {}
        #: Messages in flight, by group.
        self.shares = Shares(
            "popped messages", "group", limits.POP_IN_FLIGHT_MAX, limits.GROUPS_MAX
        )
        #: Queues that groups have popped.
        self.queues = 0
        #: The highest fence of a topic or group that was deleted: old handles have no higher one.
        self.floor = 0

    @property
    def count(self) -> int:
        """Messages in flight, of all groups."""
        return self.shares.count

    def __iter__(self) -> Iterator[tuple[str, str, PoppedTopic]]:
        return ((group, topic, each) for (group, topic), each in self._topics.items())

    def topic(self, group: str, topic: str) -> PoppedTopic | None:
        """A group's popped queues of a topic, if it ever popped it."""
        return self._topics.get((group, topic))

    def queue(self, group: str, topic: str, queue_id: int) -> PoppedQueue | None:
        """A group's part of a queue, if it ever popped it."""
        of_topic = self._topics.get((group, topic))
        return None if of_topic is None else of_topic.queues.get(queue_id)

    def pop(
        self,
        group: str,
        topic: str,
        takes: Sequence[Take],
        now_ms: int,
        visible_ms: int,
        attempt_id: str = "",
        *,
        repeats: bool = False,
    ) -> Granted:
        """Hand planned messages out. What is planned on another state than this is left where it
        is.

        A POP that `repeats` an attempt gets what that attempt was given: one delivery still.
        """
        of_topic = self._topics.setdefault((group, topic), PoppedTopic())
        known = [of_topic.queues.get(take.queue_id) for take in takes]
        fence = max([now_ms, *(queue.last_fence + 1 for queue in known if queue is not None)])
        taken: list[Taken] = []
        passed = set()
        for take in takes:
            queue = of_topic.queues.get(take.queue_id)
            made = [] if queue is None else self._again(group, queue, take, repeats=repeats)
            if take.expected == (-1 if queue is None else queue.cursor):
                queue = self._passed(group, of_topic, take)
                passed.add(take.queue_id)
                if take.bits:
                    made.append(Taken(take.queue_id, take.base, take.bits, 1))
            for each in made:
                shift = lowest_bit(each.bits)
                delivery = Delivery(
                    take.queue_id,
                    each.base + shift,
                    each.bits >> shift,
                    fence,
                    visible_ms,
                    each.deliveries,
                    attempt_id,
                )
                of_topic.add(delivery)
                self.shares.change(group, len(delivery))
            taken += made
        if not of_topic.queues:
            del self._topics[group, topic]
        return Granted(fence, taken, frozenset(passed))

    def _again(self, group: str, queue: PoppedQueue, take: Take, *, repeats: bool) -> list[Taken]:
        made = []
        for again in take.again:
            for delivery, bits in queue.take_out(again):
                self.shares.change(group, -bits.bit_count())
                deliveries = delivery.deliveries + (not repeats)
                made.append(Taken(take.queue_id, again.base, bits, deliveries, again=True))
        return made

    def _passed(self, group: str, of_topic: PoppedTopic, take: Take) -> PoppedQueue:
        """Move a queue's cursor to the planned offset. If it goes back, what is behind it was never
        there."""
        self.queues += take.queue_id not in of_topic.queues
        queue = of_topic.queues.setdefault(take.queue_id, PoppedQueue(take.cursor))
        if take.cursor < queue.cursor:
            before = queue.count
            queue.take_out_range(take.cursor, queue.cursor)
            self.shares.change(group, queue.count - before)
        queue.cursor = take.cursor
        return queue

    def ack(self, group: str, topic: str, queue_id: int, acked: Again) -> int:
        """Messages are done, if they are in flight under this fence; which ones, from the base
        on."""
        queue = self.queue(group, topic, queue_id)
        if queue is None:
            return 0
        found = 0
        for _, bits in queue.take_out(acked):
            found |= bits
        self.shares.change(group, -found.bit_count())
        return found

    def change(
        self,
        group: str,
        topic: str,
        queue_id: int,
        changed: Again,
        now_ms: int,
        visible_ms: int,
        *,
        uncounted: bool,
        keeps_fence: bool,
    ) -> tuple[int, int]:
        """Messages in flight under a fence are visible at another time.

        Returns their new fence, and which they are, from the base on. If `uncounted`, the delivery
        that is given up by this is not counted.
        """
        of_topic = self._topics.get((group, topic))
        queue = None if of_topic is None else of_topic.queues.get(queue_id)
        if of_topic is None or queue is None:
            return 0, 0
        fence = changed.fence if keeps_fence else max(now_ms, queue.last_fence + 1)
        found = 0
        for delivery, bits in queue.take_out(changed):
            shift = lowest_bit(bits)
            deliveries = max(0, delivery.deliveries - uncounted)
            base = changed.base + shift
            of_topic.add(Delivery(queue_id, base, bits >> shift, fence, visible_ms, deliveries))
            found |= bits
        return fence, found

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group goes on at an offset: nothing of the queue is in flight any more."""
        queue = self.queue(group, topic, queue_id)
        if queue is None:
            return
        self.shares.change(group, -queue.count)
        queue.take_out_range(0, queue.cursor)
        queue.cursor = offset

    def forget_before(self, topic: str, queue_id: int, begin: int) -> list[str]:
        """Messages of a queue below `begin` are gone. The groups that had some."""
        had = []
        for (group, name), of_topic in self._topics.items():
            queue = of_topic.queues.get(queue_id) if name == topic else None
            if queue is not None and queue.committed < begin:
                before = queue.count
                queue.take_out_range(0, begin)
                self.shares.change(group, queue.count - before)
                queue.cursor = max(queue.cursor, begin)
                had.append(group)
        return had

    def delete_topic(self, topic: str) -> None:
        """Forget what was handed out of a topic."""
        self._delete([key for key in self._topics if key[1] == topic])

    def delete_group(self, group: str) -> None:
        """Forget what was handed out to a group. Its offsets say where another one begins."""
        self._delete([key for key in self._topics if key[0] == group])

    def _delete(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            of_topic = self._topics.pop(key)
            self.shares.change(key[0], -of_topic.count)
            self.queues -= len(of_topic.queues)
            self.floor = max(
                self.floor, *(queue.last_fence for queue in of_topic.queues.values()), 0
            )

    def picture(self) -> Generator[None, None, Rows]:
        """The rows for a snapshot: the same on a replica that came from one as on all others."""
        rows: list[PoppedRow] = []
        for (group, topic), of_topic in self._topics.items():
            for queue_id, queue in of_topic.queues.items():
                deliveries = sorted(each.row() for each in queue.deliveries())
                rows.append((group, topic, queue_id, queue.cursor, queue.last_fence, deliveries))
                yield
        return rows_of(rows)

    def restore(self, rows: Iterable[PoppedRow], floor: int = 0) -> None:
        """Take over what a snapshot kept."""
        self._topics.clear()
        self.shares.begin_again()
        self.queues = 0
        self.floor = floor
        drained(self.adding(rows))

    def adding(self, rows: Iterable[PoppedRow]) -> Generator[None, None, None]:
        """Take over a further part of that, in steps."""
        for group, topic, queue_id, cursor, last_fence, deliveries in rows:
            of_topic = self._topics.setdefault((group, topic), PoppedTopic())
            of_topic.queues[queue_id] = PoppedQueue(cursor, last_fence)
            self.queues += 1
            for base, bits, fence, visible_ms, times, attempt_id in deliveries:
                delivery = Delivery(
                    queue_id, base, bits_from_bytes(bits), fence, visible_ms, times, attempt_id
                )
                of_topic.add(delivery)
                self.shares.change(group, len(delivery))
                yield
            yield
