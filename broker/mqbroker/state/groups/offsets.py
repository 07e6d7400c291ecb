"""Consumer offsets: how far each group has consumed each queue. Pure.

Offsets are part of the replicated state: a commit is a control entry of the log, so after a
failover a group goes on from its commits. An offset is that of the next message to consume.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TypeAlias

from mqbroker import limits
from mqbroker.state.rows.picture import Rows, batched
from mqbroker.state.shares import Shares

#: group -> topic -> queue id -> offset
OffsetMap: TypeAlias = dict[str, dict[str, dict[int, int]]]


class ConsumerOffsets:
    """The offsets of all groups."""

    def __init__(self) -> None:
        self._groups: OffsetMap = {}
        #: How many each group has.
        self.shares = Shares(
            "consumer offsets", "group", limits.CONSUMER_OFFSETS_MAX, limits.GROUPS_MAX
        )

    def __len__(self) -> int:
        return self.shares.count

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset of a queue, or None if the group never committed one."""
        return self._groups.get(group, {}).get(topic, {}).get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset; it may go back, as when an operator resets a group."""
        queues = self._groups.setdefault(group, {}).setdefault(topic, {})
        if queue_id not in queues:
            self.shares.change(group, 1)
        queues[queue_id] = offset

    def topics_of(self, group: str) -> Mapping[str, Mapping[int, int]]:
        """topic -> queue id -> offset of one group."""
        return self._groups.get(group, {})

    def groups_of(self, topic: str) -> Iterator[str]:
        """The groups that committed an offset in a topic."""
        return (group for group, topics in self._groups.items() if topic in topics)

    def delete_topic(self, topic: str) -> None:
        """Forget every group's offsets in a topic: a new topic with this name starts anew."""
        for group in list(self.groups_of(topic)):
            topics = self._groups[group]
            self.shares.change(group, -len(topics.pop(topic)))
            if not topics:
                del self._groups[group]

    def delete_group(self, group: str) -> None:
        """Forget a group's offsets in all topics."""
        gone = self._groups.pop(group, {})
        self.shares.change(group, -sum(map(len, gone.values())))

    def picture(self) -> Generator[None, None, Rows]:
        """(group, topic, queue id, offset) of all: what a snapshot keeps."""
        copy: OffsetMap = {}
        for group, topics in self._groups.items():
            copied = copy[group] = {}
            for some in batched(topics.items()):
                for topic, queues in some:
                    copied[topic] = queues.copy()
                yield

        def rows() -> Iterator[tuple[str, str, int, int]]:
            for group, topics in copy.items():
                for topic, queues in topics.items():
                    for queue_id, offset in queues.items():
                        yield group, topic, queue_id, offset

        return Rows(len(self), rows)

    def restore(self, items: Iterable[tuple[str, str, int, int]]) -> None:
        """Take over what a snapshot kept."""
        self._groups.clear()
        self.shares.begin_again()
        self.add_saved(items)

    def add_saved(self, items: Iterable[tuple[str, str, int, int]]) -> None:
        """Take over a further part of that."""
        for group, topic, queue_id, offset in items:
            self.commit(group, topic, queue_id, offset)
