"""A driver of its own process: a query from topic to topic, which dies at a step of a batch.

::

    spark-submit sink_driver.py SOURCE TARGET IN OUT CHECKPOINT ROWS_MAX STEP BATCH TASKS_OF TASKS

SOURCE and TARGET are addresses of IN's and OUT's name servers. Each queue has a task. At STEP of
the first batch that is BATCH or later, the driver's Python and JVM are killed: after a task wrote
(staged), before the decision (before), when some of its rows are messages (within), or after our
commit, before Spark's commit log (after). With the step "none" it lives. Executors that run the
first attempts of the first TASKS tasks of batch TASKS_OF are killed when these have written, and
noted in CHECKPOINT.killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mqclient.bulk.deciding import BatchDecider
from mqspark.session import open_session
from mqspark.topics.data_source import RocketmqSource
from mqspark.topics.sink_once import running


def dying(
    step: str, batch: int, tasks_of: int, tasks: int, pids: tuple[int, ...], killed: str
) -> type[RocketmqSource]:
    """The source whose sink has the driver killed at a step."""

    def die() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    class Dying(RocketmqSource):
        def streamWriter(  # noqa: N802 - Spark's name
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            writer = super().streamWriter(schema, overwrite)
            write, commit = writer.write, writer.commit

            def dies_writing(rows: Iterator[Any]) -> WriterCommitMessage:
                message = write(rows)
                context = TaskContext.get()
                assert context is not None
                number = running().batch
                if step == "staged" and number >= batch:
                    die()
                is_first = context.partitionId() < tasks and not context.attemptNumber()
                if number == tasks_of and is_first:
                    with Path(killed).open("a") as file:
                        file.write(f"{executor()}\n")
                    os.kill(executor(), signal.SIGKILL)
                return message

            def dies_committing(messages: list[WriterCommitMessage | None], number: int) -> None:
                is_here = number >= batch
                if is_here and step == "before":
                    die()
                if is_here and step == "within":
                    publish = BatchDecider._publish

                    async def dies(decider: BatchDecider, group: str, places: Any) -> None:
                        await publish(decider, group, places[: len(places) // 2])
                        die()

                    BatchDecider._publish = dies  # type: ignore[method-assign]
                commit(messages, number)
                if is_here and step == "after":
                    die()

            writer.write, writer.commit = dies_writing, dies_committing  # type: ignore[method-assign]
            return writer

    return Dying


def executor() -> int:
    """The process that started the daemon of this worker: the executor's JVM."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


def main() -> None:
    """Run the query until all that the topic has is written, or it dies."""
    source, target, read, written, checkpoint, rows_max, step, *numbers = sys.argv[1:]
    batch, tasks_of, tasks = map(int, numbers)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    session = open_session("sink", brief=True)
    pids = (os.getppid(), os.getpid())
    session.dataSource.register(dying(step, batch, tasks_of, tasks, pids, f"{checkpoint}.killed"))
    stream = session.readStream.format("rocketmq").options(
        nameServer=source, subscribe=read, startingOffsets="earliest",
        maxOffsetsPerTrigger=rows_max, minPartitions=1,
    )  # fmt: skip
    writing = stream.load().select("key", "value").writeStream.format("rocketmq")
    writing = writing.options(nameServer=target, topic=written, delivery="exactly-once")
    query = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
