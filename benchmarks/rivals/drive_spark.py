"""Works for `benchmarks/spark`: one Spark session that reads and writes topics of ours and Kafka's.

Runs with an interpreter that has PySpark and this checkout. The arguments are the folder
of Kafka's jars and the number of cores; each line in is a work as JSON, each line out what it took.
The works are functions of this page; what differs between the systems is in `SYSTEMS` alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

DIGITS = 12
LATENCY_STEP_MS = 10
PATIENCE_S = 300
CAUGHT_UP = 1.25
"""Rows of a micro-batch by rows a second, or the reverse."""
WATCHED_EVERY_S = 0.1
RECORDED = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}


class Names(NamedTuple):
    """How a format's options and columns are called."""

    format: str
    address: str
    sent_at: str
    columns: str
    writing: dict[str, str]


KAFKA_WRITING = {"kafka.batch.size": str(256 << 10), "kafka.linger.ms": "5"}
SYSTEMS = {
    "kafka": Names("kafka", "kafka.bootstrap.servers", "timestamp", "", KAFKA_WRITING),
    "ours": Names(
        "rocketmq", "nameServer", "bornTimestamp", "columns", {"delivery": "exactly-once"}
    ),
}
SYSTEMS["ours-at-least-once"] = SYSTEMS["ours"]._replace(writing={"delivery": "at-least-once"})


class Topic(NamedTuple):
    """A topic of one of the systems."""

    spark: SparkSession
    names: Names
    address: str
    topic: str

    def batch(self, *columns: str) -> DataFrame:
        """The topic as a table, from its first message on."""
        reader = self.spark.read.format(self.names.format)
        return reader.options(**self._reading("earliest", columns)).load()

    def stream(self, since: str, *columns: str) -> DataFrame:
        """The topic as a stream, from its `earliest` or `latest` message on."""
        reader = self.spark.readStream.format(self.names.format)
        return reader.options(**self._reading(since, columns)).load()

    def _reading(self, since: str, columns: tuple[str, ...]) -> dict[str, str]:
        """Reading options:

        Spark does not tell a Python source the columns it needs, so ours has one.
        """
        chosen = {self.names.columns: ",".join(columns)} if self.names.columns else {}
        given = {"subscribe": self.topic, "startingOffsets": since}
        return {self.names.address: self.address, **given, **chosen}

    def sink(self, topic: str) -> dict[str, str]:
        """The options of a write."""
        return {self.names.address: self.address, "topic": topic, **self.names.writing}


def summed(rows: DataFrame) -> DataFrame:
    """Count, and the sum of the number at the beginning of each body."""
    number = f"cast(substring(cast(value AS string), 1, {DIGITS}) AS bigint)"
    return rows.selectExpr(f"{number} AS number").selectExpr("count(number)", "sum(number)")


def check(row: tuple[object, ...] | None, count: int) -> None:
    """Each number from 0 on, once."""
    if row is None or tuple(row) != (count, count * (count - 1) // 2):
        raise SystemExit(f"{count} messages were written, and read as {row}")


def write(topic: Topic, count: int, size: int) -> dict[str, float]:
    """Numbers as bodies of this size, by a batch."""
    body = f"concat(lpad(cast(id AS string), {DIGITS}, '0'), repeat('x', {size - DIGITS})) AS value"
    rows = topic.spark.range(count).selectExpr(body)
    with timed() as took:
        writer = rows.write.format(topic.names.format).options(**topic.sink(topic.topic))
        writer.mode("append").save()
    return took


def read(topic: Topic, count: int, size: int) -> dict[str, float]:
    """Read all of a topic by a batch."""
    with timed() as took:
        row = summed(topic.batch("value")).first()
    check(row, count)
    return took


def stream(topic: Topic, count: int, size: int) -> dict[str, float]:
    """Read all of a topic as a stream that ends where the topic ends."""
    with tempfile.TemporaryDirectory() as folder, timed() as took:
        writing = summed(topic.stream("earliest", "value")).writeStream.format("memory")
        writing = writing.queryName("summed").outputMode("complete").trigger(availableNow=True)
        query = writing.option("checkpointLocation", folder).start()
        query.awaitTermination(PATIENCE_S)
        row = topic.spark.table("summed").first()
    check(row, count)
    return took


def latency(topic: Topic, warm_s: float, seconds: float) -> dict[str, float]:
    """Latency from the sending of a message to the end of its micro-batch."""
    step = f"floor(unix_millis({topic.names.sent_at}) / {LATENCY_STEP_MS}) AS step"
    ended: list[tuple[float, int, int]] = []

    def note(batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr(step).groupBy("step").count().collect()
        now_ms = time.time() * 1e3
        ended.extend((now_ms, row[0] * LATENCY_STEP_MS, row[1]) for row in rows)

    with tempfile.TemporaryDirectory() as folder:
        writing = topic.stream("latest", topic.names.sent_at).writeStream.foreachBatch(note)
        took = followed(writing.option("checkpointLocation", folder).start(), warm_s, seconds)
    end_ms = ended[-1][0] if ended else 0.0
    late = sorted((now - at, count) for now, at, count in ended if now > end_ms - 1e3 * seconds)
    return took | {
        "latency_ms": percentile(late, 0.5),
        "latency_p99_ms": percentile(late, 0.99),
        "latency_max_ms": percentile(late, 1.0),
    }


def copy(topic: Topic, warm_s: float, seconds: float) -> dict[str, float]:
    """Micro-batches that write to another topic, of messages that come by now."""
    with tempfile.TemporaryDirectory() as folder:
        rows = topic.stream("latest", "value").select("value")
        writing = rows.writeStream.format(topic.names.format)
        writing = writing.options(**topic.sink(f"{topic.topic}-copy"))
        return followed(writing.option("checkpointLocation", folder).start(), warm_s, seconds)


def followed(query: StreamingQuery, warm_s: float, seconds: float) -> dict[str, float]:
    """How long the micro-batches of a query took, once it has caught up."""
    try:
        until = time.monotonic() + PATIENCE_S
        while query.isActive and not _caught_up(query) and time.monotonic() < until:
            query.awaitTermination(1)
        query.awaitTermination(int(warm_s))
        batches: dict[int, tuple[float, float, int]] = {}
        began = time.monotonic()
        seen = {each["batchId"] for each in query.recentProgress}
        while (now := time.monotonic()) < began + (seconds if batches else PATIENCE_S):
            query.awaitTermination(1)
            for each in query.recentProgress:
                if each["batchId"] not in seen and each["numInputRows"]:
                    took = each["durationMs"]
                    row = took["triggerExecution"], took.get("addBatch", 0), each["numInputRows"]
                    batches[each["batchId"]] = row
    finally:
        query.stop()
    if not batches:
        raise SystemExit(f"no micro-batch ended within {PATIENCE_S} s")
    batch = sorted((row[0], 1) for row in batches.values())
    return {
        "batches": len(batches),
        "rows_per_s": sum(row[2] for row in batches.values()) / (now - began),
        "batch_ms": percentile(batch, 0.5),
        "batch_p99_ms": percentile(batch, 0.99),
        "add_ms": percentile(sorted((row[1], 1) for row in batches.values()), 0.5),
    }


def _caught_up(query: StreamingQuery) -> bool:
    """Whether two micro-batches have kept pace with the producer. The first one with rows starts
    Python's processes, and the next ones read what came meanwhile."""
    paces = [
        each["processedRowsPerSecond"] / each["inputRowsPerSecond"]
        for each in query.recentProgress
        if each["numInputRows"] and each["inputRowsPerSecond"]
    ]
    return sum(1 / CAUGHT_UP <= pace <= CAUGHT_UP for pace in paces) >= 2


def percentile(values: list[tuple[float, int]], share: float) -> float:
    """The value below which this share lies, of values and how many of each, sorted."""
    left = share * sum(count for _, count in values)
    for value, count in values:
        left -= count
        if left <= 0:
            return value
    return 0.0


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """The seconds that a block takes, and the CPU time of the JVM and all that it started."""
    took: dict[str, float] = {}
    began, before = time.monotonic(), family_ticks()
    seen, ended = dict(before), threading.Event()

    def watch() -> None:
        while not ended.wait(WATCHED_EVERY_S):
            seen.update(family_ticks())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield took
    finally:
        took["seconds"] = time.monotonic() - began
        ended.set()
        watching.join()
    seen.update(family_ticks())
    ticks = sum(found - before.get(process, 0) for process, found in seen.items())
    took["cpu_s"] = ticks / os.sysconf("SC_CLK_TCK")


def family_ticks() -> dict[tuple[int, str], int]:
    """CPU time of the JVM and its Python workers, by process and its start.

    Spark's Python daemon ignores the ends of its workers, so the kernel adds their time to no
    other process: a worker is counted as long as it is there.
    """
    left, ticks = children_of(os.getpid()), {}
    while left:
        process = left.pop()
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks[process, fields[19]] = sum(map(int, fields[11:13]))
            left += children_of(process)
    return ticks


def children_of(process: int) -> list[int]:
    """The processes that a process has started, and that are there."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for children in Path(f"/proc/{process}").glob("task/*/children"):
            found += map(int, children.read_text().split())
    return found


WORKS: dict[str, Callable[..., dict[str, float]]] = {
    each.__name__: each for each in (write, read, stream, latency, copy)
}


def main() -> None:
    """Do the works that come in as lines, and print the figures of each."""
    jars, cores = sys.argv[1:]
    # Spark's own words go to the log: the lines out are results.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master(f"local[{cores}]").config(map=RECORDED)
    given = ",".join(map(str, Path(jars).glob("*.jar")))  # what Spark has itself comes first
    builder = builder.config("spark.jars", given)
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    for line in sys.stdin:
        asked = json.loads(line)
        topic = Topic(spark, SYSTEMS[asked["system"]], asked["address"], asked["topic"])
        print(json.dumps(WORKS[asked["work"]](topic, *asked["with"])), file=out, flush=True)
    spark.stop()


main()
