"""apache/rocketmq-exporter, unmodified, tells all its figures beside a cluster of ours.

The exporter is on no package registry, only as source, so it is not fetched here. Build it from
<https://github.com/apache/rocketmq-exporter> with `mvn -DskipTests package`, which takes the rest
from Maven Central, and copy `target/rocketmq-exporter-*-exec.jar` to `JAR`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
import trio
from clients import CACHE, tool
from pages import fetched

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.processes import free_ports
from mqclient import Admin, Consumer, Message, Producer

JAR = CACHE / "rocketmq-exporter.jar"
PATIENCE_S = 180.0
JOBS = (
    *("collectTopicOffset", "collectProducer", "collectConsumerOffset", "collectBrokerStatsTopic"),
    *("collectBrokerStats", "collectBrokerRuntimeStats"),
)
RUNTIME = (
    *("pmdt_0ms", "pmdt_10stomore", "msg_put_total_today_now", "dispatch_behind_bytes"),
    *("putmessage_entire_time_max", "getmessage_entire_time_max", "put_latency_99", "put_tps10"),
    *("send_threadpool_queue_size", "commitlog_disk_ratio", "commitlogdir_capacity_free"),
    *("remain_transientstore_buffer_numbs", "earliest_message_timestamp"),
)
TOLD = {
    *("rocketmq_broker_tps", "rocketmq_producer_tps", "rocketmq_producer_offset"),
    *("rocketmq_consumer_tps", "rocketmq_consumer_offset", "rocketmq_group_diff"),
    *("rocketmq_group_count", "rocketmq_producer_count", "rocketmq_broker_commitlog_diff"),
    *(f"rocketmq_brokeruntime_{name}" for name in RUNTIME),
}
"""Figures of each job; a job of brokers' states that can't read one value tells none."""


@contextmanager
def exporter(namesrv_addr: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The exporter's figures and its log. It looks each 5 s, in place of once a minute."""
    port, other = free_ports(2)
    java = tool("java", "openjdk-17-jdk-headless")
    command = [
        *(java, f"-Duser.home={folder}", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", str(JAR)),
        f"--rocketmq.config.namesrvAddr={namesrv_addr}",
        f"--server.port={port}",
        f"--grpc.server.port={other}",
        *(f"--task.{job}.cron=*/5 * * * * ?" for job in JOBS),
    ]
    told = folder / "exporter.log"
    with told.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield f"http://127.0.0.1:{port}/metrics", told
        finally:
            process.kill()


def names_at(address: str) -> set[str]:
    """The names of the series that are told now; none while it starts."""
    try:
        status, page = fetched(address)
    except OSError:
        return set()
    lines = page.splitlines() if status == HTTPStatus.OK else ()
    return {line.partition("{")[0] for line in lines if not line.startswith("#")}


async def work(namesrv_addr: str, task_status: trio.TaskStatus[None]) -> None:
    """A producer and a consumer that stay, of messages that come again and again."""
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update("Exported", read_queues=2, write_queues=2)
    async with (
        Producer(namesrv_addr, "ExportedP") as producer,
        Consumer(namesrv_addr, "ExportedG", {"Exported": "*"}) as consumer,
    ):
        task_status.started()
        while True:
            await producer.send(Message("Exported", b"m"))
            await consumer.poll(timeout_s=1)
            await consumer.commit()
            await trio.sleep(0.5)


async def test_the_exporter_tells_all_that_it_can(cluster: Cluster, tmp_path: Path) -> None:
    """The exporter's jobs all have figures, and its log has no error."""
    if not JAR.exists():
        pytest.skip(f"{JAR} is not there: the exporter is published as source only")
    namesrv_addr = cluster.layout.namesrv_addr
    with exporter(namesrv_addr, tmp_path) as (address, log):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: work(namesrv_addr, task_status))
            found: set[str] = set()
            with trio.move_on_after(PATIENCE_S):
                while not found >= TOLD:
                    await trio.sleep(1)
                    found = await trio.to_thread.run_sync(names_at, address)
            nursery.cancel_scope.cancel()
        assert found >= TOLD, f"{TOLD - found} are not told:\n{log.read_text()[-3000:]}"
        assert "ERROR" not in log.read_text()
