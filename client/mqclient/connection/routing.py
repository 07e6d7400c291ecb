"""The queues of topics and the leaders of broker groups: a table, without I/O. Pure.

Two sources feed it. Name servers give topic routes: which broker names hold how many queues, and
the addresses of each group's members, the leader under id 0. Members say whether they lead, and in
which term. A member's own answer outranks a route, and a higher term outranks a lower one, since a
route may be seconds old, and an old leader that was paused still believes that it leads.

The rules for turning a route into queues are RocketMQ's (MQClientInstance.topicRouteData2...):
sorted by broker name; writable queues 0..writeQueueNums-1, readable ones 0..readQueueNums-1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dledger.errors import BadInput
from dledger.remoting.allocation import queues_of
from dledger.remoting.bodies import TopicRouteData
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import PERM_READ, PERM_WRITE
from mqclient import limits
from mqclient.connection.addresses import are_addresses

LEADER_ID = 0


@dataclass(slots=True)
class Group:
    """What is known of one broker group. `term` is that of `leader`, 0 if only a route told it."""

    members: tuple[str, ...] = ()
    leader: str | None = None
    term: int = 0
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """A topic's queues as one route gave them, in RocketMQ's order."""

    topic: str
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    broker_names: tuple[str, ...]


def route_from(topic: str, data: TopicRouteData) -> Route:
    """The queues of `topic` in `data`. Also used with TBW102's data for a topic yet to be made."""
    known = {broker.broker_name for broker in data.broker_datas}
    return Route(
        topic=topic,
        writable=queues_of(topic, data, PERM_WRITE),
        readable=queues_of(topic, data, PERM_READ),
        broker_names=tuple(sorted(known & {entry.broker_name for entry in data.queue_datas})),
    )


@dataclass(slots=True)
class RouteTable:
    """Routes by topic and broker groups by name. Addresses are "host:port"."""

    _routes: dict[str, Route] = field(default_factory=dict)
    _groups: dict[str, Group] = field(default_factory=dict)

    def update(self, topic: str, data: TopicRouteData) -> bool:
        """Add a route from a name server. Returns whether the queues of `topic` changed."""
        self.learn_members(data)
        route = route_from(topic, data)
        changed = self._routes.get(topic) != route
        self._routes[topic] = route
        return changed

    def learn_members(self, data: TopicRouteData) -> None:
        """Add the addresses of a route. Its leader counts until a member says that it leads."""
        for broker in data.broker_datas:
            group = self._group(broker.broker_name)
            group.cluster = broker.cluster
            told = (address for _, address in sorted(broker.broker_addrs.items()))
            named = tuple(are_addresses(told))
            group.members = named + tuple(a for a in group.members if a not in named)
            group.members = group.members[: limits.MEMBERS_MAX]
            leader = broker.broker_addrs.get(LEADER_ID)
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

    def cluster(self, broker_name: str) -> str:
        """The cluster that a group belongs to, "" if no route told it."""
        group = self._groups.get(broker_name)
        return "" if group is None else group.cluster

    def members(self, broker_name: str) -> tuple[str, ...]:
        """Every known address of this group; the last known leader first, if any."""
        group = self._groups.get(broker_name)
        return () if group is None else group.members

    def add_members(self, broker_name: str, addresses: Iterable[str]) -> None:
        """Add members that one of them named (GROUP_INFO)."""
        group = self._group(broker_name)
        new = (a for a in are_addresses(addresses) if a not in group.members)
        group.members = (*group.members, *dict.fromkeys(new))[: limits.MEMBERS_MAX]

    def learn_leader(self, broker_name: str, address: str, term: int) -> bool:
        """A member says that it leads in `term`. Returns whether the table takes it for the leader.

        A claim of a lower term than the one known is refused.
        """
        group = self._group(broker_name)
        if term < group.term:
            return False
        group.leader, group.term = address, term
        self.add_members(broker_name, (address,))
        return True

    def redirect(self, broker_name: str, refused_by: str, leader: str | None) -> None:
        """A member refused a request since it does not lead, naming the leader if it knows one.

        The name is only a hint: it is followed unless it is the refusing member itself.
        """
        group = self._group(broker_name)
        if leader is not None:
            self.add_members(broker_name, (leader,))
        if group.leader == refused_by:
            group.leader = leader if leader != refused_by and leader in group.members else None

    def suspect(self, broker_name: str, address: str) -> None:
        """`address` broke the connection or fell silent: no longer take it for the leader."""
        group = self._groups.get(broker_name)
        if group is not None and group.leader == address:
            group.leader = None
