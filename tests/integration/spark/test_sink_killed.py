"""Kills of drivers, executors and leaders under a query from topic to topic lose no row.

The short form kills the driver within a decision, an executor and a leader; `test_sink_once.py`
ends queries at each step without processes. The long form kills the driver at each step of a
micro-batch, and then goes on at random, with a leader killed every 10 s, from a topic of ours and
from one of Apache RocketMQ (docs/explanation/spark-sink.md):

    SINK_ROWS=2000000 ./dev test --all tests/integration/spark/test_sink_killed.py
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest
import trio
from clusters import serving_cluster

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import Probe, serving
from mqchaos.report import judge
from mqclient import Admin, Columns, Message, Producer
from mqclient.blocking import BulkWriter, RangeReader
from mqclient.models import messages_in
from mqspark.session import SHORT_LIVED, find_java, prepare_java_home

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))

from stock_servers import registered, servers

SPARK = Path(pyspark.__file__).parent
DRIVER = Path(__file__).with_name("sink_driver.py")
STEPS = ("staged", "before", "within", "after")
"""Steps of a micro-batch at which a driver dies."""
TASKS = 4
"""Tasks of a batch: each queue has one."""
KEYS = 7
LIFE_S = 600.0
SEED = int(os.environ.get("SINK_SEED", "20261127"))
ROWS = int(os.environ.get("SINK_ROWS", "200000"))
"""Rows of the long form."""
BATCHES = 40
KILL_EVERY_S, AWAY_S = 10.0, 2.0


@contextmanager
def topics(directory: Path, rows: int) -> Iterator[Cluster]:
    """Two groups of three, and a topic with rows to copy."""
    with serving_cluster(directory, groups=2) as cluster:
        trio.run(make_topics, cluster)
        with BulkWriter(cluster.layout.namesrv_addr) as writer:
            for begin in range(0, rows, 10_000):
                numbers = range(begin, min(begin + 10_000, rows))
                keys = [f"k{number % KEYS}" for number in numbers]
                writer.write("In", Columns([b"%d" % number for number in numbers], keys))
            writer.flush()
        yield cluster


async def make_topics(cluster: Cluster) -> None:
    async with cluster.admin() as admin:
        for topic in ("In", "Out"):
            await admin.topics.update(topic, read_queues=2, write_queues=2)


async def kill_leader(cluster: Cluster, group: str) -> str:
    """SIGKILL the leader of a broker group; returns its name."""
    async with cluster.pool() as pool:
        leader = (await Probe(cluster, pool).wait_for_leader(group)).node.name
    cluster.kill(leader)
    return leader


class Query:
    """A query's checkpoint, and the drivers that run it, one after the other."""

    def __init__(self, source: str, target: str, directory: Path) -> None:
        self.addresses, self.directory = (source, target), directory
        self.checkpoint = directory / "checkpoint"
        home = directory / "java"
        home.mkdir()
        self._environment = os.environ | {
            "JAVA_HOME": str(prepare_java_home(home, find_java())),
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
        }
        self.lives = 0

    @property
    def committed(self) -> int:
        """The last batch in Spark's commit log."""
        commits = self.checkpoint / "commits"
        names = [path.name for path in commits.iterdir()] if commits.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def live(
        self, step: str, rows_max: int, batch: int = 0, tasks_of: int = -1, tasks: int = TASKS
    ) -> None:
        """The life of a driver, which dies at a step of a batch; before, executors of the first
        tasks of batch `tasks_of` do, of which there are two, or one for a single task. Spark itself
        ends a query, too, if a Python worker is not there within 10 s: then another driver begins.
        """
        expected = 0 if step == "none" else -signal.SIGKILL
        while (found := self._live(step, rows_max, batch, tasks_of, tasks))[0] != expected:
            assert "Python worker failed to connect back" in found[1], found[1][-4000:]

    def _live(
        self, step: str, rows_max: int, batch: int, tasks_of: int, tasks: int
    ) -> tuple[int, str]:
        """A driver's exit status, and its log."""
        self.lives += 1
        master = "local[2]" if tasks_of < 0 else f"local-cluster[{min(tasks, 2)},1,512]"
        words = [
            *(str(SPARK / "bin" / "spark-submit"), "--master", master),
            *("--driver-java-options", SHORT_LIVED),
            *("--conf", f"spark.executor.extraJavaOptions={SHORT_LIVED}"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"),
            *(str(DRIVER), *self.addresses, "In", "Out", str(self.checkpoint)),
            *(str(rows_max), step, str(batch), str(tasks_of), str(tasks)),
        ]
        log = self.directory / f"driver-{self.lives}-{step}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                words, env=self._environment, stdout=out, stderr=out, cwd=self.directory,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(LIFE_S)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        print(f"life {self.lives}: {step} in batch {batch}: {status}, {self.committed} committed")
        return status, log.read_text()


def rows_of(address: str, topic: str) -> dict[str, list[int]]:
    """The numbers in a topic, by key, in the order of each queue."""
    by_key: dict[str, list[int]] = {}
    with RangeReader(address) as reader:
        for queue, bounds in reader.bounds(topic).queues.items():
            at = bounds.begin
            while at < bounds.end:
                piece = reader.read(queue, at, bounds.end)
                at = piece.next_offset
                for message in messages_in(bytes(piece.table.buffer), "") if piece.table else ():
                    by_key.setdefault(message.keys, []).append(int(message.body))
    return by_key


def check(cluster: Cluster, rows: int) -> None:
    """Assert that each row is in the topic once, and those of a key in order."""
    found = rows_of(cluster.layout.namesrv_addr, "Out")
    assert found == {f"k{key}": [*range(key, rows, KEYS)] for key in range(min(KEYS, rows))}


@pytest.mark.parametrize(
    ("steps", "batches"), [(("within",), 2), pytest.param(STEPS, 3, marks=pytest.mark.long)]
)
def test_each_row_is_there_once_whatever_is_killed(
    tmp_path: Path, steps: Sequence[str], batches: int
) -> None:
    """Kills of the driver at steps of a batch, of a leader and an executor lose no row."""
    rows = 400
    with topics(tmp_path / "cluster", rows) as cluster:
        query = Query(address := cluster.layout.namesrv_addr, address, tmp_path)
        away = ""
        for step in steps:
            query.live(step, rows // batches, query.committed + 1)
            if away:
                cluster.start([away])
            trio.run(serving, cluster)
            away = trio.run(kill_leader, cluster, cluster.layout.brokers[steps.index(step) % 2])
        tasks = 1 if len(steps) == 1 else TASKS  # an executor takes some ten seconds to start
        query.live("none", rows // batches, tasks_of=query.committed + 1, tasks=tasks)
        assert (tmp_path / "checkpoint.killed").read_text()
        check(cluster, rows)


@pytest.mark.long
@pytest.mark.alone
def test_many_rows_are_there_once_while_all_is_killed(tmp_path: Path) -> None:
    """Rows are stored once while a leader dies every 10 s, and drivers and executors at random."""
    with topics(tmp_path / "cluster", ROWS) as cluster:
        copy_while_all_is_killed(cluster.layout.namesrv_addr, cluster, tmp_path)
        check(cluster, ROWS)
    audit(cluster, tmp_path / "report")


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.conformance
def test_many_rows_of_rocketmq_are_there_once_while_all_is_killed(tmp_path: Path) -> None:
    """Rows of a topic of Apache RocketMQ 5 are copied under the same kills."""
    stock, ours = servers("5.5.0", tmp_path / "rocketmq"), topics(tmp_path / "cluster", 0)
    with stock as source, ours as cluster:
        trio.run(registered, source)
        trio.run(send_rows, source)
        copy_while_all_is_killed(source, cluster, tmp_path)
        # A send that RocketMQ answered late was repeated, and is in the topic twice.
        sent = rows_of(source, "In")
        assert {key: sorted({*numbers}) for key, numbers in sent.items()} == {
            f"k{key}": [*range(key, ROWS, KEYS)] for key in range(KEYS)
        }
        assert rows_of(cluster.layout.namesrv_addr, "Out") == sent
    audit(cluster, tmp_path / "report")


async def send_rows(source: str) -> None:
    """A topic of a stock server with rows to copy."""
    async with Admin(source) as admin:
        await admin.topics.update("In", read_queues=4, write_queues=4)
    async with Producer(source, "P", timeout_s=LIFE_S) as producer:
        for number in range(ROWS):
            key = f"k{number % KEYS}"
            await producer.send_soon(Message("In", b"%d" % number, keys=key), key=key)
        await producer.flush()


def copy_while_all_is_killed(source: str, cluster: Cluster, directory: Path) -> None:
    """Copy a topic of `source` into the cluster, whose leaders die meanwhile."""
    rng = random.Random(SEED)
    print(f"seed {SEED}, {ROWS} rows")
    ended = threading.Event()
    killer = threading.Thread(target=kill_leaders, args=(cluster, rng.random(), ended))
    killer.start()
    query = Query(source, cluster.layout.namesrv_addr, directory)
    try:
        while query.committed < BATCHES * 3 // 4:
            tasks_of = query.committed + 1
            batch = tasks_of + rng.randrange(1, BATCHES // 8)
            query.live(rng.choice(STEPS), ROWS // BATCHES, batch, tasks_of)
        query.live("none", ROWS // BATCHES)
    finally:
        ended.set()
        killer.join()
    trio.run(serving, cluster)


def audit(cluster: Cluster, report: Path) -> None:
    """`mqaudit` finds nothing in the files of any replica: batches are whole, and in order."""
    command = judge.command(map(cluster.store, cluster.layout.nodes), report)
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def kill_leaders(cluster: Cluster, seed: float, ended: threading.Event) -> None:
    """Kill one every some seconds, and start it again a little later."""
    rng = random.Random(seed)
    while not ended.wait(KILL_EVERY_S - AWAY_S):
        away = trio.run(kill_leader, cluster, rng.choice(cluster.layout.brokers))
        time.sleep(AWAY_S)
        cluster.start([away])
