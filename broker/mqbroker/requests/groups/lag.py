"""The lag of a consumer group in a queue, and its reason, for tools and figures alike.

A group is at the offset that it has committed, or nowhere yet: then it counts as at the first
message, as it has read none. Popped messages in flight count by themselves, as others behind them
may be done. What was pulled and not committed is in flight, as far as this leader has seen it
pulled, while the member that pulled it is there: what a member had that is gone is read again. So
lag = in flight + ready, and none of them is negative.

A group's topics are those that it has offsets in, those that its members subscribe to, and, when
its last member has gone, those that it did. So the lag of a group that is away goes on growing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dledger.remoting.json_dialect import MessageQueue
from mqbroker import limits
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.requests.core import Core
from mqbroker.requests.groups.membership import BROADCASTING, ConsumerGroup, Membership
from mqbroker.requests.groups.readers import Readers
from mqbroker.requests.permissions import may_be_read
from mqbroker.state.groups.locks import QueueKey


class Behind(NamedTuple):
    """A group in a queue: committed up to `offset`, handed out up to `pulled`, of messages up to
    `end`."""

    offset: int
    pulled: int
    end: int
    in_flight: int

    @property
    def ready(self) -> int:
        """Messages that were not handed out yet."""
        return self.end - self.pulled

    @property
    def lag(self) -> int:
        """Messages that are not done."""
        return self.in_flight + self.ready


class Why(StrEnum):
    """Why a queue's messages are not done."""

    DONE = "done"
    GROUP_DISABLED = "group disabled"
    TOPIC_UNREADABLE = "topic unreadable"
    NO_MEMBERS = "no members"
    NOT_SUBSCRIBED = "not subscribed"
    HELD_BY_RATE = "held by rate"
    HANDED_OUT = "handed out"
    LOCKED_IN_ORDER = "handed out in order"
    NO_OWNER = "no owner"
    FILTERED = "filtered"
    PAUSED = "paused"
    BUSY = "busy"
    NOT_ASKED_FOR = "not asked for"
    BEING_READ = "being read"


class Reason(NamedTuple):
    """Why, in which words, and since when: unix ms, 0 if nothing tells."""

    why: Why
    text: str
    since_ms: int = 0


@dataclass(eq=False, slots=True)
class Standing:
    """Progress of groups in queues, and the reason why a group is not further, on the leader."""

    _core: Core
    _membership: Membership
    _commits: OffsetCommits
    _readers: Readers

    def topics_of(self, group: str) -> set[str]:
        """The topics that a group reads, or has read."""
        online = self._membership.consumers(group)
        subscribed = self._membership.left_topics(group) if online is None else online.subscriptions
        return self._commits.topics_of(group).union(subscribed)

    def is_kept(self, group: str) -> bool:
        """Whether a group's progress is kept here: members that broadcast keep it themselves."""
        online = self._membership.consumers(group)
        return online is None or online.message_model != BROADCASTING

    def behind(self, group: str, topic: str, queue_id: int) -> Behind:
        """A group in a queue."""
        machine, key = self._core.machine, QueueKey(group, topic, queue_id)
        offset = self._commits.resumes(key)
        end = max(offset, machine.queues.end(topic, queue_id))
        popped = machine.popped.queue(*key)
        if popped is not None and popped.count:
            cursor = min(max(offset, popped.cursor), end)
            return Behind(offset, cursor, end, min(popped.count, cursor - offset))
        seen = self._core.rates.pull_offset(key) if self._has_reader(key) else 0
        pulled = min(max(offset, seen), end)
        return Behind(offset, pulled, end, pulled - offset)

    def _has_reader(self, key: QueueKey) -> bool:
        """Whether the member that has pulled a queue is there."""
        online = self._membership.consumers(key.group)
        return online is not None and self._readers.reader(key) in online.members

    def queues_of(self, topic: str) -> int:
        """How many queues of a topic can be read; 0 if there is no such topic."""
        config = self._core.machine.topics.get(topic)
        return 0 if config is None else config.read_queue_nums

    def reason(self, group: str, topic: str, queue_id: int, behind: Behind) -> Reason:
        """Why a group is not further in a queue."""
        return next(self._reasons(QueueKey(group, topic, queue_id), behind))

    def _reasons(self, key: QueueKey, behind: Behind) -> Iterator[Reason]:
        machine, members = self._core.machine, self._membership.consumers(key.group)
        if not behind.lag:
            yield Reason(Why.DONE, "nothing is left")
        config = machine.groups.get(key.group)
        if config is not None and not config.consume_enable:
            yield Reason(Why.GROUP_DISABLED, "the group's consumeEnable is false")
        if not may_be_read(machine.topics.get(key.topic)):
            yield Reason(Why.TOPIC_UNREADABLE, "the topic may not be read")
        if members is None:
            yield Reason(Why.NO_MEMBERS, "the group has no members")
        else:
            yield from self._of_members(key, behind, members)

    def _of_members(
        self, key: QueueKey, behind: Behind, members: ConsumerGroup
    ) -> Iterator[Reason]:
        if key.topic not in members.subscriptions:
            wants = next(iter(members.wants.values())).shown
            yield Reason(
                Why.NOT_SUBSCRIBED, f"no member subscribes to the topic; they want {wants}"
            )
        held = self._core.flow.held_back(key.group)
        if held is not None:
            yield Reason(Why.HELD_BY_RATE, held.reason)
        owner = self._readers.reader(key)
        popped = self._core.machine.popped.queue(*key)
        client = None if owner is None else members.members.get(owner)
        queue = MessageQueue(key.topic, self._core.config.broker_name, key.queue_id)
        pauses = None if owner is None else members.has_paused(owner, queue)
        if client is not None and pauses:
            yield Reason(Why.PAUSED, f"{client.client_id} has paused the queue")
        if popped is not None and all(members.has_paused(each, queue) for each in members.members):
            yield Reason(Why.PAUSED, "all members have paused")
        if behind.in_flight and (client is not None or (popped is not None and popped.count)):
            yield self._handed_out(key, behind, None if client is None else client.client_id)
        if client is None and popped is None:
            yield Reason(
                Why.NO_OWNER, f"none of the {len(members.members)} members reads the queue"
            )
        silent_s = self._silent_s(key)
        if client is not None and popped is None and silent_s > limits.ASKS_AGAIN_S:
            what = "paused, or busy with others" if pauses is None else "busy with others"
            yield Reason(
                Why.NOT_ASKED_FOR if pauses is None else Why.BUSY,
                f"{client.client_id} reads the queue, and asks for no messages: it is {what}",
                self._core.clock_ms() - int(1000 * silent_s),
            )
        if (
            key.topic in members.subscriptions
            and members.subscriptions[key.topic].sub_string != "*"
        ):
            yield Reason(Why.FILTERED, "the group's filter passes over messages")
        yield Reason(Why.BEING_READ, "a member reads the queue")

    def _silent_s(self, key: QueueKey) -> float:
        """How long ago the group was given messages of a queue; 0 if this leader gave it none."""
        at_s = self._core.rates.pulled_at_s(key)
        return self._core.clock_s() - at_s if at_s else 0.0

    def _handed_out(self, key: QueueKey, behind: Behind, client_id: str | None) -> Reason:
        ago_s = self._core.clock_s() - self._core.rates.pulled_at_s(key)
        since_ms = self._core.clock_ms() - int(1000 * ago_s)
        lock = self._core.machine.locks.held(key)
        why = Why.HANDED_OUT if lock is None else Why.LOCKED_IN_ORDER
        to_whom = "members" if client_id is None else client_id
        return Reason(why, f"{to_whom} has {behind.in_flight} messages in hand", since_ms)
