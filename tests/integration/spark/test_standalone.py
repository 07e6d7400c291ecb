"""The audit, and topics, on a Spark cluster of a master and two workers.

In the short form the master and the workers are parts of the driver's process, and only executors
have processes of their own. The long form has a process for each, as clusters of users do.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyspark
import pytest
from pyspark.sql import SparkSession

from dledger.verdict.form import read_verdict
from mqchaos.cluster.processes import free_ports
from mqclient import Columns
from mqclient.blocking import BulkWriter, RangeReader
from mqclient.models import messages_in
from mqlocal import local_cluster_in_thread
from mqspark.auditing import judge_run
from mqspark.session import SHORT_LIVED, find_java, prepare_java_home
from mqspark.testing import planting
from mqspark.testing.synthetic import Run, write_run

RUN = Run(messages=200, queues=4, batch=20, segment_bytes=65_536)
SPARK = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[3]
ROWS = 200
STARTS_S = 120.0


@contextmanager
def server(words: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """A part of the cluster, ended with the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), *words],
            env=environment,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port: int) -> None:
    """Wait until something listens on `port`."""
    deadline = time.monotonic() + STARTS_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"nothing listens on {port}")


def environment_of(directory: Path) -> dict[str, str]:
    """The environment of a driver, and of the servers, whose Spark lies in `directory`.

    Workers within a driver keep the output of programs there.
    """
    home = directory / "spark"
    home.mkdir()
    for part in SPARK.iterdir():
        if part.name != "work":
            (home / part.name).symlink_to(part)
    (directory / "java").mkdir()
    java_home = str(prepare_java_home(directory / "java", find_java()))
    return os.environ | {
        "JAVA_HOME": java_home,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
    }


@contextmanager
def cluster(directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of a standalone cluster, whose parts end with the block."""
    master, *others = free_ports(6)
    package, address = "org.apache.spark.deploy", f"spark://127.0.0.1:{master}"
    common = ["--host", "127.0.0.1"]
    with ExitStack() as stack:
        ports = ["--port", str(master), "--webui-port", str(others[0])]
        words = [f"{package}.master.Master", *common, *ports]
        stack.enter_context(server(words, environment, directory / "master.log"))
        wait_for(master)
        for number in (1, 2):
            ports = ["--port", str(others[2 * number - 1]), "--webui-port", str(others[2 * number])]
            words = [f"{package}.worker.Worker", *common, *ports, "--cores", "1"]
            words += ["--memory", "1g", "--work-dir", str(directory / f"work-{number}"), address]
            log = directory / f"worker-{number}.log"
            stack.enter_context(server(words, environment, log))
            wait_for(others[2 * number - 1])
        yield address


class Workers(NamedTuple):
    """A cluster, and where each of its workers leaves what its executors say."""

    directory: Path
    master: str
    environment: dict[str, str]
    outputs: tuple[str, str]

    def submit(self, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program by spark-submit."""
        words = [str(SPARK / "bin" / "spark-submit"), "--master", self.master]
        words += ["--driver-java-options", SHORT_LIVED, "--driver-memory", "1g"]
        for setting in (
            "executor.memory=900m",
            "executor.cores=1",
            f"executor.extraJavaOptions={SHORT_LIVED}",
            "ui.enabled=false",
        ):
            words += ["--conf", f"spark.{setting}"]
        return subprocess.run(
            [*words, str(program), *arguments],
            env=self.environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    def took_part(self) -> list[int]:
        """Numbers of programs of which each worker has run a part."""
        return [len([*self.directory.glob(output)]) for output in self.outputs]


@pytest.fixture(
    scope="module", params=["in the driver", pytest.param("processes", marks=pytest.mark.long)]
)
def workers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    directory = tmp_path_factory.mktemp("workers")
    environment = environment_of(directory)
    if request.param == "in the driver":
        outputs = "spark/work/*/0/stderr", "spark/work/*/1/stderr"
        yield Workers(directory, "local-cluster[2,1,1024]", environment, outputs)
    else:
        with cluster(directory, environment) as master:
            outputs = "work-1/*/*/stderr", "work-2/*/*/stderr"
            yield Workers(directory, master, environment, outputs)


def test_two_workers_give_the_verdict_of_one_machine(
    tmp_path: Path, session: SparkSession, workers: Workers
) -> None:
    """Violations, counts and evidence are the same; and both workers took part."""
    history, stores = write_run(RUN, tmp_path / "run")
    replicas = planting.replicas_of(stores)
    planting.flip(replicas[1], RUN.message_id(42), recompute=True)
    planting.remove(replicas[1], RUN.message_id(77), recompute=False)
    alone = judge_run(session, history, replicas, lambda _: None).written()

    before = workers.took_part()
    done = workers.submit(
        ROOT / "spark" / "mqspark" / "mqaudit.py",
        *("--history", str(history), "--report", str(tmp_path / "report")),
        *(word for store in stores for word in ("--store", str(store))),
    )

    assert done.returncode == 1, done.stderr[-3000:]
    found = read_verdict(tmp_path / "report")
    assert {each.number for each in found.properties if not each.holds} == {1, 2, 5, 13}
    assert msgspec.to_builtins(found) == msgspec.to_builtins(alone)
    assert all(after > had for after, had in zip(workers.took_part(), before, strict=True))


@pytest.mark.long
def test_two_workers_copy_a_topic(tmp_path: Path, workers: Workers) -> None:
    """Both workers of a copying stream read and write, and each row is stored once.

    The short form are executors that are killed meanwhile (`test_sink_killed.py`).
    """
    before, driver = workers.took_part(), Path(__file__).with_name("sink_driver.py")
    with local_cluster_in_thread(replicas=1, groups=2) as brokers:
        with brokers.admin() as admin:
            for topic in ("In", "Out"):
                admin.topics.update(topic)
        with BulkWriter(brokers.namesrv_addr) as writer:
            writer.write("In", Columns([b"%d" % number for number in range(ROWS)]))
            writer.flush()
        done = workers.submit(
            *(driver, *[brokers.namesrv_addr] * 2, "In", "Out", str(tmp_path / "checkpoint")),
            *("100", "none", "0", "-1", "0"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        found = list[int]()
        with RangeReader(brokers.namesrv_addr) as reader:
            for queue, bounds in reader.bounds("Out").queues.items():
                for piece in reader.pieces(queue, bounds.begin, bounds.end):
                    raw = bytes(piece.table.buffer) if piece.table else b""
                    found += [int(message.body) for message in messages_in(raw, "")]
    assert Counter(found) == dict.fromkeys(range(ROWS), 1)
    assert all(after > had for after, had in zip(workers.took_part(), before, strict=True))
