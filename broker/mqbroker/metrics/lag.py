"""How far groups are behind, reported by the leader: in messages, and in age.

A group is reported with and without members, and its retry topic with `is_retry`. The age of a
message is read from its queue once, and kept until the group has passed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dledger.metrics.text import Family, Writer
from dledger.remoting.message import RETRY_PREFIX
from mqbroker import limits
from mqbroker.metrics import naming
from mqbroker.metrics.sources import Sources
from mqbroker.metrics.traffic import Names

_FAMILIES: Final = (
    Family("rocketmq_consumer_lag_messages", "gauge", "Messages that are not done."),
    Family("rocketmq_consumer_inflight_messages", "gauge", "Handed out, and not done."),
    Family("rocketmq_consumer_ready_messages", "gauge", "Not handed out yet."),
    Family("rocketmq_consumer_lag_latency_milliseconds", "gauge", "Age of the oldest not done."),
    Family(
        "rocketmq_consumer_queueing_latency_milliseconds",
        "gauge",
        "Age of the oldest not handed out.",
    ),
)
_MEMBERS: Final = Family(
    "dledger_consumer_group_members", "gauge", "Members of a group; 0 for one that is away."
)
_LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")


class Ages:
    """When messages at the offsets where groups are were stored."""

    def __init__(self, sources: Sources) -> None:
        self._machine = sources.core.machine
        self._clock_ms = sources.core.clock_ms
        self._known: dict[tuple[str, int, int], int] = {}
        self._asked: dict[tuple[str, int, int], int] = {}

    def begin(self) -> None:
        """Forget what was not asked for since the last time."""
        self._known, self._asked = self._asked, {}

    def of(self, topic: str, queue_id: int, offset: int) -> int:
        """The age in ms of a message; 0 if there is none."""
        key = (topic, queue_id, offset)
        stored_ms = self._known.get(key) or self._machine.queues.stored_ms(*key)
        if stored_ms:
            self._asked[key] = stored_ms
        return max(0, self._clock_ms() - stored_ms) if stored_ms else 0


class LagFigures:
    """Lag of each consumer group, as this leader sees it when asked."""

    def __init__(self, sources: Sources, names: Names) -> None:
        self._sources = sources
        self._names = names
        self._ages = Ages(sources)

    def pieces(self, writer: Writer) -> Iterator[str]:
        """The metric families as text, a piece at a time."""
        self._ages.begin()
        sums: dict[tuple[str, ...], list[int]] = {}
        members: dict[str, int] = {}
        for group in [each.group_name for each in self._sources.core.machine.groups]:
            yield ""
            yield from self._add(group, sums)
            online = self._sources.membership.consumers(group)
            shown = self._names.groups.name(group)
            members[shown] = members.get(shown, 0) + len(online.members if online else ())
        for place, family in enumerate(_FAMILIES):
            yield from writer.family(
                family,
                ((dict(zip(_LABELS, key, strict=True)), row[place]) for key, row in sums.items()),
            )
        yield from writer.family(
            _MEMBERS, (({"consumer_group": group}, count) for group, count in members.items())
        )

    def _add(self, group: str, sums: dict[tuple[str, ...], list[int]]) -> Iterator[str]:
        names, standing = self._names, self._sources.standing
        if not standing.is_kept(group):
            return
        for topic in sorted(standing.topics_of(group)):
            queues = standing.queues_of(topic)
            if not queues:
                continue
            system = naming.is_system_topic(topic, names.like_servers)
            key = (
                names.groups.name(group),
                names.topics.name(topic),
                naming.flag(topic.startswith(RETRY_PREFIX)),
                naming.flag(system or naming.is_system_group(group)),
            )
            row = sums.setdefault(key, [0] * len(_FAMILIES))
            for queue_id in range(queues):
                self._add_queue(group, topic, queue_id, row)
                if queue_id % limits.QUEUES_PER_STEP == 0:
                    yield ""

    def _add_queue(self, group: str, topic: str, queue_id: int, row: list[int]) -> None:
        behind = self._sources.standing.behind(group, topic, queue_id)
        if not behind.lag:
            return
        row[0] += behind.lag
        row[1] += behind.in_flight
        row[2] += behind.ready
        row[3] = max(row[3], self._ages.of(topic, queue_id, behind.offset))
        if behind.ready:
            row[4] = max(row[4], self._ages.of(topic, queue_id, behind.pulled))
