"""The audit on a Spark cluster: a master and two workers, each a JVM of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pyspark
import pytest
from pyspark.sql import SparkSession

from dledger.verdict.form import read_verdict
from mqchaos.cluster.processes import free_ports
from mqspark.auditing import judge_run
from mqspark.session import COMPILE_QUICKLY, TRUST_CLASSES, find_java, prepare_java_home
from mqspark.testing import planting
from mqspark.testing.synthetic import Run, write_run

pytestmark = [pytest.mark.slow, pytest.mark.spark]

RUN = Run(messages=200, queues=4, batch=20, segment_bytes=65_536)
SPARK = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[3]
STARTS_S = 120.0


#: Each Java of the cluster lives for one small audit.
QUICK = f"{TRUST_CLASSES}{COMPILE_QUICKLY}-XX:+UseSerialGC"


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
    """Until something listens there."""
    deadline = time.monotonic() + STARTS_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"nothing listens on {port}")


@contextmanager
def cluster(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Its address, and the environment that a driver needs."""
    master, *others = free_ports(6)
    (directory / "java").mkdir()
    java_home = str(prepare_java_home(directory / "java", find_java()))
    environment = os.environ | {
        "JAVA_HOME": java_home,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
    }
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
        yield address, environment


def test_two_workers_give_the_verdict_of_one_machine(tmp_path: Path, session: SparkSession) -> None:
    """Violations, counts and evidence are the same; and both workers took part."""
    history, stores = write_run(RUN, tmp_path / "run")
    replicas = planting.replicas_of(stores)
    planting.flip(replicas[1], RUN.message_id(42), recompute=True)
    planting.remove(replicas[1], RUN.message_id(77), recompute=False)
    alone = judge_run(session, history, replicas, lambda _: None).written()

    with cluster(tmp_path) as (master, environment):
        words = [str(SPARK / "bin" / "spark-submit"), "--master", master]
        words += ["--driver-java-options", QUICK, "--driver-memory", "1g"]
        for setting in (
            "executor.memory=900m",
            "executor.cores=1",
            f"executor.extraJavaOptions={QUICK}",
            "ui.enabled=false",
        ):
            words += ["--conf", f"spark.{setting}"]
        words += [str(ROOT / "spark" / "mqspark" / "mqaudit.py"), "--history", str(history)]
        words += [word for store in stores for word in ("--store", str(store))]
        words += ["--report", str(tmp_path / "report")]
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    assert done.returncode == 1, done.stderr[-3000:]
    found = read_verdict(tmp_path / "report")
    assert {each.number for each in found.properties if not each.holds} == {1, 2, 5, 13}
    assert msgspec.to_builtins(found) == msgspec.to_builtins(alone)
    took_part = [any((tmp_path / f"work-{number}").rglob("stderr")) for number in (1, 2)]
    assert took_part == [True, True]
