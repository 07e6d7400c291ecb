"""The broker groups that serve a topic, with how many queues and which permissions. Pure.

A group's topics come from its leader's registrations; they live as long as the group has any
member, because consumers may read from a follower while there is no leader. The topics of a group
without members are *absent*: no route has them, but our producers are told of them, so that a key
keeps its queue while the group is away. Groups that have proven nothing are forgotten first.

An operator can take the write permission of a whole group here, and give it back: that masks what
the group says of its topics, and changes none of it.

Topics are kept by group alone, so a group of any size comes and leaves at once; a route asks each
group. What looks at all topics of all groups is a generator of short steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

from dledger.remoting.bodies import QueueData, TopicConfig
from dledger.remoting.names import PERM_WRITE
from mqnamesrv import limits

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

# Bits of a topic's system flag (RocketMQ's TopicSysFlag): marks for operators of several sites.
UNIT = 1
UNIT_SUBSCRIBED = 2
_SORTED_AT_ONCE = 1024


class AbsentGroup(NamedTuple):
    """A broker group without members: its cluster, the topics that it had, and whether it had
    proven that it belongs to the cluster."""

    cluster: str
    topics: dict[str, TopicConfig]
    proven: bool = False


class TopicTable:
    """Configs of topics, by the broker group that serves them."""

    def __init__(self) -> None:
        self._served: dict[str, dict[str, TopicConfig]] = {}
        #: The topics of groups without members.
        self.away = Absent()
        self._closed: set[str] = set()
        #: The groups whose write permission an operator has taken.
        self.wiped: frozenset[str] = frozenset()

    def put(
        self, broker_name: str, topics: Mapping[str, TopicConfig], *, is_whole_table: bool
    ) -> None:
        """Replace the listed topics; with `is_whole_table` drop the group's others."""
        self.away.take(broker_name)
        if is_whole_table:
            self._served.pop(broker_name, None)
        if topics:
            self._served.setdefault(broker_name, {}).update(topics)

    def put_missing(self, broker_name: str, topics: Mapping[str, TopicConfig]) -> None:
        """Add topics that a group has and that are not here: a tool has removed them."""
        known = self._of(broker_name)
        missing = {topic: config for topic, config in topics.items() if topic not in known}
        self.put(broker_name, missing, is_whole_table=False)

    @property
    def rows(self) -> int:
        """How many topics all groups have; the same topic counts in each."""
        return sum(map(len, self._served.values()))

    def queues(self, topic: str) -> list[QueueData]:
        """The queues of a topic, in the order of broker names; empty if no group serves it."""
        return self._rows(topic, self._served)

    def absent(self, topic: str) -> list[QueueData]:
        """The queues that it had at groups that have no members now, in the same order."""
        return self._rows(topic, self.away.tables)

    def missed(self) -> dict[str, str]:
        """The clusters of the absent groups that no operator has retired, by their names."""
        absent = self.away.clusters.items()
        return {name: cluster for name, cluster in absent if name not in self.wiped}

    def _rows(self, topic: str, tables: Mapping[str, Mapping[str, TopicConfig]]) -> list[QueueData]:
        names = sorted(name for name, topics in tables.items() if topic in topics)
        return [self._row(name, tables[name][topic]) for name in names]

    def _row(self, broker_name: str, config: TopicConfig) -> QueueData:
        """A group's queues of a topic as routes have them."""
        return QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm & ~PERM_WRITE if broker_name in self.wiped else config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )

    def permit(self, broker_name: str, permission: int) -> None:
        """A group's leader says what the group may be used for."""
        if permission & PERM_WRITE:
            self._closed.discard(broker_name)
        elif len(self._closed) < limits.BROKER_GROUPS_MAX:
            self._closed.add(broker_name)

    def withdrawn(self, broker_names: Iterable[str]) -> list[str]:
        """The broker groups of these that take no messages of any topic."""
        return [name for name in broker_names if name in self.wiped or name in self._closed]

    def serves(self, topic: str) -> bool:
        """Whether some group serves a topic."""
        return any(topic in topics for topics in self._served.values())

    def lacks(self, broker_name: str, topic: str) -> bool:
        """Whether a group is there without the topic."""
        topics = self._of(broker_name)
        return bool(topics) and topic not in topics

    def names(self, broker_names: Collection[str] | None = None) -> Steps[list[str]]:
        """Every topic that some group serves, or one of these groups, sorted."""
        return (yield from _sorted((yield from self.union(broker_names))))

    def union(self, broker_names: Collection[str] | None = None) -> Steps[set[str]]:
        """Every topic that some group serves, or one of these groups, in no order."""
        found = set[str]()
        for name in [*self._served] if broker_names is None else broker_names:
            found.update(self._of(name))
            yield
        return found

    def of_units(self, wanted: Callable[[bool, bool], bool]) -> Steps[list[str]]:
        """The topics whose flags (of a unit, subscribed by a unit) are `wanted`, sorted.

        Flags are those of the first group, as in RocketMQ's RouteInfoManager.
        """
        flags = dict[str, int]()
        for name in sorted(self._served, reverse=True):
            flags.update({topic: each.topic_sys_flag for topic, each in self._of(name).items()})
            yield
        found = (
            topic
            for topic, flag in flags.items()
            if wanted(bool(flag & UNIT), bool(flag & UNIT_SUBSCRIBED))
        )
        return (yield from _sorted(found))

    def count_with(self, broker_name: str, topics: Collection[str]) -> int:
        """How many topics this group would serve with these."""
        known = self._of(broker_name)
        return len(known) + len(set(topics).difference(known))

    def count(self, broker_name: str) -> int:
        """How many topics a group serves."""
        return len(self._of(broker_name))

    def known(self, broker_name: str) -> int:
        """How many topics a group serves, or served before it went away."""
        return self.count(broker_name) or len(self.away.tables.get(broker_name, ()))

    def remove_topic(self, topic: str, broker_names: Collection[str] | None = None) -> None:
        """Forget a topic, everywhere or on these groups only. An unknown topic is no error."""
        for name in [*self._served] if broker_names is None else broker_names:
            served = self._served.get(name, {})
            served.pop(topic, None)
            if not served:
                self._served.pop(name, None)
        self.away.remove_topic(topic, broker_names)

    def leave(self, broker_name: str, cluster: str, *, proven: bool) -> None:
        """A group has no members any more: its topics are absent, until it comes again."""
        topics = self._served.pop(broker_name, None)
        if topics:
            self.away.add(broker_name, AbsentGroup(cluster, topics, proven))

    def _of(self, broker_name: str) -> Mapping[str, TopicConfig]:
        return self._served.get(broker_name, {})


class Absent:
    """The topics of groups that are away. Of too many the one that left first is forgotten; but
    first those that had proven nothing, of which there are fewer topics, too."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, TopicConfig]] = {}
        self.clusters: dict[str, str] = {}
        #: The groups that had proven nothing, and how many topics they have.
        self._unproven: dict[str, int] = {}
        #: Topics of those.
        self.rows = 0
        #: Grows with each change.
        self.changes = 0

    def groups(self) -> dict[str, AbsentGroup]:
        """The groups by name; their topics may change later."""
        return {name: self._group(name) for name in self.tables}

    def _group(self, broker_name: str) -> AbsentGroup:
        proven = broker_name not in self._unproven
        return AbsentGroup(self.clusters[broker_name], self.tables[broker_name], proven)

    def add(self, broker_name: str, absent: AbsentGroup) -> None:
        """Remember a group without members."""
        if broker_name in self.tables:
            self.take(broker_name)
        self.changes += 1
        self.tables[broker_name] = absent.topics
        self.clusters[broker_name] = absent.cluster
        if not absent.proven:
            self._unproven[broker_name] = len(absent.topics)
            self.rows += len(absent.topics)
        while self.rows > limits.ABSENT_ROWS_MAX:
            self.take(next(iter(self._unproven)))
        while len(self.tables) > limits.ABSENT_GROUPS_MAX:
            self.take(next(iter(self._unproven or self.tables)))

    def take(self, broker_name: str) -> None:
        """Forget a group, which is back or away for too long."""
        if self.tables.pop(broker_name, None) is None:
            return
        del self.clusters[broker_name]
        self.rows -= self._unproven.pop(broker_name, 0)
        self.changes += 1

    def remove_topic(self, topic: str, broker_names: Collection[str] | None) -> None:
        """Forget a topic of all groups, or of these."""
        for name, topics in self.tables.items():
            if broker_names is None or name in broker_names:
                self.changes += topics.pop(topic, None) is not None


def _sorted(names: Iterable[str]) -> Steps[list[str]]:
    runs, left, found = list[list[str]](), iter(names), list[str]()
    while run := sorted(islice(left, _SORTED_AT_ONCE)):
        runs.append(run)
        yield
    for name in heapq.merge(*runs):
        found.append(name)
        yield
    return found
