"""A watched session: its queries' lag, and lines of long jobs."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from pages import fetched
from pyspark.sql import SparkSession

from mqclient import Columns
from mqclient.blocking import BulkWriter
from mqlocal import local_cluster_in_thread
from mqspark.topics.watching.listener import Figures
from mqspark.topics.watching.watch import watch

ROWS = 100
WAIT_S = 60.0


def test_a_query_shows_how_far_it_is_behind(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query's lag is shown after each batch, at `/metrics` too, until it ends.

    It goes by what brokers have then. A job that takes long prints lines.
    """
    shown: list[tuple[Any, ...]] = []
    show = Figures.show

    def noted(figures: Figures, *what: Any) -> None:
        show(figures, *what)
        _, page = fetched(f"http://127.0.0.1:{watched.port}/metrics")
        shown.append((*what[1:], page))

    monkeypatch.setattr(Figures, "show", noted)
    with local_cluster_in_thread(replicas=1) as cluster:
        with BulkWriter(cluster.namesrv_addr) as writer:
            writer.write("In", Columns([b"%d" % number for number in range(ROWS)]))
            writer.flush()
        out = io.StringIO()
        with watch(session, cluster.namesrv_addr, port=0, line_after_s=1.0, out=out) as watched:
            stream = session.readStream.format("rocketmq").options(
                nameServer=cluster.namesrv_addr, subscribe="In", startingOffsets="earliest",
                maxOffsetsPerTrigger="40",
            )  # fmt: skip
            query = (
                stream.load().writeStream.format("noop").trigger(availableNow=True)
                .option("checkpointLocation", str(tmp_path)).start()
            )  # fmt: skip
            assert query.awaitTermination(120)
            session.sparkContext.parallelize([0], 1).foreach(lambda _: time.sleep(4))
            wait_for(lambda: len(shown) >= 3)
            wait_for(lambda: "mqspark_batch{" not in str([*watched.registry.collect()]))
    behind = [lag.messages for _, (lag,), _ in shown]
    assert behind[0] in range(ROWS - 43, ROWS - 36)
    assert behind[-1] == 0
    for (batch, _, _), (lag,), page in shown:
        assert lag.topic == "In"
        assert bool(lag.messages) == bool(lag.size_bytes) == (lag.seconds > 0)
        labels = f'query="{query.id}"'
        assert f"mqspark_batch{{{labels}}} {batch}.0" in page
        assert f'mqspark_lag_messages{{{labels},topic="In"}} {lag.messages}.0' in page
    assert " of 1 tasks, " in out.getvalue()


def wait_for(condition: Any) -> None:
    """Spark tells listeners a little later."""
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.1)
