"""Answers of a cluster's servers at one time, as values that can be kept in a file. Pure.

What could not be asked is among them, by name: a check that saw nothing wrong has then not seen
all. Times are Unix milliseconds; a server's clock is compared with the one of whoever asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import groupby

import msgspec

from dledger.remoting.headers import GroupInfoResponseHeader
from mqclient.admin.results import ServerHistory


class Unasked(msgspec.Struct, frozen=True):
    """A question that could not be asked, and the reason."""

    what: str
    why: str


class NamesrvFacts(msgspec.Struct, frozen=True):
    """A name server: the members of broker groups that are registered there, by broker id."""

    address: str
    problem: str | None = None
    brokers: Mapping[str, Mapping[int, str]] = {}
    certificate_ends_s: float | None = None


class BrokerFacts(msgspec.Struct, frozen=True):
    """A broker, by the address that clients get. `problem`: why it did not answer."""

    cluster: str
    broker_name: str
    address: str
    problem: str | None = None
    #: The broker group's state by its own words; RocketMQ's brokers have none.
    info: GroupInfoResponseHeader | None = None
    figures: Mapping[str, str] = {}
    config: Mapping[str, str] = {}
    #: How far its clock is ahead of the asker's, and how unsure that is.
    clock_ahead_ms: float | None = None
    clock_unsure_ms: float = 0.0
    certificate_ends_s: float | None = None
    #: Digests of its topics and consumer groups, which are those of the entry `tables_index`.
    tables: Mapping[str, str] = {}
    tables_index: int | None = None

    @property
    def name(self) -> str:
        """The broker's name: the group and the member, or the address."""
        member = self.info.node_id if self.info is not None else self.address
        return f"{self.broker_name} {member}"


class DeadLetterFacts(msgspec.Struct, frozen=True):
    """The dead letters of a consumer group in one broker group."""

    group: str
    broker_name: str
    messages: int
    last_ms: int


class GroupFacts(msgspec.Struct, frozen=True):
    """A consumer group whose members subscribe to different things: what each of them wants."""

    group: str
    broker_name: str
    wants: Mapping[str, str]


class Facts(msgspec.Struct, frozen=True):
    """All that was asked, at one time."""

    asked_ms: int
    version: str
    name_servers: tuple[NamesrvFacts, ...] = ()
    brokers: tuple[BrokerFacts, ...] = ()
    #: Broker groups that name servers remember and none has a member of, with their clusters.
    away: Mapping[str, str] = {}
    dead_letters: tuple[DeadLetterFacts, ...] = ()
    differing: tuple[GroupFacts, ...] = ()
    unasked: tuple[Unasked, ...] = ()
    #: The last hour as servers have kept it, if that was wanted.
    histories: tuple[ServerHistory, ...] = ()


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong: where, what, and what to do."""

    check: str
    where: str
    what: str
    remedy: str


def broker_groups(facts: Facts) -> Iterator[tuple[str, list[BrokerFacts]]]:
    """The brokers of each broker group, by its name."""

    def name(broker: BrokerFacts) -> tuple[str, str]:
        return broker.cluster, broker.broker_name

    for (_, broker_name), members in groupby(sorted(facts.brokers, key=name), name):
        yield broker_name, list(members)


def leader_of(members: list[BrokerFacts]) -> GroupInfoResponseHeader | None:
    """The member that says that it leads in the highest term."""
    infos = [each.info for each in members if each.info is not None]
    leading = [info for info in infos if info.role == "leader"]
    return max(leading, key=lambda info: info.term, default=None)


def number(text: str | None) -> float | None:
    """A figure as a number; None if it is not one, or a name for one that is not finite."""
    try:
        found = float(text or "none")
    except ValueError:
        return None
    return found if math.isfinite(found) else None
