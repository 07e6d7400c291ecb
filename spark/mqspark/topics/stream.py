"""A stream of topics for Spark's structured streaming. The checkpoint alone says where it goes on;
brokers know it, if asked to.

Spark calls this object in one process of the driver for as long as the query runs, and copies of it
on workers. It remembers nothing that a restart needs: the target of `Trigger.AvailableNow`, which a
restarted query sets anew, and the positions that the group was given last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource as limits

from dledger.errors import DledgerError
from dledger.observe import get_logger
from dledger.remoting.json_dialect import MessageQueue
from mqclient import NoLeader
from mqclient.blocking import RangeReader
from mqclient.ranges.pieces import TRUNCATED
from mqspark.limits import TRUNCATION_CHECKED_S
from mqspark.topics.losses import report
from mqspark.topics.options import Options
from mqspark.topics.planning import Known, Loss, advance, limit, ranges, tasks
from mqspark.topics.positions import Position, Positions, from_json, to_json
from mqspark.topics.reading import partitions_of, read_ranges
from mqspark.topics.topics import beginning, first_messages, look, reader_for

log = get_logger(__name__)

Json = Mapping[str, Any]


class TopicStream(DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    """The stream that Spark plans, runs and commits."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._reader: RangeReader | None = None
        self._target: Known | None = None
        self._group_at: Positions | None = None

    @property
    def _brokers(self) -> RangeReader:
        if self._reader is None:
            self._reader = reader_for(self._options).open()
        return self._reader

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        known = self._target or look(self._brokers, self._options, all_of=True)
        return to_json(beginning(self._brokers, self._options, known))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """The query ends where the queues end now."""
        self._target = look(self._brokers, self._options, all_of=True)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """How much a batch may read, as Spark hands it back to `latestOffset`."""
        if self._options.rows_max is not None:
            return limits.ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return limits.ReadMaxBytes(self._options.bytes_max)
        return limits.ReadAllAvailable()

    def latestOffset(self, start: Json, limit: Any) -> dict[str, Any]:  # noqa: N802 - as above
        """Where the next batch ends. Raises DataLoss if what it would read is gone."""
        begin = from_json(start)
        self._tell_group(begin)  # Spark asks when the batch that ended there is in the checkpoint
        end, losses = self._advance(begin)
        for loss in losses:
            report(self._options, f"{loss.queue}\n{loss.life}\n{loss.begin}", [loss])
        return to_json(self._limited(begin, end, limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Where the queues end now, for the query's progress."""
        try:
            known = look(self._brokers, self._options, all_of=False)
        except (DledgerError, NoLeader) as error:
            log.warning("ends not reported", reason=str(error))
            return None
        return to_json({queue: Position(b.end, b.life) for queue, b in known.bounds.items()})

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch: they follow from `start`, `end` and the options alone."""
        options = self._options
        positions = from_json(start), from_json(end)
        return partitions_of(tasks(*positions, options.min_partitions, options.task_records_max))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a task's ranges, on a worker."""
        return read_ranges(partition, self._options, self._schema)

    def commit(self, end: Json) -> None:
        """A batch is in the checkpoint: Spark says so when it begins the next one."""
        self._tell_group(from_json(end))

    def stop(self) -> None:
        """Close the reader, as the query has ended."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _tell_group(self, positions: Positions) -> None:
        """Tell brokers where the query is, for people who watch.

        Only what they show depends on it, so a commit that fails does not end the query.
        """
        if not self._options.group or positions == self._group_at:
            return
        try:
            self._brokers.commit(self._options.group, positions)
            self._group_at = positions
        except (DledgerError, NoLeader) as error:
            log.warning("group not told", group=self._options.group, reason=str(error))

    def _advance(self, begin: Positions) -> tuple[dict[MessageQueue, Position], list[Loss]]:
        """A queue that seems to end too early is looked at twice: an old leader may have been
        asked that does not know yet that it leads no more."""
        end, losses = advance(begin, self._look(begin))
        if any(loss.why == TRUNCATED for loss in losses):
            time.sleep(TRUNCATION_CHECKED_S)
            if self._target is not None:
                self._target = look(self._brokers, self._options, begin, all_of=False)
            end, losses = advance(begin, self._look(begin))
        return end, losses

    def _look(self, begin: Positions) -> Known:
        """The queues as they are now, or were when the query's target was set.

        Then it was not known where the query begins: topics of which only its checkpoint knows are
        asked for here, to see whether they are gone.
        """
        target = self._target
        pairs = {(queue.topic, queue.broker_name) for queue in begin}
        if target is None or not pairs <= {*target.answered}:
            known = look(self._brokers, self._options, begin, all_of=False)
            if target is None:
                return known
            there = {(queue.topic, queue.broker_name) for queue in known.bounds}
            self._target = target = Known(
                target.bounds, {*target.answered, *({*known.answered} - there)}
            )
        return target

    def _limited(
        self, begin: Positions, end: dict[MessageQueue, Position], most: Any
    ) -> dict[MessageQueue, Position]:
        if isinstance(most, limits.ReadAllAvailable):
            return end
        options = self._options
        rows_max = most.max_rows if isinstance(most, limits.ReadMaxRows) else options.rows_max
        bytes_max = most.max_bytes if isinstance(most, limits.ReadMaxBytes) else options.bytes_max
        means = self._mean_bytes(begin, end) if bytes_max is not None else None
        return limit(begin, end, rows_max, bytes_max, means)

    def _mean_bytes(
        self, begin: Positions, end: dict[MessageQueue, Position]
    ) -> dict[MessageQueue, float]:
        """How large the next messages of each queue are: the first ones are looked at."""
        means: dict[MessageQueue, float] = {}
        for each in ranges(begin, end):
            if (table := first_messages(self._brokers, each)) is not None:
                means[each.queue] = len(table.buffer) / len(table)
        return means
