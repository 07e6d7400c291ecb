"""Deliveries: a message whose delay is over goes to its queue, by one entry that also takes it from
where it waited.

Messages of a level are due when their store time is the delay ago. They are the first ones of the
level's queue, since store times never go back. Messages with a timer are due at its time. The
leader appends one move (see `mqbroker.state.moves`) at a time, and the next one begins where the
applied state says. So a new leader goes on exactly where the old one stopped, and no message is
delivered twice or left out.

One that is repeated is put back to wait by the entry that delivers it (`repeats`).
A message whose topic was deleted while it waited is dropped with it, though the topic was made
again; and so is a copy to try again of a message of such a topic.

The log can't begin behind a message that waits. So one that is to wait for long is renewed: when
the part of the log that holds it is half way to its removal, a move takes it and puts a copy of it,
with the same due time, where it waited. (RocketMQ rolls messages within its timer log.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dledger.errors import AppendError, BadInput
from dledger.failpoints import failpoint
from dledger.log.entry import Kind
from dledger.raft.appends import Appended, OnDone
from dledger.remoting import message as names
from dledger.remoting.names import SCHEDULE_TOPIC, TIMER_TOPIC
from dledger.remoting.record import Record
from mqbroker import limits
from mqbroker.leader.appending.drafts import NewRecord, NotedDraft, RecordsDraft, new_unique_key
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.assignments import Assignments
from mqbroker.leader.definitions import Definitions
from mqbroker.leader.waiting.delays import DelayLevels
from mqbroker.leader.waiting.repeats import Budget, again, delivered, may_repeat
from mqbroker.state.derived.consume_queue import ConsumeQueue
from mqbroker.state.derived.units import Units
from mqbroker.state.groups.places import is_of_life
from mqbroker.state.machine import Machine
from mqbroker.state.moves import Move, encode_move, ranges_of


class Arrival(NamedTuple):
    """A message, and where it goes."""

    topic: str
    queue_id: int
    record: NewRecord


class Coming(NamedTuple):
    """A message that waits: when it is due, and its record's place in the log."""

    due_ms: int
    position: int
    size: int


class First(NamedTuple):
    """When the first message of a level is due, or of those with a timer; and how to take those
    that are due at a time."""

    due_ms: int
    take: Callable[[int], tuple[Move, Units] | None]


class Old(NamedTuple):
    """The part of the log that will be removed some time: what was stored before a time, or lies
    before a position."""

    before_ms: int
    before_position: int


def move_draft(
    move: Move, arrivals: Sequence[Arrival], assignments: Assignments, store_host: bytes
) -> NotedDraft:
    """An entry that takes messages out of one queue and puts them into others. Raises RecordError
    for a message that can't be a record."""
    parts = [
        RecordsDraft([record], topic, [(queue_id, 1)], assignments, store_host)
        for topic, queue_id, record in arrivals
    ]
    return NotedDraft([encode_move(move)], parts, assignments, store_host)


def due_units(queue: ConsumeQueue, first: int, delay_ms: int, now_ms: int) -> Units:
    """The units from `first` on that are due at `now_ms`, as many as one entry may take."""
    units = queue.read(first, limits.DELIVERY_MESSAGES_MAX)
    due = int(np.searchsorted(units["store_timestamp_ms"], now_ms - delay_ms, "right"))
    return units[: _fitting(units[:due])]


def _is_old(units: Units, old: Old) -> npt.NDArray[np.bool_]:
    """Which messages lie in that part. Those that were stored later lie behind it."""
    by_time = units["store_timestamp_ms"] < old.before_ms
    found: npt.NDArray[np.bool_] = by_time | (units["position"] < old.before_position)
    return found


def _fitting(units: Units) -> int:
    """How many of these messages one entry may deliver: at least one, if there is one."""
    sizes = np.cumsum(units["size"].astype(np.int64))
    return max(min(len(units), 1), int(np.searchsorted(sizes, limits.DELIVERY_BYTES_MAX)))


class Deliveries:
    """Delivers delayed messages while this replica leads."""

    def __init__(
        self,
        machine: Machine,
        entries: Entries,
        definitions: Definitions,
        assignments: Assignments,
        levels: DelayLevels,
        store_host: bytes,
    ) -> None:
        self._machine = machine
        self._entries = entries
        self._log = entries.log
        self._definitions = definitions
        self._assignments = assignments
        self._levels = levels
        self._store_host = store_host
        # Timed messages whose move is appended and not applied yet.
        self._leaving: set[int] = set()
        #: Messages that were not delivered because their topic is gone.
        self.dropped = 0
        self._budget = Budget()
        #: Repeats that come later than they say: there were more than the budget lets pass.
        self.put_off = 0

    def wait_ms(self) -> int | None:
        """How long from now until a message is due; None if none waits."""
        firsts = self._firsts()
        return max(0, firsts[0].due_ms - self._assignments.now_ms()) if firsts else None

    @property
    def waiting(self) -> int:
        """How many messages wait for their time."""
        levels = sum(queue.end - first for _, queue, first in self._waiting())
        return levels + len(self._machine.timers)

    def coming(self, begin_ms: int, count_max: int) -> list[Coming]:
        """The first messages that are due then or later, the earliest first."""
        found: list[Coming] = []
        for queue_id, queue, first in self._waiting():
            delay_ms = self._levels.delay_ms(queue_id)
            start = max(first, queue.first_at(begin_ms - delay_ms))
            for unit in queue.read(start, count_max):
                due_ms = int(unit["store_timestamp_ms"]) + delay_ms
                found.append(Coming(due_ms, int(unit["position"]), int(unit["size"])))
        timers = self._machine.queues.get(TIMER_TOPIC, 0)
        if timers is not None:
            for due_ms, offset in self._machine.timers.earliest(begin_ms, count_max):
                for unit in timers.read(offset, 1):
                    found.append(Coming(due_ms, int(unit["position"]), int(unit["size"])))
        return sorted(found)[:count_max]

    def deliver(self, on_done: OnDone) -> bool:
        """Append the delivery of the first due messages, if there are any.

        Raises an AppendError if certainly nothing was appended.
        """
        now_ms = self._assignments.now_ms()
        due = self._due(now_ms)
        if due is None:
            return False
        move, units = due
        arrivals = [*filter(None, map(self._arrival, self._records(units)))]
        self.dropped += len(units) - len(arrivals)
        waiting = self._waiting_again(units, now_ms) if move.topic == TIMER_TOPIC else []
        self._move(move, [*arrivals, *waiting], on_done)
        return True

    def renew(self, old: Old, on_done: OnDone) -> bool:
        """Append copies of some timed messages in an old part of the log, if there are any that
        are not due soon.

        Raises an AppendError if certainly nothing was appended.
        """
        queue = self._machine.queues.get(TIMER_TOPIC, 0)
        after_ms = self._assignments.now_ms() + limits.RENEWED_AHEAD_MS
        later = self._machine.timers.later_than(after_ms, limits.DELIVERY_MESSAGES_MAX)
        if queue is None or not later or not _is_old(queue.read(later[0], 1), old).all():
            return False
        offsets = [offset for offset in later if offset not in self._leaving]
        units = np.concatenate([queue.read(offset, 1) for offset in offsets or later])
        count = _fitting(units[: int(_is_old(units, old).sum())])
        if not offsets or not count:
            return False
        renewed = [
            Arrival(TIMER_TOPIC, 0, NewRecord.copy(record))
            for record in self._records(units[:count])
            if self._arrival(record) is not None
        ]
        self.dropped += count - len(renewed)
        self._move(Move(TIMER_TOPIC, 0, ranges_of(offsets[:count])), renewed, on_done)
        return True

    def recall(self, offset: int, on_done: OnDone) -> bool:
        """Append a move that drops a timed message; False if it does not wait, or is being
        delivered.

        Raises an AppendError if certainly nothing was appended.
        """
        if offset not in self._machine.timers or offset in self._leaving:
            return False
        self._move(Move(TIMER_TOPIC, 0, ((offset, offset + 1),)), [], on_done)
        return True

    def _move(
        self,
        move: Move,
        arrivals: Sequence[Arrival],
        on_done: OnDone,
    ) -> None:
        """Append a move of waiting messages to their topics. The log must never have two of one
        message."""
        timed = {offset for first, end in move.ranges for offset in range(first, end)}
        if move.topic != TIMER_TOPIC:
            timed = set()

        def done(outcome: Appended | AppendError) -> None:
            self._leaving -= timed
            failpoint("delay.moved")
            on_done(outcome)

        draft = move_draft(move, arrivals, self._assignments, self._store_host)
        failpoint("delay.move")
        self._leaving |= timed
        try:
            self._entries.append_nowait(draft, Kind.MESSAGES, done)
        except AppendError:
            self._leaving -= timed
            raise

    def _firsts(self) -> list[First]:
        """The first message of each level, and of those with a timer; the earliest first."""
        firsts = []
        for queue_id, queue, first in self._waiting():
            take = partial(self._due_of_level, queue_id, queue, first)
            firsts.append(First(queue.stored_ms(first) + self._levels.delay_ms(queue_id), take))
        next_ms = self._machine.timers.next_ms()
        if next_ms is not None:
            firsts.append(First(next_ms, self._due_timers))
        return sorted(firsts, key=lambda first: first.due_ms)

    def _due(self, now_ms: int) -> tuple[Move, Units] | None:
        """The messages that have been due for longest, so that no level keeps another, or a timer,
        waiting."""
        due = (first.take(now_ms) for first in self._firsts() if first.due_ms <= now_ms)
        return next((found for found in due if found is not None), None)

    def _due_of_level(
        self, level: int, queue: ConsumeQueue, first: int, now_ms: int
    ) -> tuple[Move, Units]:
        units = due_units(queue, first, self._levels.delay_ms(level), now_ms)
        return Move(SCHEDULE_TOPIC, level, ((first, first + len(units)),)), units

    def _due_timers(self, now_ms: int) -> tuple[Move, Units] | None:
        queue = self._machine.queues.get(TIMER_TOPIC, 0)
        due = self._machine.timers.due(now_ms, limits.DELIVERY_MESSAGES_MAX)
        offsets = [offset for offset in due if offset not in self._leaving]
        if queue is None or not offsets:
            return None
        units = np.concatenate([queue.read(offset, 1) for offset in offsets])
        count = _fitting(units)
        return Move(TIMER_TOPIC, 0, ranges_of(sorted(offsets[:count]))), units[:count]

    def _waiting(self) -> list[tuple[int, ConsumeQueue, int]]:
        """(queue id, queue, first waiting offset) of the levels where messages wait."""
        queues = self._machine.queues.topic(SCHEDULE_TOPIC)
        waiting = []
        for queue_id, queue in queues or ():
            first = max(self._machine.delays.next(queue_id), queue.begin)
            if first < queue.end:
                waiting.append((queue_id, queue, first))
        return waiting

    def _waiting_again(self, units: Units, now_ms: int) -> list[Arrival]:
        """The repeated ones of these timed messages, as copies that wait for their next time."""
        waiting = []
        self._budget.settle(now_ms)
        for record in self._records(units):
            arrival = self._arrival(record) if may_repeat(bytes(record.properties)) else None
            if arrival is not None:
                stored = names.properties_decode(record.properties)
                properties = again(stored, now_ms)
                if properties is None:
                    continue
                room_ms = self._budget.charge(arrival.topic, record.size, now_ms)
                if room_ms > int(properties[names.TIMER_OUT_MS]):
                    self.put_off += 1
                    properties = again(stored, room_ms)
                if properties is not None:
                    encoded = names.properties_encode(properties)
                    copy = NewRecord.copy(record)._replace(properties=encoded)
                    waiting.append(Arrival(TIMER_TOPIC, 0, copy))
        return waiting

    def _records(self, units: Units) -> Iterator[Record]:
        for position, size in zip(units["position"].tolist(), units["size"].tolist(), strict=True):
            yield Record(self._log.view(position, size))

    def _arrival(self, record: Record) -> Arrival | None:
        """The message as it is delivered; None if its topic is gone, or it does not name one."""
        try:
            properties = names.properties_decode(record.properties)
            topic = self._definitions.lasting(properties.pop(names.REAL_TOPIC, ""))
            queue_id = int(properties.pop(names.REAL_QID, "0"))
        except (BadInput, ValueError):
            return None
        at = record.physical_offset
        origin = properties.get(names.RETRY_TOPIC, "")
        if topic is None or not is_of_life(self._machine, topic.topic_name, at):
            return None
        if self._machine.topics.get(origin) is not None and not is_of_life(
            self._machine, origin, at
        ):
            return None
        # A topic may have fewer queues by now.
        queue_id %= topic.read_queue_nums
        if names.REPEAT_EVERY_MS in properties or names.REPEAT_CRON in properties:
            properties = delivered(properties, new_unique_key())
            encoded = names.properties_encode(properties)
        else:
            encoded = names.properties_without(record.properties, names.REAL_PLACE)
        arrived = NewRecord.copy(record)._replace(properties=encoded)
        return Arrival(topic.topic_name, queue_id, arrived)
