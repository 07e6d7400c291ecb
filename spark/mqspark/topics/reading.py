"""Reads the ranges of a task on a worker: pulled bytes in, Arrow batches out.

A worker is forked, so the connection is opened here, for this task, and closed with it. The next
pull is under way while a batch is made. Small answers, as of brokers that give 32 messages at a
time, are put together. The bodies of compressed and of large messages are many times their records:
an answer with them makes several batches, so that a worker's memory is bounded.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from dledger.errors import DledgerError
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.record.table import RecordTable
from dledger.world import steady_s
from mqclient import NoLeader, Piece
from mqclient.blocking import RangeReader
from mqclient.limits import HEARTBEAT_REPEAT_S
from mqspark.limits import TOPIC_BATCH_BYTES_MIN
from mqspark.processes.worker import leave_old_objects
from mqspark.topics.columns import BatchMaker
from mqspark.topics.losses import Since, named, report
from mqspark.topics.options import Options
from mqspark.topics.planning import Loss, Range
from mqspark.topics.topics import reader_for


@dataclass
class RangesPartition(InputPartition):
    """The ranges of a task, as Spark hands them to it."""

    ranges: tuple[Range, ...]


def partitions_of(tasks: list[tuple[Range, ...]]) -> list[InputPartition]:
    """The partitions of a batch."""
    return [RangesPartition(each) for each in tasks]


def read_ranges(
    partition: InputPartition | None, options: Options, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The messages of a partition, range after range; none of what Spark makes for a read without
    partitions.

    Raises DataLoss if messages are missing and the options say so.
    """
    if not isinstance(partition, RangesPartition):
        return
    leave_old_objects()
    with reader_for(options) as reader:
        presence = _Presence(reader, options.group)
        for wanted in partition.ranges:
            yield from _read(reader, wanted, options, schema, presence)


def _read(
    reader: RangeReader, wanted: Range, options: Options, schema: pa.Schema, presence: _Presence
) -> Iterator[pa.RecordBatch]:
    maker = BatchMaker(wanted.queue, schema, reader.body, options.tags)
    losses: list[Loss] = []
    held: list[RecordTable] = []
    # Closed before the reader, whatever happens: a pull is under way.
    with closing(_pieces(reader, wanted, options)) as pieces:
        for piece in pieces:
            presence.show(wanted.queue)
            if piece.gaps:
                losses += _losses(wanted, piece)
                report(options, _name(wanted), losses, _since(reader, wanted, piece))
            if piece.table is not None:
                held.append(piece.table)
            if sum(len(table.buffer) for table in held) >= TOPIC_BATCH_BYTES_MIN:
                yield from maker.batches(_together(held))
                held = []
    if held:
        yield from maker.batches(_together(held))


def _pieces(reader: RangeReader, wanted: Range, options: Options) -> Generator[Piece, None, None]:
    return reader.pieces(
        *(wanted.queue, wanted.begin, wanted.end),
        life=wanted.life,
        expression=options.expression,
    )


def _together(tables: list[RecordTable]) -> RecordTable:
    if len(tables) == 1:
        return tables[0]
    return RecordTable(b"".join(table.buffer for table in tables))


def _losses(wanted: Range, piece: Piece) -> list[Loss]:
    return [Loss(wanted.queue, wanted.life, *gap) for gap in piece.gaps]


def _name(wanted: Range) -> str:
    return "\n".join(map(str, (*named(wanted.queue), wanted.life, wanted.begin, wanted.end)))


def _since(reader: RangeReader, wanted: Range, piece: Piece) -> Since | None:
    """The first offset and the time of the queue's first message, if they can be had."""
    if piece.first_there < 0:
        return None
    try:
        return Since(piece.first_there, reader.stored_ms(wanted.queue))
    except (DledgerError, NoLeader):
        return None


class _Presence:
    """Shows brokers who reads for a group: "spark:QUERY/BATCH#TASK"."""

    def __init__(self, reader: RangeReader, group: str) -> None:
        self._reader = reader
        self._group = group
        self._shown_s: dict[tuple[str, str], float] = {}
        context = TaskContext.get()
        names = {
            name: (context.getLocalProperty(name) if context is not None else None) or "?"
            for name in ("sql.streaming.queryId", "streaming.sql.batchId")
        }
        task = context.partitionId() if context is not None else 0
        self._client_id = f"spark:{'/'.join(names.values())}#{task}"

    def show(self, queue: MessageQueue) -> None:
        """Once in a while, for each topic and broker group whose queues are read."""
        if not self._group:
            return
        place = queue.topic, queue.broker_name
        if steady_s() - self._shown_s.get(place, -HEARTBEAT_REPEAT_S) >= HEARTBEAT_REPEAT_S:
            self._shown_s[place] = steady_s()
            self._reader.present(self._group, self._client_id, queue)
