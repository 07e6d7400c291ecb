"""Log lines of events, once each: no warning of a healthy start, one of an outage."""

from __future__ import annotations

import traceback
from typing import Any

import trio

from dledger.testing.logs import capture_logs
from mqclient import Message, PopConsumer
from mqlocal import LocalCluster, local_cluster


def warnings(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["log_level"] not in ("debug", "info")]


async def with_topic(cluster: LocalCluster) -> None:
    async with cluster.admin() as admin:
        await admin.topics.update("T", read_queues=8, write_queues=8)


async def test_a_healthy_start_logs_no_warning() -> None:
    """A healthy start of servers and clients logs no warning, up to the first messages."""
    with capture_logs() as lines:
        async with local_cluster(replicas=3, groups=2) as cluster:
            await with_topic(cluster)
            async with (
                cluster.producer("P") as producer,
                cluster.consumer("G", {"T": "*"}) as consumer,
                PopConsumer(cluster.namesrv_addr, "H", {"T": "*"}) as popping,
            ):
                for number in range(8):
                    await producer.send(Message("T", b"%d" % number))
                await consumer.poll(timeout_s=60)
                await popping.poll(timeout_s=60)
                await trio.sleep(45)
    assert warnings(lines) == []


async def test_an_outage_is_told_once_for_each_client() -> None:
    """An outage is logged once for each client, and its end, too."""

    async def handle(_message: object) -> None:
        pass

    async with local_cluster(replicas=3) as cluster, trio.open_nursery() as nursery:
        await with_topic(cluster)
        async with (
            cluster.consumer("G", {"T": "*"}) as consumer,
            PopConsumer(cluster.namesrv_addr, "H", {"T": "*"}) as popping,
        ):
            nursery.start_soon(consumer.run, handle)
            nursery.start_soon(popping.run, handle)
            await trio.sleep(5)
            with capture_logs() as lines:
                dead = [await cluster.kill("leader"), await cluster.kill("leader")]
                await trio.sleep(20)
                for name in dead:
                    await cluster.restart(name)
                await trio.sleep(20)
            nursery.cancel_scope.cancel()
    ours = [line for line in lines if "server" not in line]
    assert [line["event"] for line in warnings(ours)] == ["no leader"] * 2
    ends = [line for line in ours if line["event"] == "leader again"]
    assert [line["after_s"] > 15 for line in ends] == [True, True]


async def test_a_handlers_failure_has_its_traceback() -> None:
    """A handler's failure is logged with the application's line, in pull and in POP."""

    async def handle(_message: object) -> None:
        raise LookupError("not in my table")

    async with local_cluster(replicas=1) as cluster, trio.open_nursery() as nursery:
        await with_topic(cluster)
        async with (
            cluster.producer("P") as producer,
            cluster.consumer("G", {"T": "*"}) as consumer,
            PopConsumer(cluster.namesrv_addr, "H", {"T": "*"}) as popping,
        ):
            await producer.send(Message("T", b"x"))
            with capture_logs() as lines:
                nursery.start_soon(consumer.run, handle)
                nursery.start_soon(popping.run, handle)
                await trio.sleep(3)
            nursery.cancel_scope.cancel()
    failures = [line for line in lines if line["event"] == "message not handled"]
    assert len(failures) >= 2
    for line in failures:
        error = line["exc_info"]
        assert isinstance(error, LookupError)
        assert traceback.extract_tb(error.__traceback__)[-1].name == "handle"
