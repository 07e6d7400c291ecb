"""The findings of the screening: its tasks are started when first asked for, and only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.pandas.types import from_arrow_schema

from mqspark.limits import DERIVED_TASKS_MAX, DIGEST_HISTORY_BYTES, SHUFFLE_PARTITIONS
from mqspark.screening import tasks
from mqspark.screening.changes import Lives, queue_numbers
from mqspark.screening.digest import Totals, added
from mqspark.screening.hashing import hashed
from mqspark.screening.lines import falls, is_ended, unreadable, writer_of
from mqspark.screening.logs import Log, agreed_logs
from mqspark.screening.packets import QUEUE_RANGE, READ, Numbers, Rows, ddl, joined
from mqspark.screening.parts import HistoryPart
from mqspark.screening.readings import doubts
from mqspark.screening.testimony import TESTIMONY
from mqspark.source.derived import Difference
from mqspark.source.members import Members
from mqspark.source.planning import plan
from mqspark.source.planning import tasks as segment_tasks
from mqspark.source.reader import SegmentReader
from mqspark.source.schema import row_schema


@dataclass
class Screened:
    """The screening of one audit. `history_bytes`: the size of the history as lines.

    `brief`: there is so little that dividing the work costs more than it saves. `properties`: the
    history says what senders said of their messages. `unsure`: whose clocks fell, and how far.
    """

    session: SparkSession
    members: Members
    history: Sequence[HistoryPart]
    history_bytes: int
    topics: Sequence[str]
    brief: bool
    properties: bool = False
    unsure: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def input(self) -> tasks.Reading:
        """All that there is to read about messages."""
        several = 1 if self.brief else SHUFFLE_PARTITIONS
        return tasks.Reading(
            parts=[*segment_tasks(plan(self.members.replicas)), *self.history],
            replicas=self.members.replicas,
            topics=self.topics,
            brokers=self.members.brokers,
            full_masks=[self.members.full_mask(name) for name in self.members.brokers],
            begins=[self.members.begins(name) for name in self.members.brokers],
            digest_tasks=max(several, self.history_bytes // DIGEST_HISTORY_BYTES),
            queue_tasks=max(several, self.history_bytes // DIGEST_HISTORY_BYTES),
            properties=self.properties,
            unsure=self.unsure,
        )

    @cached_property
    def findings(self) -> DataFrame:
        """The findings about messages, as packets (:mod:`mqspark.screening.tasks`)."""
        parts = self._numbered(self.input.parts)
        said = parts.mapInArrow(self.input.packets, tasks.PACKETS)
        found = said.repartitionById(self.input.digest_tasks, "place").mapInArrow(
            self.input.digests, tasks.PACKETS
        )
        return found.persist(StorageLevel.MEMORY_AND_DISK)

    @property
    def totals(self) -> Totals:
        """Counts of messages by what became of them, made at the first question."""
        totals, _ = self._counted
        return totals

    @property
    def summary(self) -> tasks.Summary:
        """The findings about no single message, of all parts."""
        _, summary = self._counted
        return summary

    @cached_property
    def _counted(self) -> tuple[Totals, tasks.Summary]:
        rows = self.findings.where(F.col("kind").isin(tasks.TOTALS, tasks.SUMMARY)).collect()
        totals = [msgspec.json.decode(row.data) for row in rows if row.kind == tasks.TOTALS]
        summary = tasks.Summary()
        for row in rows:
            if row.kind == tasks.SUMMARY:
                summary.add(msgspec.json.decode(row.data, type=tasks.Summary))
        return added(totals), summary

    @cached_property
    def logs(self) -> dict[str, Log] | None:
        """Each broker's log, if all replicas hold it alike and whole; else None."""
        first_indexes = {name: self.members.first_index(name) for name in self.members.brokers}
        return agreed_logs(first_indexes, self.summary.segments)

    @property
    def noted(self) -> DataFrame:
        """The events about no single message."""
        return self.packets(tasks.NOTED).mapInArrow(tasks.noted, from_arrow_schema(tasks.NOTE))

    @property
    def testimony(self) -> DataFrame:
        """The statements of each source about each message (:mod:`mqspark.screening.testimony`)."""
        return self._numbered(self.input.parts).mapInArrow(
            self.input.testimony, from_arrow_schema(TESTIMONY)
        )

    def packets(self, kind: int) -> DataFrame:
        """The findings of one kind (:mod:`mqspark.screening.tasks`)."""
        return self.findings.where(F.col("kind") == kind)

    def rows(self, kind: int, row: np.dtype[Any]) -> DataFrame:
        """The findings of one kind, as columns."""
        return self.packets(kind).mapInArrow(tasks.columns_of(row), ddl(row))

    def ranges(self, disputed: DataFrame | None, settled_end: Numbers) -> Rows:
        """Queues as they look, range by range, with `disputed` places added."""
        slots = self.packets(tasks.SLOTS)
        if disputed is not None:
            slots = slots.unionByName(disputed.mapInArrow(self.input.slots, tasks.PACKETS))
        found = slots.repartitionById(self.input.queue_tasks, "place").mapInArrow(
            tasks.look_at_queues(settled_end), tasks.PACKETS
        )
        return joined((row.data for row in found.collect()), QUEUE_RANGE)

    @cached_property
    def doubts(self) -> Rows:
        """Doubts about what groups read, reading by reading."""
        found = (
            self.packets(tasks.READINGS)
            .repartitionById(self.input.queue_tasks, "place")
            .mapInArrow(tasks.look_at_readings, tasks.PACKETS)
        )
        return doubts(joined((row.data for row in found.collect()), READ))

    @cached_property
    def readers(self) -> dict[int, list[str | None]]:
        """The groups that anything was delivered to, or that say where they are, by number."""
        named: dict[int, list[str | None]] = {}
        for group in self.summary.groups | self.summary.readers:
            named.setdefault(int(hashed(pa.array([group or ""]))[0]), []).append(group)
        return named

    @cached_property
    def logged(self) -> dict[tuple[int, int], int]:
        """The highest offset at which any log has a group go on, by group and queue."""
        found: dict[tuple[int, int], int] = {}
        for broker, group, topic, queue_id, offset in self.summary.logged:
            place = (
                int(hashed(pa.array([group]))[0]),
                int(queue_numbers(broker, [(topic, queue_id)])[0]),
            )
            found[place] = max(offset, found.get(place, 0))
        return found

    @cached_property
    def derived(self) -> list[tuple[int, list[Difference]]]:
        """For each replica: how much of its derived files there is, and what is unlike its log."""
        replicas = self.members.replicas
        several = min(len(replicas), DERIVED_TASKS_MAX)
        numbers = self.session.range(0, len(replicas), 1, several)
        look = numbers.mapInArrow(tasks.derived(replicas), tasks.PACKETS)
        rows = sorted(look.collect(), key=lambda row: row.place)
        return [msgspec.json.decode(row.data, type=tuple[int, list[Difference]]) for row in rows]

    @cached_property
    def lives(self) -> Lives:
        """The lives of the history's topics that were deleted."""
        return Lives(tasks.deletions(self.summary.acts, self.topics))

    @property
    def falls(self) -> dict[str, int]:
        """Clients whose clocks fell, and how far."""
        return falls(self.summary.lines)

    @cached_property
    def unreadable(self) -> dict[str, int]:
        """How many lines of each file say nothing, where any does."""
        return unreadable(self.summary.lines)

    @cached_property
    def is_ended(self) -> bool:
        """Whether the history was closed in order, so that nothing of the run came later."""
        return is_ended(self.summary.lines)

    @cached_property
    def silent(self) -> list[str]:
        """The clients that were started, and whose files are not there."""
        said = self.summary.clients | {writer_of(look.file) for look in self.summary.lines}
        said |= {name.rpartition(".")[0] for name in said}
        return sorted(self.summary.started - said)

    @cached_property
    def through(self) -> dict[int, str]:
        """The groups that by a log are through with what they popped, by number."""
        names = sorted(self.summary.through)
        return {int(hashed(pa.array([name]))[0]): name for name in names}

    def close(self) -> None:
        """Free the memory of what was found."""
        if "findings" in self.__dict__:
            self.findings.unpersist()

    def of_segments(
        self, level: str, columns: Sequence[str] = (), *, merge: bool = False
    ) -> DataFrame:
        """The rows of the data source `dledger`, without the processes that it takes to plan it."""
        schema = row_schema(level, columns)
        reader = SegmentReader(self.members.replicas, level, schema, verify=True, merge=merge)
        return self._numbered(reader.partitions()).mapInArrow(
            tasks.rows_of_segments(reader), schema
        )

    def _numbered(self, parts: Sequence[object]) -> DataFrame:
        """The number of each part, for a task of its own, or in a brief audit for a task a core.

        Each later query of what the parts say has as many tasks.
        """
        cores = self.session.sparkContext.defaultParallelism
        several = min(len(parts), cores) if self.brief else len(parts)
        return self.session.range(0, len(parts), 1, max(1, several))
