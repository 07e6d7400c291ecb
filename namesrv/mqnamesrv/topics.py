"""Which broker groups serve a topic, with how many queues and which permissions. Pure.

Rows are (topic, broker name) -> queue data. A group's rows come from its leader's registrations;
they live as long as the group has any member, because consumers may read from a follower while
there is no leader. Permissions that an operator changes here last until the topic changes, or
another member leads.

A group's topics are kept by its name, too: a change costs what has changed, not what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set

from dledger.remoting.bodies import QueueData, TopicConfig
from dledger.remoting.names import PERM_READ_WRITE, PERM_WRITE

# Bits of a topic's system flag (RocketMQ's TopicSysFlag): marks for operators of several sites.
UNIT = 1
UNIT_SUBSCRIBED = 2


class TopicTable:
    """Queue data by topic and broker name."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, QueueData]] = {}
        self._topics: dict[str, set[str]] = {}

    def put(
        self, broker_name: str, topics: Mapping[str, TopicConfig], *, is_whole_table: bool
    ) -> None:
        """Replace the rows of the listed topics; with `is_whole_table` drop the group's others."""
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

    def queues(self, topic: str) -> list[QueueData]:
        """The rows of a topic in the order of broker names; empty if no group serves it."""
        return [row for _, row in sorted(self._rows.get(topic, {}).items())]

    def names(self) -> list[str]:
        """Every topic that some group serves, sorted."""
        return sorted(self._rows)

    def of_units(self, wanted: Callable[[bool, bool], bool]) -> list[str]:
        """The topics whose flags (of a unit, subscribed by a unit) are `wanted`, sorted.

        Flags are those of the first group, as in RocketMQ's RouteInfoManager.
        """
        return [
            topic
            for topic in self.names()
            for flags in [self.queues(topic)[0].topic_sys_flag]
            if wanted(bool(flags & UNIT), bool(flags & UNIT_SUBSCRIBED))
        ]

    def topics_of(self, broker_names: Collection[str]) -> set[str]:
        """The topics that at least one of these groups serves."""
        return {topic for name in broker_names for topic in self._of(name)}

    def count_with(self, broker_name: str, topics: Collection[str]) -> int:
        """How many topics this group would serve with these."""
        known = self._of(broker_name)
        return len(known) + sum(topic not in known for topic in topics)

    def set_perm(self, broker_name: str, *, writable: bool) -> int:
        """Give or take the write permission of every row of a group. Returns the number of its
        rows."""
        topics = self._of(broker_name)
        for topic in topics:
            row = self._rows[topic][broker_name]
            row.perm = PERM_READ_WRITE if writable else row.perm & ~PERM_WRITE
        return len(topics)

    def remove_topic(self, topic: str, broker_names: Collection[str] | None = None) -> None:
        """Forget a topic, everywhere or on these groups only. An unknown topic is no error."""
        for broker_name in list(self._rows.get(topic, {})):
            if broker_names is None or broker_name in broker_names:
                self._drop(broker_name, {topic})

    def remove_broker(self, broker_name: str) -> None:
        """Forget every row of a group."""
        self._drop(broker_name, list(self._of(broker_name)))

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
