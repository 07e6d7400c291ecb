"""The mode of a consumer, by its parameters: which topics, which offsets, and what does not go
together.

A consumer that shares queues with others belongs to a group, reads the group's retry topic beside
its own topics, and keeps its offsets with the brokers. One that reads everything, or chosen queues,
may do so without a group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dledger.errors import BadInput
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.message import RETRY_PREFIX
from dledger.remoting.names import check_group_name
from dledger.world import unix_ms
from mqclient import limits
from mqclient.connection.leaders import LeaderFinder
from mqclient.connection.session import Session
from mqclient.consuming.sharing.locks import Locks
from mqclient.consuming.sharing.offsets import (
    BrokerOffsets,
    FileOffsets,
    KeepOffsets,
    NoOffsets,
    Offsets,
)
from mqclient.consuming.sharing.patterns import matching, topics_there
from mqclient.consuming.sharing.plan import Plan
from mqclient.consuming.subscriptions import ALL, Sql, check_readable, parse_subscription


def check_mode(
    plan: Plan, group: str | None, offsets: KeepOffsets, *, ordered: bool = False
) -> None:
    """Raises BadInput, with what to choose instead, for what does not go together."""
    if ordered and not plan.is_shared:
        raise BadInput(
            "ordered=True: queues are locked for one member of a group that shares them. A "
            "consumer of everything, or of chosen queues, shares none: leave out ordered=True"
        )
    if group is not None:
        check_group_name(group)
    if not (offsets is None or isinstance(offsets, str | os.PathLike)):
        raise BadInput(f"offsets={offsets!r}: expected 'broker', a path, or None to keep none")
    if group is None and plan.is_shared:
        raise BadInput(
            f"group is missing: queues are shared ({plan.name}) by the members of a group, and two "
            "programs of one group take each other's messages. Name one, or read everything "
            "(assign='all') or chosen queues (assign=[...])"
        )
    if plan.is_shared and offsets != "broker":
        raise BadInput(
            f"offsets={offsets!r}: queues that are shared ({plan.name}) go on at the group's "
            "offsets, whichever member reads them next. Files are for assign='all' or a list of "
            "queues"
        )
    if plan.is_broadcast and offsets == "broker":
        raise BadInput(
            "assign='all': each member has its own offsets, and brokers keep one for a group. Give "
            "offsets=, the path of a file for this member alone, or None to keep none"
        )
    if group is None and offsets == "broker":
        raise BadInput(
            "group=None: brokers keep offsets by group. Give offsets=, a path or None to keep none"
        )


def offsets_kept(
    keep: KeepOffsets,
    group: str | None,
    finder: LeaderFinder,
    locks: Locks | None,
    shared_s: float | None,
) -> Offsets:
    """Where they are kept; members that share queues give them up within `shared_s`."""
    if keep is None:
        return NoOffsets(finder)
    if keep == "broker":
        patience_s = None if shared_s is None or locks else shared_s + limits.HANDOVER_S
        return BrokerOffsets(group or "", finder, locks, patience_s)
    return FileOffsets(keep, finder)


@dataclass(slots=True)
class Wanted:
    """The topics that are subscribed to. Those of `patterns` come and go with `match`."""

    topics: dict[str, SubscriptionData]
    patterns: dict[re.Pattern[str], str | Sql]
    version_ms: int
    _matched: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        plan: Plan,
        group: str | None,
        subscriptions: Mapping[str | re.Pattern[str], str | Sql] | Mapping[str, str | Sql] | None,
    ) -> Wanted:
        """The topics that the parameters ask for. Raises BadInput."""
        version_ms = unix_ms()
        named: dict[str, str | Sql] = {}
        patterns: dict[re.Pattern[str], str | Sql] = {}
        for topic, expression in (subscriptions or {}).items():
            if isinstance(topic, re.Pattern):
                patterns[topic] = expression
            else:
                named[topic] = expression
        if plan.queues is not None:
            if patterns:
                raise BadInput("a topic pattern, and a list of queues to read: choose one of them")
            chosen = {queue.topic for queue in plan.queues}
            if unread := sorted(set(named) - chosen):
                raise BadInput(f"subscribed to {unread}, but assign names no queue of them")
            named = {**dict.fromkeys(sorted(chosen), ALL), **named}
        if not named and not patterns:
            raise BadInput(f"consumer of group {group!r}: no subscription was given")
        if plan.is_shared:
            named = {f"{RETRY_PREFIX}{group}": ALL, **named}
        for topic in named:
            check_readable(topic, group)
        topics = {
            topic: parse_subscription(topic, expression, version_ms)
            for topic, expression in named.items()
        }
        for pattern, expression in patterns.items():
            if not isinstance(pattern.pattern, str):
                raise BadInput(f"the topic pattern {pattern.pattern!r} is of bytes, not text")
            parse_subscription("any", expression, version_ms)
        return cls(topics, patterns, version_ms)

    async def match(self, session: Session) -> bool:
        """Look which topics match now; whether that are others than before."""
        there = await topics_there(session) if self.patterns else None
        if there is None:
            return False
        found = matching(self.patterns, *there)
        named = set(self.topics) - self._matched
        new = {topic: found[topic] for topic in found if topic not in self.topics}
        gone = self._matched - set(found)
        for topic in gone:
            del self.topics[topic]
        for topic, expression in new.items():
            self.topics[topic] = parse_subscription(topic, expression, self.version_ms)
        self._matched = set(found) - named
        return bool(new or gone)
