"""The queues of topics and the leaders of broker groups: a table, without I/O. Pure.

Two sources feed it. Name servers give topic routes: which broker names hold how many queues, and
the addresses of each group's members, the leader under id 0. Members say whether they lead, and in
which term. A member's own answer outranks a route, and a higher term outranks a lower one, since a
route may be seconds old, and an old leader that was paused still believes that it leads.

Name servers alone say which addresses are members: there a broker proves that it knows the
cluster's secret, or it is not let in. What members say of each other adds none, and a leader is
followed only if it is one of them: an address may be in a group's configuration, as a learner, that
nobody has ever heard of. A term that no elections explain is not believed either, as among members
(`dledger/raft/claims.py`): a client that has heard of it would believe no true leader any more.

The rules for turning a route into queues are RocketMQ's (MQClientInstance.topicRouteData2...):
sorted by broker name; writable queues 0..writeQueueNums-1, readable ones 0..readQueueNums-1. With
an order config, such as `broker-a:4;broker-b:4`, that alone says what is written to, in its order.

A key's queue follows from all queues that a topic has, so a broker group that is away must not
change them. In RocketMQ it does: a route has the groups that are there. Our name servers tell of
those that are away, too; and of one that a name server says nothing of, since it has begun anew or
is RocketMQ's, what was known before still counts. A group loses its place only by what an operator
does: queues, the topic, or the permission to write to the whole group were taken from it. Where
only the topic is not writable its keys are refused: they would move to and fro while a topic is
made read-only, or writable again, on one group after the other.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from dledger.addresses import are_addresses
from dledger.errors import BadInput
from dledger.limits import NUMBER_MAX, TERM_JUMP_MAX
from dledger.remoting.allocation import queues_of
from dledger.remoting.bodies import QueueData, TopicRouteData
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import PERM_READ, PERM_WRITE
from dledger.remoting.numbers import is_number
from mqclient import limits

LEADER_ID = 0
_COUNT_DIGITS = 9


@dataclass(slots=True)
class Group:
    """The facts known of one broker group. `term` is that of `leader`, 0 if only a route says
    it."""

    members: tuple[str, ...] = ()
    leader: str | None = None
    term: int = 0
    cluster: str = ""
    master: str | None = None
    """The address under id 0 in the last route. Of a stock broker nothing else says who leads."""
    stock_version: int = 0
    """RocketMQ's version (MQVersion) of a group of its brokers; 0 of ours."""


@dataclass(frozen=True, slots=True)
class Route:
    """A topic's queues as routes gave them, in RocketMQ's order.

    The groups that are `promised` may be written to, and will have the topic by that: the route was
    that of TBW102, for a topic yet to be made.
    """

    topic: str
    every: tuple[MessageQueue, ...]
    """All that keys are spread over."""
    writable: tuple[MessageQueue, ...]
    """Queues that keys are spread over, if a group takes messages; otherwise none."""
    readable: tuple[MessageQueue, ...]
    broker_names: tuple[str, ...]
    closed: frozenset[str] = frozenset()
    """The groups that take no messages of the topic now."""
    promised: frozenset[str] = frozenset()


def route_from(
    topic: str, data: TopicRouteData, known: Route | None = None, *, is_promise: bool = False
) -> Route:
    """The queues of `topic` after `data`, which may be TBW102's; before it was as `known`.

    Raises BadInput for an order config that says nothing.
    """
    there = {broker.broker_name for broker in data.broker_datas}
    rows = [row for row in data.queue_datas if row.broker_name in there]
    named = {row.broker_name for row in rows}
    promised = frozenset(named) if is_promise else frozenset[str]()
    closed = frozenset(row.broker_name for row in rows if not row.perm & PERM_WRITE)
    if data.order_topic_conf:
        every = _ordered(topic, data.order_topic_conf)
    else:
        if known is not None and not is_promise:
            promised = known.promised - named
        every = _every_queue(topic, data, rows, () if known is None else known.every, promised)
    return Route(
        topic=topic,
        every=every,
        writable=every if any(queue.broker_name not in closed for queue in every) else (),
        readable=queues_of(topic, data, PERM_READ),
        broker_names=tuple(sorted(named)),
        closed=closed,
        promised=promised,
    )


def _every_queue(
    topic: str,
    data: TopicRouteData,
    rows: Sequence[QueueData],
    known: Sequence[MessageQueue],
    promised: Set[str],
) -> tuple[MessageQueue, ...]:
    """The queues of the groups that are there (`rows`), of those that are away, and the `known`
    ones of those that nothing is said of."""
    there = {row.broker_name for row in rows}
    rows = [*rows, *(row for row in data.absent_queue_datas or () if row.broker_name not in there)]
    named, without = {row.broker_name for row in rows}, data.without or ()
    queues = [
        MessageQueue(topic, row.broker_name, queue_id)
        for row in rows
        if row.perm & PERM_WRITE
        or (data.withdrawn is not None and row.broker_name not in data.withdrawn)
        for queue_id in range(row.write_queue_nums)
    ]
    queues += [
        queue
        for queue in known
        if queue.broker_name not in named
        and (queue.broker_name not in without or queue.broker_name in promised)
    ]
    return tuple(sorted(queues, key=_place))


def _place(queue: MessageQueue) -> tuple[str, int]:
    return queue.broker_name, queue.queue_id


def _ordered(topic: str, config: str) -> tuple[MessageQueue, ...]:
    """The queues of an order config. Raises BadInput."""
    queues: list[MessageQueue] = []
    for part in filter(None, config.split(";")):
        name, _, count = part.rpartition(":")
        known = name and is_number(count, _COUNT_DIGITS)
        if not known or len(queues) + int(count) > limits.QUEUES_PER_TOPIC_MAX:
            raise BadInput(
                f"the order config of topic {topic!r} has {part[:80]!r}; it must be "
                f"BROKER:QUEUES;BROKER:QUEUES, with {limits.QUEUES_PER_TOPIC_MAX} queues at most "
                "(`mqadmin updateTopic --order`)"
            )
        queues += [MessageQueue(topic, name, queue_id) for queue_id in range(int(count))]
    return tuple(queues)


@dataclass(slots=True)
class RouteTable:
    """Routes by topic and broker groups by name. Addresses are "host:port"."""

    _routes: dict[str, Route] = field(default_factory=dict)
    _groups: dict[str, Group] = field(default_factory=dict)

    def update(self, topic: str, data: TopicRouteData, *, is_promise: bool = False) -> bool:
        """Add a route from a name server, maybe that of TBW102 for a topic yet to be made.

        Returns whether the queues of `topic` changed. Raises BadInput for what is no route.
        """
        self.learn_members(data)
        known = self._routes.get(topic)
        route = route_from(topic, data, known, is_promise=is_promise)
        changed = known != route
        self._routes[topic] = route
        return changed

    def learn_members(self, data: TopicRouteData) -> None:
        """Add the addresses of a route. Its leader counts until a member says that it leads."""
        for broker in data.broker_datas:
            group = self._group(broker.broker_name)
            group.cluster = broker.cluster
            addresses = (address for _, address in sorted(broker.broker_addrs.items()))
            named = tuple(are_addresses(addresses))
            group.members = named + tuple(a for a in group.members if a not in named)
            group.members = group.members[: limits.MEMBERS_MAX]
            leader = broker.broker_addrs.get(LEADER_ID)
            group.master = leader if leader in named else None
            if group.term == 0 and group.leader is None and leader in named:
                group.leader = leader

    def _group(self, broker_name: str) -> Group:
        """A broker group, known or new. Raises BadInput beyond the bound."""
        group = self._groups.get(broker_name)
        if group is None:
            if len(self._groups) >= limits.GROUPS_MAX:
                raise BadInput(f"routes tell of more than {limits.GROUPS_MAX} broker groups")
            group = self._groups[broker_name] = Group()
        return group

    def forget(self, topic: str) -> bool:
        """Drop a topic that the name servers no longer know. Returns whether it was there."""
        return self._routes.pop(topic, None) is not None

    def route(self, topic: str) -> Route | None:
        """The route of a topic, or None if none was taken in."""
        return self._routes.get(topic)

    def topics(self) -> tuple[str, ...]:
        """The topics with a route."""
        return tuple(self._routes)

    def broker_names(self) -> tuple[str, ...]:
        """The broker groups seen in any route."""
        return tuple(self._groups)

    def group_of(self, address: str) -> str:
        """The broker group that an address belongs to, "" if it is unknown."""
        groups = self._groups.items()
        return next((name for name, group in groups if address in group.members), "")

    def leader(self, broker_name: str) -> str | None:
        """Where to send to for this group, or None: then its members must be asked."""
        group = self._groups.get(broker_name)
        return None if group is None else group.leader

    def master(self, broker_name: str) -> str | None:
        """The member that the last route called the leader, if any."""
        group = self._groups.get(broker_name)
        return None if group is None else group.master

    def stock_version(self, broker_name: str) -> int:
        """RocketMQ's version of a group's brokers; 0 if they are ours."""
        group = self._groups.get(broker_name)
        return 0 if group is None else group.stock_version

    def learn_version(self, broker_name: str, stock_version: int) -> None:
        """Note whose brokers a group has."""
        self._group(broker_name).stock_version = stock_version

    def cluster(self, broker_name: str) -> str:
        """The cluster that a group belongs to, "" if no route says it."""
        group = self._groups.get(broker_name)
        return "" if group is None else group.cluster

    def members(self, broker_name: str) -> tuple[str, ...]:
        """Every known address of this group; the last known leader first, if any."""
        group = self._groups.get(broker_name)
        return () if group is None else group.members

    def learn_leader(self, broker_name: str, address: str, term: int) -> bool:
        """A member says that it leads in `term`. Returns whether the table takes it for the leader.

        A claim of a lower term than the one known is refused, one that is too far ahead of it, and
        one by an address that no route has named as a member.
        """
        group = self._group(broker_name)
        ahead = TERM_JUMP_MAX if group.term else NUMBER_MAX
        if address not in group.members or not group.term <= term <= group.term + ahead:
            return False
        group.leader, group.term = address, term
        return True

    def redirect(self, broker_name: str, refused_by: str, leader: str | None) -> None:
        """A member refused a request since it does not lead, naming the leader if it knows one.

        The name is only a hint: it is followed if it is another member's.
        """
        group = self._group(broker_name)
        if group.leader == refused_by:
            group.leader = leader if leader != refused_by and leader in group.members else None

    def suspect(self, broker_name: str, address: str) -> None:
        """`address` broke the connection or fell silent: no longer take it for the leader."""
        group = self._groups.get(broker_name)
        if group is not None and group.leader == address:
            group.leader = None
