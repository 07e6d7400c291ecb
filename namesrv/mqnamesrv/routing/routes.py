"""The route table: broker groups, their members, their leaders, and their topics. Pure.

Theory of operation
-------------------
A *group* is all members of one broker name. The member with id 0 is its leader: the only one that
takes writes, and the only one whose topic list counts. A member is here because it registered; it
leaves by unregistering, by the end of the connection that it registered on, or by silence.

Rules that keep the table true while leaders change:

1. An address has one id and an id one address. A follower that registers as 0 leaves its old id;
   the member that had id 0 is dropped until it registers again.
2. Registrations carry the Raft term. To take, keep or give up id 0 a member needs a term that is
   not older than the newest one seen, so a leader that was paused can't take its place back. A term
   has one leader, so a second address that claims the same term is refused too.
3. The newest term is remembered for a while after the group's last member has gone, unless the
   members unregistered. It is forgotten `TERM_MEMORY_S` after the leader that showed it has gone,
   even if other members stay.
4. A group with a proven member takes no unproven ones, and the first proven member removes the
   unproven ones of its group's name.
5. Brokers without terms (RocketMQ's own) follow its rule: the last one to register wins unless
   its state version is older. They can't lead a group that has shown a term.

Pure: `now_s` is any monotonic clock in seconds, connections are numbers. Sources of the rules:
RocketMQ's RouteInfoManager; terms are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dledger.remoting.bodies import ClusterInfo, DataVersion, TopicRouteData
from mqnamesrv import limits
from mqnamesrv.routing.groups import (
    LEADER_ID,
    Departure,
    Group,
    Member,
    NotWhole,
    Registered,
    Registration,
    RegistrationRefused,
    UnknownBroker,
    broker_data,
    check_bounds,
    check_place,
    stale,
    unproven,
)
from mqnamesrv.routing.topics import Steps, TopicTable


class RouteTable:
    """All groups and topics that this name server knows."""

    def __init__(self) -> None:
        self.topics = TopicTable()
        self.groups: dict[str, Group] = {}
        #: The names of the groups that a connection has registered members of.
        self._over: dict[int, set[str]] = {}
        self._scanned_s: float | None = None

    # Brokers come, stay and go.

    def register(self, new: Registration, connection_id: int, now_s: float) -> Registered:
        """Add or refresh a member, and its topics if it leads. RegistrationRefused otherwise."""
        group = self.groups.get(new.broker_name)
        if group is None or (not group.members and group.cluster != new.cluster):
            group = Group(new.cluster, new.broker_name)
        elif new.proven and group.members and not group.proven:
            self.topics.put(new.broker_name, {}, is_whole_table=True)
            group = Group(new.cluster, new.broker_name)
        old = group.members.get(new.address)
        check_place(group, old, new)
        check_bounds(self.groups, group, old, new)
        self._check_topics(group, old, new)

        displaced = group.holder(new.broker_id)
        if displaced is not None and displaced.address != new.address:
            del group.members[displaced.address]
        else:
            displaced = None
        group.members[new.address] = Member(
            broker_id=new.broker_id,
            address=new.address,
            ha_address=new.ha_address,
            connection_id=connection_id,
            seen_s=now_s,
            expiry_s=new.expiry_s,
            data_version=new.data_version,
            proven=new.proven,
        )
        self.groups[new.broker_name] = group
        self._over.setdefault(connection_id, set()).add(new.broker_name)
        if new.broker_id == LEADER_ID:
            self._lead(group, old, new)
        leader = group.leader
        return Registered(
            leader_address=leader.address if leader else None,
            leader_ha_address=leader.ha_address if leader else None,
            changed=old is None or old.broker_id != new.broker_id,
            displaced=displaced.address if displaced else None,
        )

    def _lead(self, group: Group, old: Member | None, new: Registration) -> None:
        """Take over the leader's term and, if they may have changed, its topics."""
        led_before = old is not None and old.broker_id == LEADER_ID and group.term == new.term
        group.term, group.term_from, group.term_until_s = new.term, new.address, None
        self.topics.permit(group.broker_name, new.permission)
        known = old.data_version if old is not None and led_before else None
        if known is None or known != new.data_version:
            # RocketMQ's brokers don't say whether they list all topics, or the one that changed.
            is_whole = new.term is not None and new.since is None
            self.topics.put(group.broker_name, new.topics, is_whole_table=is_whole)
        else:
            self.topics.put_missing(group.broker_name, new.topics)

    def check_names(self, new: Registration) -> Steps[None]:
        """Refuse names beyond the bound on those of all groups. To be called before a registration,
        in steps, since all names have to be counted."""
        if (
            new.proven
            or new.broker_id != LEADER_ID
            or self.topics.rows + len(new.topics) <= limits.TOPICS_MAX
        ):
            return
        known = yield from self.topics.union()
        more = len(new.topics.keys() - known)
        if more and len(known) + more > limits.TOPICS_MAX:
            raise RegistrationRefused(
                f"with {new.broker_name} there would be {len(known) + more} topics; at most "
                f"{limits.TOPICS_MAX} are taken of brokers that prove nothing"
            )

    def _check_topics(self, group: Group, old: Member | None, new: Registration) -> None:
        """Refuse too many topics, and changes of a list that this name server does not hold."""
        count = len(new.topics)
        if new.since is not None:
            known = old.data_version if old is not None else None
            if (
                old is None
                or known is None
                or known.counter != new.since
                or old.broker_id != new.broker_id
                or (new.broker_id == LEADER_ID and group.term != new.term)
            ):
                raise NotWhole(
                    f"{new.address} lists the topics that changed since its version {new.since}; "
                    f"known here is {known.counter if known is not None else 'none'}: "
                    "register with all of them"
                )
            count = self.topics.count_with(group.broker_name, new.topics)
        if count > limits.TOPICS_PER_GROUP_MAX:
            raise RegistrationRefused(
                f"{new.broker_name} lists {count} topics; "
                f"at most {limits.TOPICS_PER_GROUP_MAX} are taken"
            )
        if not new.proven and new.broker_id == LEADER_ID:
            served = self.topics.count(group.broker_name)
            more = self.topics.count_with(group.broker_name, new.topics) - served
            if more and self.topics.rows + more > limits.TOPIC_ROWS_MAX:
                raise RegistrationRefused(
                    f"this name server holds {self.topics.rows} topics of all groups, and "
                    f"{new.broker_name} lists {more} more; at most {limits.TOPIC_ROWS_MAX} are "
                    "taken, but of brokers that prove that they know the cluster's secret"
                )

    def heartbeat(
        self,
        cluster: str,
        broker_name: str,
        address: str,
        term: int | None,
        now_s: float,
        *,
        proven: bool = False,
    ) -> None:
        """Note that a member is alive.

        Raises UnknownBroker if it is not registered; RegistrationRefused if it leads with a term
        that is over, or if the member is proven and the sender is not.
        """
        group, member = self._member(broker_name, address)
        if group is None or member is None or group.cluster != cluster:
            raise UnknownBroker(f"{address} is not registered as a member of {broker_name}")
        if member.proven and not proven:
            raise RegistrationRefused(unproven(broker_name, address))
        if member.broker_id == LEADER_ID and term is not None and term < (group.term or 0):
            raise RegistrationRefused(stale(group, address, term))
        member.seen_s = now_s

    def _member(self, broker_name: str, address: str) -> tuple[Group | None, Member | None]:
        """A group, and its member at an address."""
        group = self.groups.get(broker_name)
        return group, None if group is None else group.members.get(address)

    def data_version(self, broker_name: str, address: str) -> DataVersion | None:
        """The version of the topics that a member registered last."""
        _, member = self._member(broker_name, address)
        return member.data_version if member is not None else None

    def unregister(
        self, cluster: str, broker_name: str, address: str, now_s: float, *, proven: bool = False
    ) -> list[Departure]:
        """Remove a member from its group. If it is not registered that is not an error. Raises
        RegistrationRefused if the member is proven and the sender is not."""
        _, member = self._member(broker_name, address)
        if member is not None and member.proven and not proven:
            raise RegistrationRefused(unproven(broker_name, address))
        departures = self._remove(
            lambda group, member: (group.cluster, member.address) == (cluster, address),
            now_s,
            [broker_name],
        )
        if departures and not self.groups[broker_name].members:
            del self.groups[broker_name]
        return departures

    def connection_lost(self, connection_id: int, now_s: float) -> list[Departure]:
        """Remove the members whose last registration came over this connection."""
        names = self._over.pop(connection_id, ())
        return self._remove(lambda _, member: member.connection_id == connection_id, now_s, names)

    def expire(self, now_s: float) -> list[Departure]:
        """Remove silent members and forget old terms. To be called each SCAN_INTERVAL_S."""
        stall_s = now_s - (now_s if self._scanned_s is None else self._scanned_s)
        self._scanned_s = now_s
        if stall_s > 1.5 * limits.SCAN_INTERVAL_S:
            # The process was held up: heartbeats of that time may still be unread.
            for group in self.groups.values():
                for member in group.members.values():
                    member.seen_s = min(now_s, member.seen_s + stall_s)
        departures = self._remove(lambda _, m: now_s - m.seen_s > m.expiry_s, now_s, self.groups)
        for group in list(self.groups.values()):
            group.forget_term(now_s)
            if not group.members and now_s - group.empty_since_s > limits.TERM_MEMORY_S:
                del self.groups[group.broker_name]
        return departures

    def _remove(
        self, doomed: Callable[[Group, Member], bool], now_s: float, names: Iterable[str]
    ) -> list[Departure]:
        """Remove such members of the groups with these names."""
        departures = []
        for group in filter(None, map(self.groups.get, names)):
            name, cluster, proven = group.broker_name, group.cluster, False
            gone = [m for m in group.members.values() if doomed(group, m)]
            for m in gone:
                del group.members[m.address]
                departures.append(Departure(cluster, name, m.broker_id, m.address, m.connection_id))
                proven = proven or m.proven
            if gone and not group.members:
                group.empty_since_s = now_s
                self.topics.leave(name, cluster, proven=proven)
        return departures

    # The questions of clients and operators.

    def route_of(self, topic: str) -> TopicRouteData | None:
        """The groups and queues of a topic; None if no registered group serves it."""
        queues = self.topics.queues(topic)
        brokers = [broker_data(self.groups[queue.broker_name]) for queue in queues]
        return TopicRouteData(broker_datas=brokers, queue_datas=queues) if queues else None

    def connections_of(self, broker_name: str) -> list[int]:
        """The connections of a group's members with terms: RocketMQ's brokers are told nothing."""
        group = self.groups.get(broker_name)
        if group is None or group.term is None:
            return []
        return [member.connection_id for member in group.members.values()]

    def knows(self, broker_name: str) -> bool:
        """Whether a group is here, or was and is remembered."""
        return broker_name in self.groups or self.topics.known(broker_name) > 0

    def are_led(self, broker_names: Iterable[str]) -> bool:
        """Whether each of these groups has a leader here."""
        return all(name in self.groups and self.groups[name].leader for name in broker_names)

    def members_of(self, cluster: str, broker_name: str) -> dict[int, str]:
        """The members of a group by their ids; none if it is of another cluster."""
        group = self.groups.get(broker_name)
        if group is None or group.cluster != cluster:
            return {}
        return broker_data(group).broker_addrs

    def cluster_info(self, *, with_absent: bool = False) -> Steps[ClusterInfo]:
        """Every group by name, and the names by cluster."""
        info = ClusterInfo(broker_addr_table={}, cluster_addr_table={})
        for name in sorted(self.groups):
            group = self.groups.get(name)
            if group is not None and group.members:
                info.broker_addr_table[name] = broker_data(group)
                info.cluster_addr_table.setdefault(group.cluster, []).append(name)
            yield
        info.absent_brokers = self.topics.missed() if with_absent else None
        return info

    def clusters(self) -> set[str]:
        """The clusters of all groups that have members."""
        return {group.cluster for group in self.groups.values() if group.members}

    def topics_of_cluster(self, cluster: str) -> Steps[list[str]]:
        """The topics served by any group of a cluster, sorted."""
        return self.topics.names(self.broker_names(cluster))

    def broker_names(self, cluster: str) -> set[str]:
        """The groups of a cluster that have members."""
        groups = self.groups.items()
        return {name for name, group in groups if group.cluster == cluster and group.members}
