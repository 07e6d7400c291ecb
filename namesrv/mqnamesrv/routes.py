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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dledger.errors import DledgerError
from dledger.limits import NUMBER_MAX, TERM_JUMP_MAX
from dledger.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    TopicConfig,
    TopicRouteData,
)
from dledger.remoting.names import PERM_READ_WRITE
from mqnamesrv import limits
from mqnamesrv.topics import TopicTable

LEADER_ID = 0


class RegistrationRefused(DledgerError):
    """The broker may not register like that; nothing was changed. The message says why."""


class NotWhole(RegistrationRefused):
    """The broker lists changes of a list that this name server does not hold: it lists all next."""


class UnknownBroker(DledgerError):
    """A heartbeat of a broker that is not registered: it has to register again."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker says about itself (code 103)."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    #: Raft term of the sender; None from brokers that have no terms.
    term: int | None = None
    expiry_s: float = limits.BROKER_EXPIRY_S
    data_version: DataVersion | None = None
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    #: Whether it was signed with the cluster's secret.
    proven: bool = False
    #: What the group may be used for; its topics have no other permissions.
    permission: int = PERM_READ_WRITE
    #: `topics` are those that changed since the version with this counter; None if they are all.
    since: int | None = None
    #: The names of topics that were not taken, since their numbers can't be.
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class Member:
    """A broker process that is registered."""

    broker_id: int
    address: str
    ha_address: str
    connection_id: int
    seen_s: float
    expiry_s: float
    data_version: DataVersion | None
    proven: bool = False


@dataclass(slots=True)
class Group:
    """The members of one broker name, by address."""

    cluster: str
    broker_name: str
    members: dict[str, Member] = field(default_factory=dict)
    #: The newest term of a leader, None until one registered with a term.
    term: int | None = None
    #: The member that showed it, and until when it is remembered; None while that member is
    #: registered.
    term_from: str = ""
    term_until_s: float | None = None
    empty_since_s: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether a member has proven that it belongs to the cluster."""
        return any(member.proven for member in self.members.values())

    def forget_term(self, now_s: float) -> None:
        """Forget the term a while after the member that showed it has gone."""
        if self.term is None or self.term_from in self.members:
            self.term_until_s = None
        elif self.term_until_s is None:
            self.term_until_s = now_s + limits.TERM_MEMORY_S
        elif now_s > self.term_until_s:
            self.term, self.term_until_s = None, None

    @property
    def leader(self) -> Member | None:
        """The member with id 0."""
        return self.holder(LEADER_ID)

    def holder(self, broker_id: int) -> Member | None:
        """The member with this id."""
        return next((m for m in self.members.values() if m.broker_id == broker_id), None)


@dataclass(frozen=True, slots=True)
class Registered:
    """The effect of an accepted registration."""

    leader_address: str | None
    leader_ha_address: str | None
    #: Whether the member is new or has another id than before; then it is logged.
    changed: bool
    #: The address that lost its id to this registration.
    displaced: str | None


@dataclass(frozen=True, slots=True)
class Departure:
    """A member that was removed."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    connection_id: int


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
            self.topics.remove_broker(new.broker_name)
            group = Group(new.cluster, new.broker_name)
        old = group.members.get(new.address)
        _check_place(group, old, new)
        _check_bounds(self.groups, group, old, new)
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
        names = 0 if new.proven else self.topics.names_with(new.topics)
        if names > max(limits.TOPICS_MAX, self.topics.names_with(())):
            raise RegistrationRefused(
                f"with {new.broker_name} there would be {names} topics; at most "
                f"{limits.TOPICS_MAX} are taken of brokers that prove nothing"
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
        group = self.groups.get(broker_name)
        member = group.members.get(address) if group is not None else None
        if group is None or member is None or group.cluster != cluster:
            raise UnknownBroker(f"{address} is not registered as a member of {broker_name}")
        if member.proven and not proven:
            raise RegistrationRefused(_unproven(broker_name, address))
        if member.broker_id == LEADER_ID and term is not None and term < (group.term or 0):
            raise RegistrationRefused(_stale(group, address, term))
        member.seen_s = now_s

    def data_version(self, broker_name: str, address: str) -> DataVersion | None:
        """The version of the topics that a member registered last."""
        group = self.groups.get(broker_name)
        member = group.members.get(address) if group is not None else None
        return member.data_version if member is not None else None

    def unregister(
        self,
        cluster: str,
        broker_name: str,
        address: str,
        now_s: float,
        *,
        proven: bool = False,
    ) -> list[Departure]:
        """Unregister a member. If it is not registered that is no error. Raises RegistrationRefused
        if the member is proven and the sender is not."""
        group = self.groups.get(broker_name)
        member = group.members.get(address) if group is not None else None
        if member is not None and member.proven and not proven:
            raise RegistrationRefused(_unproven(broker_name, address))
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
            # This process was held up: heartbeats of that time may still be unread.
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
            gone = [m for m in group.members.values() if doomed(group, m)]
            for m in gone:
                del group.members[m.address]
                departures.append(
                    Departure(
                        group.cluster, group.broker_name, m.broker_id, m.address, m.connection_id
                    )
                )
            if gone and not group.members:
                group.empty_since_s = now_s
                self.topics.leave(group.broker_name, group.cluster)
        return departures

    # The questions of clients and operators.

    def route_of(self, topic: str) -> TopicRouteData | None:
        """The groups and queues of a topic; None if no registered group serves it."""
        queues = self.topics.queues(topic)
        brokers = [_broker_data(self.groups[queue.broker_name]) for queue in queues]
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
        return _broker_data(group).broker_addrs

    def cluster_info(self, *, with_absent: bool = False) -> ClusterInfo:
        """Every group by name, and the names by cluster."""
        groups = [group for _, group in sorted(self.groups.items()) if group.members]
        clusters: dict[str, list[str]] = {}
        for group in groups:
            clusters.setdefault(group.cluster, []).append(group.broker_name)
        return ClusterInfo(
            broker_addr_table={group.broker_name: _broker_data(group) for group in groups},
            cluster_addr_table=clusters,
            absent_brokers=self.topics.missed() if with_absent else None,
        )

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics served by any group of a cluster, sorted."""
        return sorted(self.topics.topics_of(self.broker_names(cluster)))

    def broker_names(self, cluster: str) -> set[str]:
        """The groups of a cluster that have members."""
        groups = self.groups.items()
        return {name for name, group in groups if group.cluster == cluster and group.members}


def _check_place(group: Group, old: Member | None, new: Registration) -> None:
    """Refuse a member of another cluster, or one that claims an id against a newer leader."""
    if group.proven and not new.proven:
        raise RegistrationRefused(_unproven(new.broker_name, new.address))
    if group.cluster != new.cluster:
        raise RegistrationRefused(
            f"broker name {new.broker_name} belongs to cluster {group.cluster}, not {new.cluster}: "
            "set another brokerName, or the same brokerClusterName on all its members"
        )
    if new.term is not None:
        _check_jump(group, new.term)
    touches_leadership = new.broker_id == LEADER_ID or (
        old is not None and old.broker_id == LEADER_ID
    )
    holder = group.holder(new.broker_id)
    taken_from = holder if holder is not None and holder.address != new.address else None
    if group.term is not None and touches_leadership:
        if new.term is None or new.term < group.term:
            raise RegistrationRefused(_stale(group, new.address, new.term))
        if new.term == group.term and new.broker_id == LEADER_ID and taken_from is not None:
            raise RegistrationRefused(
                f"{new.address} claims to lead {group.broker_name} in term {new.term}, but "
                f"{taken_from.address} does: two groups use one broker name"
            )
    if group.term is None and taken_from is not None and _is_newer(taken_from, new):
        raise RegistrationRefused(
            f"{taken_from.address} holds id {new.broker_id} of {group.broker_name} "
            "with a newer state version"
        )


def _check_jump(group: Group, term: int) -> None:
    """Refuse a number that is no term, or that no elections explain (see
    `dledger/raft/claims.py`)."""
    ahead = TERM_JUMP_MAX if group.term is not None else NUMBER_MAX
    most = min((group.term or 0) + ahead, NUMBER_MAX)
    if not 0 <= term <= most:
        raise RegistrationRefused(
            f"term {term} of {group.broker_name} is not within 0 to {most}: there can't have been "
            "so many elections"
        )


def _check_bounds(
    groups: Mapping[str, Group], group: Group, old: Member | None, new: Registration
) -> None:
    known = new.broker_name in groups or new.proven
    if not known and len(groups) >= limits.BROKER_GROUPS_MAX:
        raise RegistrationRefused(
            f"this name server holds {limits.BROKER_GROUPS_MAX} groups already"
        )
    if old is None and len(group.members) >= limits.MEMBERS_PER_GROUP_MAX:
        raise RegistrationRefused(
            f"{new.broker_name} has {limits.MEMBERS_PER_GROUP_MAX} members already"
        )
    if old is None and new.term is None and len(new.topics) == 1:
        # RocketMQ's incremental registration; its full ones always list several system topics.
        raise RegistrationRefused(
            f"{new.address} lists a single topic before its first full registration"
        )


def _is_newer(holder: Member, new: Registration) -> bool:
    ours, theirs = holder.data_version, new.data_version
    return ours is not None and theirs is not None and ours.state_version > theirs.state_version


def _unproven(broker_name: str, address: str) -> str:
    return (
        f"{broker_name} has members that have proven that they know the cluster's secret, and "
        f"{address} has not"
    )


def _stale(group: Group, address: str, term: int | None) -> str:
    leader = group.leader
    claim = f"term {term}" if term is not None else "no term"
    known = f"{leader.address} leads" if leader is not None else "a leader was seen"
    return f"{address} comes with {claim} for {group.broker_name}, but {known} in term {group.term}"


def _broker_data(group: Group) -> BrokerData:
    addresses = {m.broker_id: m.address for m in group.members.values()}
    return BrokerData(
        cluster=group.cluster,
        broker_name=group.broker_name,
        broker_addrs=dict(sorted(addresses.items())),
    )
