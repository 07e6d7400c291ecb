"""Figures of the queues of some topics and groups, with the reason why a group is not further."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dledger.errors import BadInput
from dledger.metrics import limits
from dledger.metrics.pages import Details
from dledger.metrics.requests import NoSuchName
from dledger.metrics.text import Family, Sample, Writer
from mqbroker.metrics.health import leader_of
from mqbroker.metrics.lag import Ages
from mqbroker.metrics.sources import Sources
from mqbroker.requests.groups.lag import Why

_QUEUE: Final = (
    Family("dledger_queue_first_offset", "gauge", "The offset of a queue's first message."),
    Family("dledger_queue_end_offset", "gauge", "The offset that a queue's next message gets."),
)
_GROUP: Final = (
    Family("dledger_consumer_queue_offset", "gauge", "Where a group is in a queue."),
    Family("dledger_consumer_queue_lag_messages", "gauge", "Messages that are not done."),
    Family("dledger_consumer_queue_inflight_messages", "gauge", "Handed out, and not done."),
    Family("dledger_consumer_queue_lag_seconds", "gauge", "Age of the oldest not done."),
)
_WHY: Final = Family(
    "dledger_consumer_queue_state", "gauge", "1 for the reason why messages are not done."
)


class _Pair(NamedTuple):
    group: str
    topic: str
    queue_id: int

    def labels(self) -> dict[str, str]:
        return {
            "consumer_group": self.group,
            "topic": self.topic,
            "queue_id": str(self.queue_id),
        }


class QueueFigures:
    """Figures by queue of the topics and groups that a request names."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def notes(self, wanted: Details) -> Iterator[str]:
        """Comments about what is asked for and missing. Raises NoSuchName if nothing of it exists,
        which every replica knows."""
        core = self._sources.core
        role, name = core.role, core.config.broker_name
        for what, names, table in (
            ("topic", wanted.topics, core.machine.topics),
            ("consumer group", wanted.groups, core.machine.groups),
        ):
            unknown = [repr(each) for each in names if table.get(each) is None]
            if unknown and len(unknown) == len(names):
                raise NoSuchName(f"broker group {name} has no {what} {', '.join(unknown)}")
            yield from (f"# broker group {name} has no {what} {each}\n" for each in unknown)
        if not role.serving:
            who = leader_of(core) or "it hears none"
            yield f"# {role.node_id} does not lead {name}: ask its leader ({who})\n"

    def pieces(self, wanted: Details, writer: Writer) -> Iterator[str]:
        """The metric families as text, a piece at a time. Raises BadInput if they are too many."""
        standing, machine = self._sources.standing, self._sources.core.machine
        groups = [group for group in wanted.groups if machine.groups.get(group) is not None]
        topics = wanted.topics or tuple(
            sorted({topic for group in groups for topic in standing.topics_of(group)})
        )
        queues = [(topic, each) for topic in topics for each in range(standing.queues_of(topic))]
        if not wanted.groups:
            groups = self._readers_of(set(topics))
        if len(queues) * max(1, len(groups)) > limits.DETAILS_QUEUES_MAX:
            raise BadInput(
                f"{len(queues)} queues and {len(groups)} groups are more than "
                f"{limits.DETAILS_QUEUES_MAX} pairs: ask for fewer topics or groups"
            )
        spans = [(topic, each, machine.queues.span(topic, each)) for topic, each in queues]
        for place, family in enumerate(_QUEUE):
            samples: list[Sample] = [
                ({"topic": topic, "queue_id": str(each)}, span[place])
                for topic, each, span in spans
            ]
            yield from writer.family(family, samples)
        yield from self._of_groups(groups, queues, writer)

    def _readers_of(self, topics: set[str]) -> list[str]:
        standing, names = self._sources.standing, self._sources.core.machine.groups
        return [
            each.group_name
            for each in names
            if not topics.isdisjoint(standing.topics_of(each.group_name))
        ]

    def _of_groups(
        self, groups: list[str], queues: list[tuple[str, int]], writer: Writer
    ) -> Iterator[str]:
        standing, ages = self._sources.standing, Ages(self._sources)
        rows: list[tuple[_Pair, tuple[float, ...]]] = []
        reasons: list[tuple[_Pair, Why]] = []
        for group in groups:
            reads = standing.topics_of(group)
            if not standing.is_kept(group):
                yield f"# consumer group {group!r} broadcasts: its members keep their own offsets\n"
            elif reads.isdisjoint(topic for topic, _ in queues):
                yield f"# consumer group {group!r} reads none of these topics\n"
            for topic, queue_id in queues:
                if topic not in reads or not standing.is_kept(group):
                    continue
                pair = _Pair(group, topic, queue_id)
                behind = standing.behind(*pair)
                age_s = ages.of(topic, queue_id, behind.offset) / 1000 if behind.lag else 0.0
                rows.append((pair, (behind.offset, behind.lag, behind.in_flight, age_s)))
                reasons.append((pair, standing.reason(*pair, behind).why))
                yield ""
        for place, family in enumerate(_GROUP):
            yield from writer.family(family, ((pair.labels(), row[place]) for pair, row in rows))
        states = ((pair.labels() | {"state": why.value}, 1) for pair, why in reasons)
        yield from writer.family(_WHY, states)
