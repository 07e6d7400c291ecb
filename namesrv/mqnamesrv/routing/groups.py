"""Broker groups and their members as brokers register them, and which registrations are refused.
Pure. The rules are those of `routes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger.errors import DledgerError
from dledger.limits import NUMBER_MAX, TERM_JUMP_MAX
from dledger.remoting.bodies import BrokerData, DataVersion, TopicConfig
from dledger.remoting.names import PERM_READ_WRITE
from mqnamesrv import limits

LEADER_ID = 0


class RegistrationRefused(DledgerError):
    """The broker may not register like that; nothing was changed. The message says why."""


class NotWhole(RegistrationRefused):
    """The broker lists changes of a list that this name server does not hold: it lists all next."""


class UnknownBroker(DledgerError):
    """A heartbeat of a broker that is not registered: it has to register again."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of a broker (code 103)."""

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
    #: The group's permissions; its topics have no others.
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


class Departure(NamedTuple):
    """A member that was removed."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    connection_id: int


def check_place(group: Group, old: Member | None, new: Registration) -> None:
    """Refuse a member of another cluster, or one that claims an id against a newer leader."""
    if group.proven and not new.proven:
        raise RegistrationRefused(unproven(new.broker_name, new.address))
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
            raise RegistrationRefused(stale(group, new.address, new.term))
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


def check_bounds(
    groups: Mapping[str, Group], group: Group, old: Member | None, new: Registration
) -> None:
    """Refuse groups and members beyond their bounds, and a stock broker whose first registration is
    not a full one."""
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


def unproven(broker_name: str, address: str) -> str:
    """Why a sender without a proof may not speak for a group."""
    return (
        f"{broker_name} has members that have proven that they know the cluster's secret, and "
        f"{address} has not"
    )


def stale(group: Group, address: str, term: int | None) -> str:
    """Why a leader of an older term, or of none, may not."""
    leader = group.leader
    claim = f"term {term}" if term is not None else "no term"
    known = f"{leader.address} leads" if leader is not None else "a leader was seen"
    return f"{address} comes with {claim} for {group.broker_name}, but {known} in term {group.term}"


def broker_data(group: Group) -> BrokerData:
    """A group as routes have it."""
    addresses = {m.broker_id: m.address for m in group.members.values()}
    return BrokerData(
        cluster=group.cluster,
        broker_name=group.broker_name,
        broker_addrs=dict(sorted(addresses.items())),
    )
