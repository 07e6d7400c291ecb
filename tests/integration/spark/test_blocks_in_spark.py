"""Python of the pages that needs Spark does as the page says, word by word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from blocks import program
from pyspark.sql import SparkSession

from mqclient import Message
from mqlocal import local_cluster_in_thread
from mqspark.testing.synthetic import Run, write_run

ADDRESSES = ("10.0.0.1:9876;10.0.0.2:9876", "10.0.0.1:9876")


def test_a_topic_is_read_and_written(session: SparkSession, tmp_path: Path) -> None:
    """The block of docs/how-to/spark.md reads and writes a topic, as table and watched stream."""
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.admin() as admin, cluster.producer("P") as producer:
            admin.topics.update("Bills")
            for number in range(3):
                producer.send(Message("Orders", b"order %d" % number, keys=f"k{number}"))
        names: dict[str, Any] = {"spark": session}
        for page, has in (
            ("spark.md", "readStream"),
            ("spark.md", "writeStream"),
            ("spark.md", "with watch("),
        ):
            text = program(page, has).text.replace("9400", "0")
            for address in ADDRESSES:
                text = text.replace(f'"{address}"', f'"{cluster.namesrv_addr}"')
            exec(text.replace("/checkpoints", str(tmp_path)), names)  # noqa: S102
        names["query"].stop()
        with cluster.admin() as admin:
            messages = admin.topics.status("Bills").messages

    assert names["table"].columns[:2] == ["key", "value"]
    assert messages == 6


def test_the_files_of_replicas_are_a_table(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The block of docs/explanation/audit.md shows replicas' messages by topic and queue."""
    write_run(Run(messages=200, queues=4, batch=20), tmp_path)
    text = program("audit.md", "open_session").text
    for number in range(2):  # Spark's own processes look from their own folder.
        text = text.replace(f"n{number}/store", str(tmp_path / f"broker-a-n{number}"))
    exec(text, {})  # noqa: S102 - the page's own text

    assert {"n0", "n1"} <= set(capsys.readouterr().out.replace("|", " ").split())
