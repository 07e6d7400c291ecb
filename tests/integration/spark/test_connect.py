"""Topics through a local Spark Connect server.

The test takes half a minute; its short form is the same reads and writes in one process
(`test_topics.py`, `test_sink_once.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqlocal import local_cluster_in_thread
from mqspark.session import find_java, prepare_java_home

pytestmark = pytest.mark.long

ROWS = 100
CLIENT = Path(__file__).with_name("connect_client.py")
LIBRARIES = Path(__file__).parents[3] / ".cache" / "spark-connect"
NEEDED = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "zstandard")
"""Requirements of PySpark's extra `connect`, beside what is installed."""


@pytest.fixture(scope="module")
def libraries() -> Path:
    """Libraries that a client of Spark Connect needs, fetched once."""
    if not (LIBRARIES / "grpc_status").is_dir():
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--upgrade"]
        done = subprocess.run(
            [*words, "--target", str(LIBRARIES), *NEEDED],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"can't be had: {done.stderr[-300:]}")
    return LIBRARIES


def test_a_connect_client_writes_copies_and_reads_topics(tmp_path: Path, libraries: Path) -> None:
    """A Connect client reads and writes topics, in batch and as a stream, each row once.

    The source is found by its name alone.
    """
    (tmp_path / "java").mkdir()
    environment = os.environ | {
        "JAVA_HOME": str(prepare_java_home(tmp_path / "java", find_java())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The server takes a free port then.
        "SPARK_TESTING": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(libraries),
    }
    with local_cluster_in_thread(replicas=1, groups=2) as brokers:
        with brokers.admin() as admin:
            for topic in ("In", "Out"):
                admin.topics.update(topic, read_queues=2, write_queues=2)
        words = [brokers.namesrv_addr, "In", "Out", str(ROWS), str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, str(CLIENT), *words],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-ROWS:] == [str(number) for number in range(ROWS)]
