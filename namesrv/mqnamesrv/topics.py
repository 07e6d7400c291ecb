"""Which broker groups serve a topic, with how many queues and which permissions. Pure.

Rows are (topic, broker name) -> queue data. A group's rows come from its leader's registrations;
they live as long as the group has any member, because consumers may read from a follower while
there is no leader. The rows of a group without members are *absent*: no route has them, but our
producers are told of them, so that a key keeps its queue while the group is away.

An operator can take the write permission of a whole group here, and give it back: that masks what
the group says of its topics, and changes none of it.

A group's topics are kept by its name, too: a change costs what has changed, not what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import NamedTuple

import msgspec

from dledger.remoting.bodies import QueueData, TopicConfig
from dledger.remoting.names import PERM_WRITE
from mqnamesrv import limits

# Bits of a topic's system flag (RocketMQ's TopicSysFlag): marks for operators of several sites.
UNIT = 1
UNIT_SUBSCRIBED = 2


class AbsentGroup(NamedTuple):
    """A broker group without members: its cluster, and the rows that it had, by topic."""

    cluster: str
    rows: dict[str, QueueData]


class TopicTable:
    """Queue data by topic and broker name."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, QueueData]] = {}
        self._topics: dict[str, set[str]] = {}
        self._absent: dict[str, AbsentGroup] = {}
        #: Grows whenever the absent rows change.
        self.absent_changes = 0
        self._closed: set[str] = set()
        #: The groups whose write permission an operator has taken.
        self.wiped: frozenset[str] = frozenset()

    def put(
        self, broker_name: str, topics: Mapping[str, TopicConfig], *, is_whole_table: bool
    ) -> None:
        """Replace the rows of the listed topics; with `is_whole_table` drop the group's others."""
        if self._absent.pop(broker_name, None) is not None:
            self.absent_changes += 1
        if is_whole_table:
            self._drop(broker_name, self._of(broker_name) - topics.keys())
        if topics:
            self._topics.setdefault(broker_name, set()).update(topics)
        for topic, config in topics.items():
            self._rows.setdefault(topic, {})[broker_name] = QueueData(
                broker_name=broker_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )

    def put_missing(self, broker_name: str, topics: Mapping[str, TopicConfig]) -> None:
        """Add the rows of topics that a group has and that are not here: a tool has removed
        them."""
        known = self._of(broker_name)
        missing = {topic: config for topic, config in topics.items() if topic not in known}
        self.put(broker_name, missing, is_whole_table=False)

    @property
    def rows(self) -> int:
        """How many rows all groups have."""
        return sum(map(len, self._topics.values()))

    def queues(self, topic: str) -> list[QueueData]:
        """The rows of a topic in the order of broker names; empty if no group serves it."""
        return [self._shown(row) for _, row in sorted(self._rows.get(topic, {}).items())]

    def absent(self, topic: str) -> list[QueueData]:
        """The rows that it had of groups that have no members now, likewise."""
        absent = sorted(self._absent.items())
        return [self._shown(group.rows[topic]) for _, group in absent if topic in group.rows]

    def absent_groups(self) -> dict[str, AbsentGroup]:
        """Each group that has no members now, by its name."""
        absent = self._absent.items()
        return {name: AbsentGroup(group.cluster, dict(group.rows)) for name, group in absent}

    def missed(self) -> dict[str, str]:
        """The clusters of the absent groups that no operator has retired, by their names."""
        absent = self._absent.items()
        return {name: group.cluster for name, group in absent if name not in self.wiped}

    def permit(self, broker_name: str, permission: int) -> None:
        """A group's leader says what the group may be used for."""
        if permission & PERM_WRITE:
            self._closed.discard(broker_name)
        elif len(self._closed) < limits.BROKER_GROUPS_MAX:
            self._closed.add(broker_name)

    def withdrawn(self, broker_names: Iterable[str]) -> list[str]:
        """Which of these groups take no messages of any topic."""
        return [name for name in broker_names if name in self.wiped or name in self._closed]

    def lacks(self, broker_name: str, topic: str) -> bool:
        """Whether a group is there without the topic."""
        topics = self._of(broker_name)
        return bool(topics) and topic not in topics

    def _shown(self, row: QueueData) -> QueueData:
        """A row as routes have it."""
        if row.broker_name not in self.wiped:
            return row
        return msgspec.structs.replace(row, perm=row.perm & ~PERM_WRITE)

    def names(self) -> list[str]:
        """Every topic that some group serves, sorted."""
        return sorted(self._rows)

    def of_units(self, wanted: Callable[[bool, bool], bool]) -> list[str]:
        """The topics whose flags (of a unit, subscribed by a unit) are `wanted`, sorted.

        Flags are those of the first group, as in RocketMQ's RouteInfoManager.
        """
        flags = ((topic, rows[min(rows)].topic_sys_flag) for topic, rows in self._rows.items())
        return sorted(
            topic
            for topic, flag in flags
            if wanted(bool(flag & UNIT), bool(flag & UNIT_SUBSCRIBED))
        )

    def topics_of(self, broker_names: Collection[str]) -> set[str]:
        """The topics that at least one of these groups serves."""
        return set[str]().union(*map(self._of, broker_names))

    def count_with(self, broker_name: str, topics: Collection[str]) -> int:
        """How many topics this group would serve with these."""
        known = self._of(broker_name)
        return len(known) + len(set(topics).difference(known))

    def names_with(self, topics: Collection[str]) -> int:
        """How many topics there would be with these."""
        return len(self._rows) + len(set(topics).difference(self._rows))

    def count(self, broker_name: str) -> int:
        """How many topics a group serves."""
        return len(self._of(broker_name))

    def known(self, broker_name: str) -> int:
        """How many topics a group serves, or served before it went away."""
        absent = self._absent.get(broker_name)
        return self.count(broker_name) or (len(absent.rows) if absent is not None else 0)

    def remove_topic(self, topic: str, broker_names: Collection[str] | None = None) -> None:
        """Forget a topic, everywhere or on these groups only. An unknown topic is no error."""
        for broker_name in list(self._rows.get(topic, {})):
            if broker_names is None or broker_name in broker_names:
                self._drop(broker_name, {topic})
        for broker_name, absent in self._absent.items():
            if broker_names is None or broker_name in broker_names:
                self.absent_changes += absent.rows.pop(topic, None) is not None

    def remove_broker(self, broker_name: str) -> None:
        """Forget every row of a group."""
        self._drop(broker_name, list(self._of(broker_name)))

    def leave(self, broker_name: str, cluster: str) -> None:
        """A group has no members any more: its rows are absent, until it comes again."""
        rows = {topic: self._rows[topic][broker_name] for topic in self._of(broker_name)}
        self.remove_broker(broker_name)
        if rows:
            self.remember(broker_name, AbsentGroup(cluster, rows))

    def remember(self, broker_name: str, absent: AbsentGroup) -> None:
        """Add a group without members. Beyond the bound the group that left first is
        forgotten."""
        self._absent[broker_name] = absent
        self.absent_changes += 1
        while len(self._absent) > limits.ABSENT_GROUPS_MAX:
            del self._absent[next(iter(self._absent))]

    def _of(self, broker_name: str) -> Set[str]:
        return self._topics.get(broker_name, frozenset())

    def _drop(self, broker_name: str, topics: Iterable[str]) -> None:
        for topic in topics:
            own = self._topics[broker_name]
            own.discard(topic)
            if not own:
                del self._topics[broker_name]
            rows = self._rows[topic]
            del rows[broker_name]
            if not rows:
                del self._rows[topic]
