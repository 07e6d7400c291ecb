"""The part of the replicated state that is kept in memory, and what control entries do to it. Pure.

All of it is in a snapshot; what is derived from the log into files is not here (see
`mqbroker.state.machine`, which adds that, and applies the entries in order).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from dledger.slices import drained
from dledger.trust.users import Users
from mqbroker import limits
from mqbroker.state import control
from mqbroker.state.aside import AsideBook
from mqbroker.state.decisions import CLOSING, Decided, Decisions
from mqbroker.state.dedup import DedupWindow
from mqbroker.state.groups.given_up import GivenUp
from mqbroker.state.groups.locks import QueueKey, QueueLocks
from mqbroker.state.groups.modes import RequestModes
from mqbroker.state.groups.offsets import ConsumerOffsets
from mqbroker.state.groups.popped import Granted, Popped
from mqbroker.state.groups.popping import PopMessages, SettlePopped, follow, pop, settle
from mqbroker.state.groups.subscriptions import Beginning, SubscriptionGroups
from mqbroker.state.moves import Delays
from mqbroker.state.once import Decision, Once, move_offsets
from mqbroker.state.producers import Claim, Judged, Producers
from mqbroker.state.rows.picture import ROWS_AT_ONCE, Fields, Pairs, batched, rows_of
from mqbroker.state.shares import Owners, Shares
from mqbroker.state.topics import Topics
from mqbroker.state.waiting import Waiting

if TYPE_CHECKING:
    from mqbroker.state.saved.snapshot import State

T = TypeVar("T")


class Memory:
    """The state in memory of one replica."""

    def __init__(self) -> None:
        #: The newest store time in the log: the leader's clock never goes behind it.
        self.clock_ms = 0
        self.topics = Topics()
        self.groups = SubscriptionGroups()
        self.offsets = ConsumerOffsets()
        self.locks = QueueLocks()
        #: Messages that POP has handed out. `offsets` has the lowest that is not acknowledged.
        self.popped = Popped()
        self.modes = RequestModes()
        #: Producers with a name, and what they wrote last.
        self.producers = Producers()
        self.decisions = Decisions()
        #: Config keys that were changed while the group ran, with their values as text.
        self.settings: dict[str, str] = {}
        #: Users, and what each may do.
        self.users = Users()
        #: Entries that were set aside.
        self.aside = AsideBook()
        self.dedup = DedupWindow()
        self.delays = Delays()
        #: Messages with a timer, and when they are due.
        self.timers = Waiting(
            Owners(
                Shares(
                    "messages with a timer", "topic", limits.TIMERS_MAX, limits.TOPICS_MAX, greed=8
                )
            )
        )
        #: Half messages of transactions that have not ended, and when they were stored.
        self.halves = Waiting(
            Owners(
                Shares("open transactions", "topic", limits.TRANSACTIONS_MAX, greed=8),
                Shares("open transactions", "producer group", limits.TRANSACTIONS_MAX, greed=8),
            )
        )

    def change(self, change: control.Control, index: int, position: int = 0) -> object:
        """Make the change of the control entry `index`, which lies there in the log; returns the
        result for its sender."""
        match change:
            case control.PutSettings(settings, now_ms):
                self._put_settings(settings, now_ms)
            case control.PutTopics(topics, now_ms):
                self.topics.put(topics, now_ms, index, position)
            case control.DeleteTopic(topic, now_ms):
                self.topics.delete(topic, now_ms)
                self.offsets.delete_topic(topic)
                self.locks.delete_topic(topic)
                self.popped.delete_topic(topic)
                self.modes.delete_topic(topic)
            case PopMessages() | SettlePopped():
                return self._change_popped(change)
            case control.RegisterProducer(name, instance, now_ms):
                self.clock_ms = max(self.clock_ms, now_ms)
                return self._register(name, instance, index, Claim())
            case control.ClaimProducer(name, instance, user, over, now_ms):
                self.clock_ms = max(self.clock_ms, now_ms)
                return self._register(name, instance, index, Claim(user, over))
            case control.ForgetProducers(names, now_ms):
                self.clock_ms = max(self.clock_ms, now_ms)
                self.producers.forget(names)
            case control.PutUser(user):
                self.users.put(user)
            case control.DeleteUser(name):
                self.users.delete(name)
            case _:
                return self._change_groups(change, index)
        return None

    def owner_of(self, producer: str) -> str:
        """The user whose a producer's name is; "" for nobody's, and for a user that is no more."""
        owner = self.producers.owner(producer)
        return owner if owner and self.users.get(owner) is not None else ""

    def _register(self, name: str, instance: str, index: int, claim: Claim) -> object:
        owner = self.owner_of(name)
        if owner and owner != claim.user and not claim.over:
            return Judged.TAKEN
        return self.producers.register(name, instance, index, self.clock_ms, owner or claim.user)

    def _change_groups(self, change: control.Control, index: int) -> object:
        match change:
            case control.CommitOffsets(offsets):
                for group, topic, queue_id, offset in offsets:
                    if self.topics.get(topic) is not None:
                        self.offsets.commit(group, topic, queue_id, offset)
                        self.popped.reset(group, topic, queue_id, offset)
            case control.LockQueues(group, client_id, queues, now_ms):
                keys = [QueueKey(group, topic, queue_id) for topic, queue_id in queues]
                return self.locks.acquire(client_id, keys, now_ms, index)
            case control.UnlockQueues(group, client_id, queues):
                keys = [QueueKey(group, topic, queue_id) for topic, queue_id in queues]
                self.locks.release(client_id, keys)
            case control.PutGroups(groups, now_ms, begins):
                begun = None if begins is False else Beginning(index, now_ms)
                self.groups.put(groups, now_ms, begun)
            case control.DeleteGroup(group, with_offsets, now_ms):
                self.groups.delete(group, now_ms)
                self.locks.delete_group(group)
                self.popped.delete_group(group)
                self.modes.delete_group(group)
                if with_offsets:
                    self.offsets.delete_group(group)
            case control.PutRequestMode(topic, group, mode, share):
                if self.topics.get(topic) is not None and self.groups.get(group) is not None:
                    self.modes.put(topic, group, mode, share)
        return None

    def _change_popped(self, change: PopMessages | SettlePopped) -> object:
        self.clock_ms = max(self.clock_ms, change.now_ms)
        if isinstance(change, SettlePopped):
            return settle(change, self.popped, self.offsets)
        if self.topics.get(change.topic) is None or self.groups.get(change.group) is None:
            return Granted(0, (), frozenset())
        return pop(change, self.popped, self.offsets)

    def check_once(self, once: Once) -> None:
        """Raise Unusable for a write that no leader appends."""
        self.producers.check(once.stamp)
        if isinstance(once, Decision):
            self.decisions.check(once.name, once.batch)

    def write_once(self, once: Once, position: int, size: int, now_ms: int) -> None:
        """Note a named producer's write, whose entry's body lies there, and move its group on."""
        self.producers.write(once.stamp, position, size, max(self.clock_ms, now_ms))
        if isinstance(once, Decision):
            self.decisions.decide(once.name, Decided(once.batch, position, size))
            if once.batch == CLOSING:
                self.producers.close(once.name)
        for move in move_offsets(once, self.offsets, self.topics):
            self.popped.reset(once.group, move.topic, move.queue_id, move.end)

    def give_up(self, given_up: GivenUp) -> None:
        """Note that popped messages became dead letters, and so are done."""
        self._change_popped(given_up.settled)

    def retain_from(self, topic: str, queue_id: int, begin: int) -> None:
        """The messages of a queue before `begin` are gone."""
        for group in self.popped.forget_before(topic, queue_id, begin):
            follow(self.popped, self.offsets, group, topic, queue_id)

    def _put_settings(self, settings: Mapping[str, str], now_ms: int) -> None:
        merged = {**self.settings, **settings}
        self.settings = {key: text for key, text in merged.items() if text}
        # Which topics name servers get depends on settings, too.
        self.topics.touch(now_ms)

    def take_memory(self, state: State) -> None:
        """Take over what a snapshot kept."""
        drained(self.restoring(state))

    def restoring(self, state: State) -> Generator[None, None, None]:
        """Take over a snapshot in steps, on an empty memory: nobody may look at it before the
        last."""
        self.clock_ms = state.clock_ms
        self.topics.restore(state.topics, state.topics_version, state.births)
        yield
        self.groups.restore(state.groups, state.groups_version, state.begun)
        self.modes.restore(state.modes)
        self.delays.restore(state.delays)
        self.settings = dict(state.settings)
        self.users.restore(state.users)
        self.aside.restore(*state.aside)
        self.offsets.restore([])
        self.popped.restore([], state.popped_floor)
        self.producers.restore([])
        yield from _in_parts(self.offsets.add_saved, state.offsets)
        yield from self.popped.adding(state.popped)
        yield from _in_parts(self.producers.add_saved, state.producers)
        self.producers.give(state.producer_owners)
        self.decisions.restore(state.decided)
        self.dedup.restore([])
        yield from _in_parts(self.dedup.add_saved, state.dedup, 1)
        yield from self.locks.restoring(state.locks, state.lock_tokens, state.lock_clock_ms)
        yield from self.timers.restoring(state.timers, state.timer_owners)
        yield from self.halves.restoring(state.halves, state.half_owners)

    def picture(self, fields: Fields) -> Generator[None, None, None]:
        """Give a picture what it keeps, in steps. Nothing may change before the last."""
        fields["clock_ms"] = self.clock_ms
        fields["topics"] = rows_of([*self.topics])
        fields["topics_version"] = self.topics.version
        fields["births"] = Pairs(self.topics.births())
        yield
        fields["groups"] = rows_of([*self.groups])
        fields["groups_version"] = self.groups.version
        fields["begun"] = self.groups.beginnings()
        fields["locks"], fields["lock_tokens"] = self.locks.picture()
        fields["lock_clock_ms"] = self.locks.clock_ms
        yield
        fields["popped_floor"] = self.popped.floor
        fields["modes"] = self.modes.dump()
        fields["dedup"] = self.dedup.picture()
        fields["delays"] = self.delays.dump()
        fields["settings"] = self.settings
        fields["users"] = self.users.dump()
        fields["aside"] = self.aside.dump()
        yield
        fields["timers"], fields["timer_owners"] = self.timers.picture()
        yield
        fields["halves"], fields["half_owners"] = self.halves.picture()
        yield
        fields["offsets"] = yield from self.offsets.picture()
        fields["popped"] = yield from self.popped.picture()
        fields["producers"] = yield from self.producers.picture()
        fields["producer_owners"] = self.producers.owners()
        fields["decided"] = rows_of(self.decisions.picture())


def _in_parts(
    add: Callable[[list[T]], None], rows: Iterable[T], count: int = ROWS_AT_ONCE
) -> Iterator[None]:
    for some in batched(rows, count):
        add(some)
        yield
