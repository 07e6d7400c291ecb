"""The clients connected to this broker, by producer and consumer group. Pure.

A client says every 30 s which groups it belongs to and what it subscribes to. A connection that
closes, or is silent for `CLIENT_EXPIRY_S`, leaves all its groups. Consumers share the queues of a
topic among the members by themselves, each by the same rule. So all members must be told of every
change of their group at once: functions here return the groups that changed, and the caller sends
NOTIFY_CONSUMER_IDS_CHANGED. All this is in memory only: clients send heartbeats to every replica,
so each one knows them.

The memory is counted (`kept_bytes`): a connection is charged for its memberships, and for the
subscriptions of the groups that it was the last to describe.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from dledger.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.json_dialect import MessageQueue, all_queues
from dledger.remoting.message import RETRY_PREFIX
from mqbroker import limits
from mqbroker.refusal import Refused, system_error


class Client(NamedTuple):
    """A member of a group, as its heartbeat described it."""

    client_id: str
    address: str
    language: str
    version: int


class Wants(NamedTuple):
    """The subscriptions of a member: enough to compare them, and to show them."""

    topics: bytes
    """A digest of all of it."""
    allocation: str | None
    """How it shares queues out; stock members don't tell."""
    shown: str

    @classmethod
    def of(cls, data: ConsumerData) -> Wants:
        """The subscriptions in an order of their own; without the retry topic, which is every
        member's."""
        wanted = sorted(
            f"{each.topic} {' || '.join(sorted(each.tags_set)) or each.sub_string}"
            for each in data.subscription_data_set
            if not each.topic.startswith(RETRY_PREFIX)
        )
        text = ", ".join(wanted)
        allocation = data.allocation and data.allocation[: limits.WANTS_SHOWN_MAX]
        shown = f"[{text[: limits.WANTS_SHOWN_MAX]}]"
        if allocation:
            shown += f", shared out as {allocation}"
        digest = sha256(text.encode(errors="surrogatepass")).digest()
        return cls(digest, allocation, shown)

    def agrees(self, other: Wants) -> bool:
        """Whether both may be members of one group."""
        alike = None in (self.allocation, other.allocation) or self.allocation == other.allocation
        return alike and self.topics == other.topics


BROADCASTING = "BROADCASTING"
"""The `message_model` of members that keep their progress themselves."""
#: The `consume_type` of members that pop and never pull: ours.
POPS = "CONSUME_POP"


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group at the moment, and what they said about it."""

    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    described_by: int = -1
    """The connection whose heartbeat came last."""
    kept_bytes: int = 0
    """Roughly the memory of its subscriptions."""
    members: dict[int, Client] = field(default_factory=dict)
    wants: dict[int, Wants] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    readers: set[int] = field(default_factory=set)
    """The members that have asked for messages."""
    paused: dict[int, frozenset[MessageQueue]] = field(default_factory=dict)
    """Queues that a member has paused, for members that tell: ours."""

    def has_paused(self, connection_id: int, queue: MessageQueue) -> bool | None:
        """Whether a member has paused a queue, by its last heartbeat; None if it does not tell."""
        paused = self.paused.get(connection_id)
        return None if paused is None else queue in paused or all_queues(queue.topic) in paused


class _RefusedClient(NamedTuple):
    """A client that was refused, since it would subscribe to something else than the members."""

    client_id: str
    wants: Wants
    at_s: float


@dataclass(slots=True)
class _Groups:
    """The groups of a connection, and its client."""

    client_id: str
    producers: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)


class Membership:
    """Producer and consumer groups by connection id."""

    def __init__(self) -> None:
        self._groups: dict[int, _Groups] = {}
        self._producers: dict[str, dict[int, Client]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._last_seen_s: dict[int, float] = {}
        self._connections: dict[str, int] = {}
        self._left: dict[str, tuple[str, ...]] = {}
        self._refused_clients: dict[str, _RefusedClient] = {}

    def heartbeat(
        self, connection_id: int, client: Client, heartbeat: HeartbeatData, now_s: float
    ) -> set[str]:
        """Take in a heartbeat. Returns the consumer groups whose members or subscriptions changed.

        Raises Refused if it names more groups or topics than a client may; or if it asks for that
        should other members, who read, subscribe to something else.
        """
        groups = self._groups.get(connection_id) or _Groups(client.client_id)
        _check_bounds(groups, heartbeat)
        for consumer in heartbeat.consumer_data_set:
            self._check_same(connection_id, client, consumer, now_s)
        self._groups[connection_id] = groups
        self._last_seen_s[connection_id] = now_s
        if client.client_id != groups.client_id:
            self._forget_client(groups.client_id, connection_id)
            groups.client_id = client.client_id
        self._connections[client.client_id] = connection_id
        for producer in heartbeat.producer_data_set:
            groups.producers.add(producer.group_name)
            self._producers.setdefault(producer.group_name, {})[connection_id] = client
        groups.consumers.update(each.group_name for each in heartbeat.consumer_data_set)
        return {
            consumer.group_name
            for consumer in heartbeat.consumer_data_set
            if self._consumer(connection_id, client, consumer)
        }

    def unregister(
        self, connection_id: int, producer_group: str | None, consumer_group: str | None
    ) -> set[str]:
        """Remove a client from a producer group, a consumer group, or both. Returns the consumer
        groups that changed."""
        groups = self._groups.get(connection_id)
        if groups is not None:
            groups.producers.discard(producer_group or "")
            groups.consumers.discard(consumer_group or "")
        if producer_group is not None:
            self._leave_producers(producer_group, connection_id)
        changed = consumer_group is not None and self._leave(consumer_group, connection_id)
        return {consumer_group} if consumer_group is not None and changed else set()

    def disconnected(self, connection_id: int) -> set[str]:
        """A connection is gone: remove its memberships. Returns the changed groups."""
        if self._last_seen_s.pop(connection_id, None) is None:
            return set()
        groups = self._groups.pop(connection_id)
        self._forget_client(groups.client_id, connection_id)
        for group in groups.producers:
            self._leave_producers(group, connection_id)
        return {group for group in groups.consumers if self._leave(group, connection_id)}

    def expire(self, now_s: float) -> set[str]:
        """Drop the connections that were silent for too long. Returns the changed groups."""
        silent = [
            connection_id
            for connection_id, seen_s in self._last_seen_s.items()
            if now_s - seen_s > limits.CLIENT_EXPIRY_S
        ]
        return {group for connection_id in silent for group in self.disconnected(connection_id)}

    def reads(self, group: str, connection_id: int) -> None:
        """A connection has asked for messages of its group: what it subscribes to counts. Of who
        only says that it belongs there, nothing keeps others out."""
        found = self._consumers.get(group)
        if found is not None and connection_id in found.members:
            found.readers.add(connection_id)

    def consumers(self, group: str) -> ConsumerGroup | None:
        """A consumer group with at least one member, or None."""
        return self._consumers.get(group)

    def left_topics(self, group: str) -> tuple[str, ...]:
        """The topics that the last members of a group subscribed to, which has none now."""
        return self._left.get(group, ())

    def is_consumer(self, group: str, connection_id: int) -> bool:
        """Whether a connection is a member of a consumer group."""
        found = self._consumers.get(group)
        return found is not None and connection_id in found.members

    def tells(self, group: str, connection_id: int) -> bool:
        """Whether a connection is a member that says when it gives a queue up: one of ours."""
        found = self._consumers.get(group)
        wants = None if found is None else found.wants.get(connection_id)
        return wants is not None and wants.allocation is not None

    def has_pullers(self, group: str) -> bool:
        """Whether the members of a consumer group pull, by their newest heartbeat."""
        found = self._consumers.get(group)
        return found is not None and found.consume_type != POPS

    def consumer_groups(self) -> Iterator[tuple[str, ConsumerGroup]]:
        """All consumer groups with members."""
        return iter(self._consumers.items())

    def subscribers(self, topic: str) -> Iterator[tuple[str, int]]:
        """The (group, connection id) of the members of groups that subscribe to a topic."""
        for name, group in self._consumers.items():
            if topic in group.subscriptions:
                for connection_id in group.members:
                    yield name, connection_id

    def producers(self, group: str) -> Mapping[int, Client]:
        """The members of a producer group, by connection id."""
        return self._producers.get(group, {})

    def producer_groups(self) -> Iterator[tuple[str, Mapping[int, Client]]]:
        """All producer groups, with their members by connection id."""
        return iter(self._producers.items())

    def last_seen_s(self, connection_id: int) -> float:
        """When a member's last heartbeat came."""
        return self._last_seen_s[connection_id]

    def connection_of(self, client_id: str) -> int | None:
        """The connection of a client's last heartbeat, if it is still there."""
        return self._connections.get(client_id)

    def kept_bytes(self, connection_id: int) -> int:
        """Roughly the memory that is kept for this connection's heartbeats."""
        groups = self._groups.get(connection_id)
        if groups is None:
            return 0
        names = (*groups.producers, *groups.consumers)
        kept = len(groups.client_id) + sum(limits.GROUP_BYTES + len(name) for name in names)
        for name in groups.consumers:
            group = self._consumers.get(name)
            if group is not None and group.described_by == connection_id:
                kept += group.kept_bytes
            if group is not None:
                paused = group.paused.get(connection_id, ())
                kept += limits.WANTS_BYTES + limits.PAUSED_BYTES * len(paused)
        return kept

    def _check_same(
        self, connection_id: int, client: Client, data: ConsumerData, now_s: float
    ) -> None:
        group = self._consumers.get(data.group_name)
        if group is None or not data.same_subscriptions or connection_id in group.members:
            return
        mine = Wants.of(data)
        for other_id, other in group.members.items():
            if other_id not in group.readers:
                continue
            theirs = group.wants[other_id]
            if other.client_id != client.client_id and not mine.agrees(theirs):
                self._note_refused(data.group_name, _RefusedClient(client.client_id, mine, now_s))
                raise Refused(
                    ResponseCode.SUBSCRIPTION_DIFFERS,
                    f"{other.client_id} subscribes to {theirs.shown}; {client.client_id} would to "
                    f"{mine.shown}",
                )

    def _note_refused(self, group: str, refused: _RefusedClient) -> None:
        """Remember who was refused last, for tools."""
        self._refused_clients.pop(group, None)
        if len(self._refused_clients) >= limits.GROUPS_KEPT_OUT_MAX:
            del self._refused_clients[next(iter(self._refused_clients))]
        self._refused_clients[group] = refused

    def differing(self, group: str, now_s: float) -> dict[str, str]:
        """The subscriptions of each client of a group, if they do not all agree; else nothing. One
        that was refused for that is among them, as long as a client is not taken for gone."""
        found = self._consumers.get(group)
        if found is None:
            return {}
        wants = {client.client_id: found.wants[each] for each, client in found.members.items()}
        refused = self._refused_clients.get(group)
        if refused is not None and now_s - refused.at_s <= limits.CLIENT_EXPIRY_S:
            wants.setdefault(refused.client_id, refused.wants)
        first = next(iter(wants.values()))
        if all(each.agrees(first) for each in wants.values()):
            return {}
        shown = itertools.islice(sorted(wants.items()), limits.DIFFERING_SHOWN_MAX)
        return {client_id: each.shown for client_id, each in shown}

    def _forget_client(self, client_id: str, connection_id: int) -> None:
        if self._connections.get(client_id) == connection_id:
            del self._connections[client_id]

    def _consumer(self, connection_id: int, client: Client, data: ConsumerData) -> bool:
        group = self._consumers.get(data.group_name)
        if group is None:
            group = self._consumers[data.group_name] = ConsumerGroup()
        group.consume_type = str(data.consume_type)
        group.message_model = str(data.message_model)
        group.consume_from_where = str(data.consume_from_where)
        group.described_by = connection_id
        joined = group.members.get(connection_id) != client
        group.members[connection_id] = client
        group.wants[connection_id] = Wants.of(data)
        if data.paused is not None:
            some = itertools.islice(data.paused, limits.PAUSED_QUEUES_MAX)
            group.paused[connection_id] = frozenset(some)
        changed = self._subscribe(group, data.subscription_data_set)
        group.kept_bytes = sum(map(_memory_bytes, group.subscriptions.values()))
        return changed or joined

    @staticmethod
    def _subscribe(group: ConsumerGroup, subscriptions: list[SubscriptionData]) -> bool:
        """Take over newer subscriptions, drop those no longer named. Returns whether topics
        changed."""
        topics = {subscription.topic for subscription in subscriptions}
        changed = topics != set(group.subscriptions)
        for topic in set(group.subscriptions) - topics:
            del group.subscriptions[topic]
        for subscription in subscriptions:
            known = group.subscriptions.get(subscription.topic)
            if known is None or known.sub_version <= subscription.sub_version:
                group.subscriptions[subscription.topic] = subscription
        return changed

    def _leave(self, group_name: str, connection_id: int) -> bool:
        group = self._consumers.get(group_name)
        if group is None or group.members.pop(connection_id, None) is None:
            return False
        group.wants.pop(connection_id, None)
        group.paused.pop(connection_id, None)
        group.readers.discard(connection_id)
        if not group.members:
            self._note_left(group_name, group)
            del self._consumers[group_name]
        elif group.described_by == connection_id:
            group.described_by = next(iter(group.members))
        return True

    def _note_left(self, group_name: str, group: ConsumerGroup) -> None:
        """Remember what a group subscribed to whose last member has gone."""
        self._left.pop(group_name, None)
        while len(self._left) >= limits.GROUPS_LEFT_MAX:
            del self._left[next(iter(self._left))]
        topics = itertools.islice(group.subscriptions, limits.GROUP_LEFT_TOPICS_MAX)
        if group.message_model != BROADCASTING:
            self._left[group_name] = tuple(topics)

    def _leave_producers(self, group_name: str, connection_id: int) -> None:
        members = self._producers.get(group_name, {})
        members.pop(connection_id, None)
        if not members:
            self._producers.pop(group_name, None)


def _memory_bytes(subscription: SubscriptionData) -> int:
    """Roughly the memory of a subscription."""
    tags = len(subscription.tags_set) + len(subscription.code_set)
    texts = (subscription.topic, subscription.sub_string, *subscription.tags_set)
    return limits.SUBSCRIPTION_BYTES + limits.TAG_BYTES * tags + sum(map(len, texts))


def _check_bounds(groups: _Groups, heartbeat: HeartbeatData) -> None:
    named = [each.group_name for each in heartbeat.producer_data_set]
    producers = len(groups.producers.union(named))
    named = [each.group_name for each in heartbeat.consumer_data_set]
    total = producers + len(groups.consumers.union(named))
    if total > limits.GROUPS_PER_CLIENT_MAX:
        raise system_error(
            f"with this heartbeat the client names {total} groups; at most "
            f"{limits.GROUPS_PER_CLIENT_MAX} are taken over one connection"
        )
    for consumer in heartbeat.consumer_data_set:
        if len(consumer.subscription_data_set) > limits.SUBSCRIPTIONS_PER_GROUP_MAX:
            raise system_error(
                f"the group {consumer.group_name!r} subscribes to "
                f"{len(consumer.subscription_data_set)} topics; at most "
                f"{limits.SUBSCRIPTIONS_PER_GROUP_MAX} are taken"
            )
