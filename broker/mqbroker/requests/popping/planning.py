"""Plans which messages a POP takes of which queues, by the leader's state and clock. Pure.

Messages that are visible again come first, but for at most half of what is asked for if there are
new ones: neither kind may starve the other. An attempt that is repeated (its answer may have been
lost with a leader) gets what it was given. An ordered POP takes a queue only if nobody has messages
of it in hand, and then from the lowest one on.

A plan may be made while others are on their way. `Ahead` has what these will leave: cursors that
they move, and deliveries that they take again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dledger.remoting.headers.pop import FROM_END, FROM_LAST
from mqbroker import limits
from mqbroker.requests.reading.queue_reading import fitting, passing
from mqbroker.state.groups.bits import bits_to_bytes, offsets_in
from mqbroker.state.groups.deliveries import Delivery
from mqbroker.state.groups.popped import PoppedTopic
from mqbroker.state.groups.popping import PopMessages, PopQueue

if TYPE_CHECKING:
    from mqbroker.requests.filters import Selection
    from mqbroker.state.derived.consume_queue import ConsumeQueue
    from mqbroker.state.derived.units import Units


class Want(NamedTuple):
    """The messages that a POP asks for. `queue_ids` are in the order in which they are looked at.

    With `by_priority` nothing is taken of one while those before it have something new that may be
    taken, and what comes again only when none has.
    """

    group: str
    topic: str
    queue_ids: Sequence[int]
    messages_max: int
    bytes_max: int
    invisible_ms: int
    selection: Selection | None
    init_mode: int
    ordered: bool = False
    attempt_id: str = ""
    by_priority: bool = False


@dataclass(slots=True)
class Ahead:
    """The effect of plans on their way on one group's topic: cursors, and deliveries that are being
    taken again. Queues that an ordered POP is about to take are busy."""

    cursors: dict[int, int] = field(default_factory=dict)
    leaving: set[Delivery] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)
    on_their_way: int = 0
    new: int = 0
    """Messages that were not in flight before."""


@dataclass(slots=True)
class Plan:
    """An entry, what it needs to be answered, and what it leaves to the plans behind it."""

    entry: PopMessages
    #: (queue id, offset) -> (position, size in bytes) of each message.
    places: dict[tuple[int, int], tuple[int, int]]
    leaving: list[Delivery]
    cursors: dict[int, int]
    #: How many of the messages were not in flight before.
    new: int
    is_cut_short: bool
    """Whether messages were not looked at, since a filter has worked enough."""


class View(NamedTuple):
    """The facts from which a plan is made: the queues by their ids, the messages of them that the
    group has in hand, and the offsets that it has committed."""

    queues: dict[int, ConsumeQueue | None]
    popped: PoppedTopic
    committed: dict[int, int | None]
    ahead: Ahead
    room: int = limits.POP_MESSAGES_OURS_MAX
    """New messages that may be handed out."""
    new_queues: int = limits.QUEUES_PER_TOPIC_MAX
    """Queues that the group may begin to pop."""

    def known(self, queue_id: int) -> int:
        """The cursor as the state has it when this plan is applied; -1 if there is none as yet."""
        if queue_id in self.ahead.cursors:
            return self.ahead.cursors[queue_id]
        queue = self.popped.queues.get(queue_id)
        return -1 if queue is None else queue.cursor

    def start(self, queue_id: int, init_mode: int) -> int:
        """Offset at which new messages of a queue begin, by cursor, committed offset or
        `init_mode`."""
        queue = self.queues.get(queue_id)
        begin, end = (queue.begin, queue.end) if queue is not None else (0, 0)
        at = self.known(queue_id)
        if at < 0:
            committed = self.committed.get(queue_id)
            at = _first(begin, end, init_mode) if committed is None else committed
        return min(max(at, begin), end)

    def rest(self, queue_id: int, init_mode: int) -> int:
        """New messages that are left."""
        queue = self.queues.get(queue_id)
        return 0 if queue is None else queue.end - self.start(queue_id, init_mode)


def _first(begin: int, end: int, init_mode: int) -> int:
    """Where a group without an offset begins. As with pulls, a queue that still has its first
    message is read from there on."""
    if init_mode == FROM_END:
        return end
    return max(begin, end - 1) if init_mode == FROM_LAST and begin > 0 else begin


def plan(want: Want, view: View, now_ms: int) -> Plan | None:
    """The plan of a POP; None if there is nothing for it now."""
    work = _Work(want, view, now_ms)
    leaving, of_attempt = view.ahead.leaving, view.popped.of(want.attempt_id)
    repeated = [each for each in of_attempt if each not in leaving]
    if repeated:
        work.again(repeated, want.messages_max)
    elif want.ordered:
        work.in_order(now_ms)
    else:
        queue_ids = frozenset(want.queue_ids)
        visible = view.popped.visible(
            now_ms,
            limits.POP_MESSAGES_OURS_MAX if want.by_priority else want.messages_max,
            lambda each: each.queue_id in queue_ids and each not in leaving,
            want.queue_ids[0] if len(want.queue_ids) == 1 else None,
        )
        if want.by_priority:
            visible = sorted(visible, key=lambda each: want.queue_ids.index(each.queue_id))
        else:
            work.again(visible, max(1, want.messages_max // 2))
        if work.new():
            work.again(visible, want.messages_max)
    return work.made(now_ms, repeats=bool(repeated))


class _Work:
    """A plan in the making."""

    def __init__(self, want: Want, view: View, now_ms: int) -> None:
        self._want = want
        self._now_ms = now_ms
        self._view = view
        self._bytes_left = want.bytes_max
        self._steps_left = limits.SQL_STEPS_MAX
        self._rows: dict[int, PopQueue] = {}
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        self._leaving: list[Delivery] = []
        self._cursors: dict[int, int] = {}
        self._room, self._new_queues = view.room, view.new_queues

    def again(self, deliveries: Sequence[Delivery], messages_max: int) -> None:
        """Take messages that are in flight, until there are `messages_max` in all."""
        for delivery in deliveries:
            room = messages_max - len(self._places)
            queue = self._view.queues.get(delivery.queue_id)
            if room <= 0 or self._bytes_left <= 0 or queue is None:
                return
            if delivery not in self._leaving:
                self._take_again(delivery, queue, room)

    def _take_again(self, delivery: Delivery, queue: ConsumeQueue, room: int) -> None:
        units = queue.read(delivery.base, delivery.end - delivery.base)
        positions, sizes = units["position"].tolist(), units["size"].tolist()
        bits = 0
        for offset in offsets_in(delivery.base, delivery.bits):
            number = offset - delivery.base
            if room <= 0 or self._bytes_left <= 0 or number >= len(units):
                break
            bits |= 1 << number
            room -= 1
            self._bytes_left -= sizes[number]
            self._places[delivery.queue_id, offset] = (positions[number], sizes[number])
        if bits:
            self._leaving.append(delivery)
            self._row(delivery.queue_id).again.append(
                (delivery.fence, delivery.base, bits_to_bytes(bits))
            )

    def new(self) -> bool:
        """Take messages that nobody has had; whether others may be taken, too.

        By priority they may not while a queue has more than fits, or than was looked at.
        """
        for queue_id in self._want.queue_ids:
            if len(self._places) >= self._want.messages_max or self._bytes_left <= 0:
                return False
            if self._steps_left <= 0:
                return False
            popped = self._view.popped.queues.get(queue_id)
            room = limits.POP_IN_FLIGHT_PER_QUEUE_MAX - (0 if popped is None else popped.count)
            if room > 0 and self._room > 0:
                has_more = self._take_new(queue_id, room)
                if has_more and self._want.by_priority:
                    return False
        return True

    def in_order(self, now_ms: int) -> None:
        """Take of the first queue that is free: all that is in flight of it, then new ones."""
        for queue_id in self._want.queue_ids:
            popped = self._view.popped.queues.get(queue_id)
            flying = [] if popped is None else sorted(popped.deliveries(), key=attrgetter("base"))
            if self._steps_left <= 0:
                return
            is_held = any(each.visible_ms > now_ms for each in flying)
            if queue_id in self._view.ahead.busy or is_held:
                continue
            self.again(flying, self._want.messages_max)
            if len(self._places) == sum(map(len, flying)) and self._room > 0:
                self._take_new(queue_id, self._want.messages_max)
            if self._places:
                return

    def _take_new(self, queue_id: int, room: int) -> bool:
        """Take up to `room` new messages of a queue; whether it has more than fit or were seen."""
        queue = self._view.queues.get(queue_id)
        known = self._view.known(queue_id)
        start = self._view.start(queue_id, self._want.init_mode)
        is_new = known < 0
        if is_new and self._new_queues <= 0:
            return False
        if queue is None:
            if is_new and self._want.init_mode == FROM_END:
                # Noted now: else the first message to come would be before the end.
                self._new_queues -= 1
                self._move(queue_id, known, start, start, 0)
            return False
        if known == start == queue.end:
            return False
        count = min(room, self._room, self._want.messages_max - len(self._places))
        found = self._found(queue, start, count)
        if found.next_offset == known:
            return False
        sizes = found.units["size"].tolist()
        self._bytes_left -= sum(sizes)
        self._room -= len(sizes)
        self._new_queues -= is_new
        bits = 0
        for number, *place in zip(
            found.numbers, found.units["position"].tolist(), sizes, strict=True
        ):
            bits |= 1 << number
            self._places[queue_id, start + number] = (place[0], place[1])
        self._move(queue_id, known, found.next_offset, start, bits)
        return found.next_offset < queue.end and len(found.numbers) < room

    def _move(self, queue_id: int, known: int, cursor: int, base: int, bits: int) -> None:
        """Move a queue's cursor by the entry, and hand out the messages in between."""
        again = self._row(queue_id).again
        self._rows[queue_id] = PopQueue(queue_id, known, cursor, base, bits_to_bytes(bits), again)
        self._cursors[queue_id] = cursor

    def _found(self, queue: ConsumeQueue, start: int, count: int) -> _Found:
        """Up to `count` messages from `start` on that pass, of about as many bytes as are left; one
        at least. Work that a filter makes is bounded for all queues together."""
        units, numbers, scanned, steps = passing(
            queue, start, count, self._want.selection, self._now_ms, self._steps_left
        )
        self._steps_left -= steps
        chosen = units[numbers[:count]]
        if len(chosen):
            # A delivery has a bit for each message between its first and its last.
            near = np.searchsorted(numbers, numbers[0] + limits.POP_SPAN_MESSAGES_MAX)
            chosen = chosen[:near]
            ends = np.cumsum(chosen["size"].astype(np.int64))
            chosen = chosen[: fitting(ends, self._bytes_left)]
        if len(chosen) < len(numbers):
            scanned = int(numbers[len(chosen)])
        return _Found(numbers[: len(chosen)].tolist(), chosen, start + scanned)

    def _row(self, queue_id: int) -> PopQueue:
        """The row of an entry for one queue; it takes no new messages unless that is said."""
        row = self._rows.get(queue_id)
        if row is None:
            row = self._rows[queue_id] = PopQueue(queue_id, -2, 0, 0, b"", [])
        return row

    def made(self, now_ms: int, *, repeats: bool) -> Plan | None:
        """The plan of the messages taken so far, or None if there are none."""
        if not self._rows:
            return None
        entry = PopMessages(
            group=self._want.group,
            topic=self._want.topic,
            queues=[*self._rows.values()],
            now_ms=now_ms,
            visible_ms=now_ms + self._want.invisible_ms,
            attempt_id=self._want.attempt_id,
            repeats=repeats,
        )
        return Plan(
            entry=entry,
            places=self._places,
            leaving=self._leaving,
            cursors=self._cursors,
            new=self._view.room - self._room,
            is_cut_short=self._steps_left <= 0,
        )


class _Found(NamedTuple):
    """New messages: their numbers from where the search began, their units, where to go on."""

    numbers: list[int]
    units: Units
    next_offset: int
