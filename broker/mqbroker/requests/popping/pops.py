"""Appends POPs: plans what a member gets, and answers when that is in the log and applied.

Nothing is handed out before a majority has noted to whom: a new leader knows it then, and hides it
from the others. Several POPs may be on their way for one group; each is planned as if those before
it were applied already. If it turns out otherwise (a message was acknowledged meanwhile, or the
group reset), what is not there is left out of the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from dledger.errors import AppendError
from dledger.log.entry import Kind
from dledger.raft.appends import Appended
from mqbroker import limits
from mqbroker.leader.appending.in_flight import Tell
from mqbroker.requests.core import Core
from mqbroker.requests.popping.planning import Ahead, Plan, View, Want, plan
from mqbroker.state.control import encode_control
from mqbroker.state.groups.bits import offsets_in
from mqbroker.state.groups.deliveries import Delivery
from mqbroker.state.groups.places import place
from mqbroker.state.groups.popped import Granted, PoppedTopic
from mqbroker.state.groups.popping import PopMessages


class Handed(NamedTuple):
    """A message that a POP has got: how often it was handed out, and where it lies; and whether it
    was in flight before."""

    queue_id: int
    offset: int
    deliveries: int
    position: int
    size_bytes: int
    again: bool = False


class Got(NamedTuple):
    """The messages that a POP has got, by queue and offset, the highest queue first if it goes by
    priority; how many new messages are left, and whether there may be wanted ones among them that
    were not looked at."""

    pop_time_ms: int
    messages: list[Handed]
    rest: int
    is_cut_short: bool = False


class Pops:
    """Plans pops and appends their entries. `changed` is called with (group, topic) when something
    was applied."""

    def __init__(self, core: Core, changed: Callable[[str, str], None]) -> None:
        self._core = core
        self._changed = changed
        self._ahead: dict[tuple[str, str], Ahead] = {}
        #: New messages that are on their way to each group.
        self._coming: Counter[str] = Counter()

    def reset(self) -> None:
        """A leadership begins, or ends: nothing is on its way."""
        self._ahead.clear()
        self._coming.clear()

    def topic_ended(self, topic: str) -> None:
        """A topic is deleted: what was on its way is of its life that is over."""
        for key in [key for key in self._ahead if key[1] == topic]:
            self._coming -= Counter({key[0]: self._ahead.pop(key).new})

    def view(self, want: Want) -> View:
        """The facts from which a plan for `want` is made."""
        machine = self._core.machine
        group, topic = want.group, want.topic
        popped = machine.popped.topic(group, topic) or PoppedTopic()
        return View(
            queues={each: machine.queues.get(topic, each) for each in want.queue_ids},
            popped=popped,
            committed={each: place(machine, group, topic, each) for each in want.queue_ids},
            ahead=self._ahead.get((group, topic), Ahead()),
            room=min(self._room(group), limits.POP_IN_FLIGHT_PER_TOPIC_MAX - popped.count),
            new_queues=min(
                machine.offsets.shares.room(group), limits.POP_QUEUES_MAX - machine.popped.queues
            ),
        )

    def _room(self, group: str) -> int:
        """How many messages more a group may have in hand."""
        shares = self._core.machine.popped.shares
        return shares.room(group, self._coming[group], self._coming.total())

    def bound(self, group: str) -> str | None:
        """The bound that keeps a group from getting new messages, if one does."""
        machine = self._core.machine
        if not self._room(group):
            return machine.popped.shares.full(group)
        if machine.popped.queues >= limits.POP_QUEUES_MAX:
            return f"{machine.popped.queues} queues are popped by groups, as many as may be"
        shares = machine.offsets.shares
        return None if shares.room(group) else shares.full(group)

    def pop(self, want: Want, tell: Tell[Got]) -> bool:
        """Append what the POP gets; False if there is nothing for it.

        `tell` is called once. Raises an AppendError if certainly nothing was appended, and
        StorageError if a queue can't be read.
        """
        made = plan(want, self.view(want), self._core.assignments.now_ms())
        if made is None:
            return False
        key = (want.group, want.topic)
        body = encode_control(self._entry(made))

        ahead = self._depart(key, made, ordered=want.ordered)

        def done(outcome: Appended | AppendError) -> None:
            granted = None if isinstance(outcome, AppendError) else outcome.result
            self._arrived(key, ahead, made, granted)
            if isinstance(outcome, AppendError):
                tell(outcome)
                return
            assert isinstance(granted, Granted)  # what applying a POP returns
            got = _got(made, granted, self._rest(want))
            if want.by_priority:
                got.messages.sort(key=lambda each: (-each.queue_id, each.offset))
            self._changed(*key)
            tell(got)

        try:
            self._core.entries.append_nowait(body, Kind.CONTROL, done)
        except BaseException:
            self._arrived(key, ahead, made, None)
            raise
        return True

    def _entry(self, made: Plan) -> PopMessages:
        """A plan's entry, with a time above the fences of deleted topics: no handle of theirs is
        good for what it hands out."""
        floor = self._core.machine.popped.floor
        if made.entry.now_ms > floor:
            return made.entry
        return msgspec.structs.replace(made.entry, now_ms=floor + 1)

    def peek(self, want: Want) -> Got:
        """The messages that a POP would get now, without handing them out."""
        now_ms = self._core.assignments.now_ms()
        made = plan(want, self.view(want), now_ms)
        places = {} if made is None else made.places
        messages = [Handed(*key, 1, *place) for key, place in places.items()]
        is_cut_short = made is not None and made.is_cut_short
        return Got(now_ms, sorted(messages), self._rest(want), is_cut_short)

    def is_leaving(self, group: str, topic: str, delivery: Delivery) -> bool:
        """Whether a POP that takes messages of this delivery again is on its way."""
        ahead = self._ahead.get((group, topic))
        return ahead is not None and delivery in ahead.leaving

    def _rest(self, want: Want) -> int:
        view = self.view(want)
        return sum(view.rest(queue_id, want.init_mode) for queue_id in want.queue_ids)

    def _depart(self, key: tuple[str, str], made: Plan, *, ordered: bool) -> Ahead:
        ahead = self._ahead.setdefault(key, Ahead())
        ahead.on_their_way += 1
        ahead.new += made.new
        self._coming[key[0]] += made.new
        ahead.cursors |= made.cursors
        ahead.leaving.update(made.leaving)
        if ordered:
            ahead.busy.update(queue.queue_id for queue in made.entry.queues)
        return ahead

    def _arrived(
        self, key: tuple[str, str], ahead: Ahead, made: Plan, granted: object | None
    ) -> None:
        if self._ahead.get(key) is not ahead:
            return  # leadership changed meanwhile
        ahead.on_their_way -= 1
        ahead.new -= made.new
        self._coming -= Counter({key[0]: made.new})
        ahead.leaving.difference_update(made.leaving)
        ahead.busy.difference_update(queue.queue_id for queue in made.entry.queues)
        passed = granted.passed if isinstance(granted, Granted) else frozenset()
        for queue_id in made.cursors.keys() - passed:
            ahead.cursors.pop(queue_id, None)  # the state's own counts again
        if not ahead.on_their_way:
            del self._ahead[key]


def _got(made: Plan, granted: Granted, rest: int) -> Got:
    messages = [
        Handed(
            taken.queue_id,
            offset,
            taken.deliveries,
            *made.places[taken.queue_id, offset],
            taken.again,
        )
        for taken in granted.taken
        for offset in offsets_in(taken.base, taken.bits)
    ]
    messages.sort()
    return Got(granted.fence, messages, rest, made.is_cut_short)
