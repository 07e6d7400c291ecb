"""Names and labels in dashboards, alerts and docs are those of a running cluster."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from prometheus_client.parser import text_string_to_metric_families as parsed

from dledger.metrics.limits import PAGE_S
from mqclient import Message, PopConsumer
from mqlocal import LocalCluster, local_cluster

DOCS = Path(__file__).parents[3] / "docs"
NAME = re.compile(r"\b(?:rocketmq|dledger)_[a-z0-9_]*[a-z0-9]\b")
SELECTOR = re.compile(r"\b((?:rocketmq|dledger)_[a-z0-9_]+)\{([^}]*)\}")
GROUPING = re.compile(r"\b(?:by|without|on|group_left)\s*\(([^)]*)\)")
BROKER = {"cluster", "node_type", "node_id", "member"}
SUFFIXES = ("_bucket", "_sum", "_count")
ELSEWHERE = {
    "dledger_snapshot_age_seconds": BROKER,
    "dledger_loop_stalls_total": BROKER,
    "dledger_loop_stall_max_seconds": BROKER,
    "dledger_certificate_end_timestamp_seconds": BROKER,
}
"""Names that a broker of its own process tells, or one with a saved state or with TLS."""

LEFT_OUT = "## Names that are not exported"
ROCKETMQ = [
    f"rocketmq_{name}"
    for name in (
        *("messages_in_total", "throughput_in_total", "message_size", "messages_out_total"),
        *("throughput_out_total", "send_to_dlq_messages_total", "rpc_latency_milliseconds"),
        "topic_create_execution_time_milliseconds",
        "consumer_group_create_execution_time_milliseconds",
        *("processor_watermark", "broker_permission", "topic_number", "consumer_group_number"),
        *("producer_connections", "consumer_connections"),
        *("consumer_lag_messages", "consumer_lag_latency_milliseconds"),
        *("consumer_inflight_messages", "consumer_ready_messages"),
        *("consumer_queueing_latency_milliseconds", "commit_messages_total"),
        *("rollback_messages_total", "half_messages", "finish_message_latency_milliseconds"),
        *("pop_buffer_scan_time_consume_milliseconds", "pop_revive_in_message_total"),
        *("pop_revive_out_message_total", "pop_revive_retry_messages_total"),
        *("pop_offset_buffer_size", "pop_checkpoint_buffer_size", "pop_revive_lag_milliseconds"),
        *("pop_revive_latency_milliseconds", "storage_size_bytes", "storage_flush_behind_bytes"),
        *("storage_dispatch_behind_bytes", "storage_message_reserve_time_milliseconds"),
        *("timer_enqueue_lag", "timer_dequeue_lag", "timer_enqueue_latency_milliseconds"),
        *("timer_dequeue_latency_milliseconds", "timing_messages", "timer_enqueue_total"),
        *("timer_dequeue_total", "timer_message_snapshot", "delay_message_latency_seconds"),
        *("rocksdb", "tiered_store", "proxy_up"),
    )
]
"""Names that brokers of RocketMQ 5.5 export; the last ones are beginnings of names."""

Told = Mapping[str, set[str]]
"""Names of series, and the labels that they have."""


async def get(address: str, path: str) -> str:
    """The body that a port answers with."""
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        await stream.send_all(request.encode())
        answer = b"".join([part async for part in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer
    return body.decode()


async def told_by(addresses: list[str], path: str, told: dict[str, set[str]]) -> None:
    """Add what Prometheus reads of a page of each server."""
    for address in addresses:
        for family in parsed(await get(address, path)):
            for sample in family.samples:
                told[sample.name].update(sample.labels)


async def addresses_of(cluster: LocalCluster) -> list[str]:
    """Addresses at which the brokers serve their figures."""
    async with cluster.admin() as admin:
        brokers = [name for name in cluster.servers if name.startswith("broker")]
        states = [await admin.brokers.status(cluster.address(name)) for name in brokers]
    return [state.figures["metricsAddress"] for (state,) in states]


@asynccontextmanager
async def live() -> AsyncIterator[LocalCluster]:
    """A cluster of three in which something of everything happens: sends, delays, transactions,
    groups that pull and that pop, dead letters."""

    def fail(_message: object) -> None:
        raise ValueError("no")

    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    async with local_cluster(replicas=3, settings=settings) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=1, write_queues=1)
            await admin.groups.update("H", retry_max_times=0)
        async with (
            cluster.producer("P", checker=lambda _message: None) as producer,
            cluster.consumer("G", {"T": "*"}) as consumer,
            cluster.consumer("H", {"T": "*"}) as failing,
            PopConsumer(cluster.namesrv_addr, "Q", {"T": "*"}) as popping,
        ):
            for number in range(3):
                await producer.send(Message("T", b"%d" % number))
            await producer.send(Message("T", b"later", delay_s=3600))
            await producer.send(Message("T", b"soon", delay_s=0.05))
            async with producer.transaction(Message("T", b"yes")):
                pass
            async with producer.transaction(Message("T", b"no")) as undone:
                await undone.rollback()
            seen: set[bytes] = set()
            while b"soon" not in seen:
                seen |= {message.body for message in await consumer.poll(timeout_s=60)}
            await popping.poll(timeout_s=60)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(failing.run, fail)
                with trio.fail_after(60):
                    while not await dead_letters(cluster):  # noqa: ASYNC110 - it is asked
                        await trio.sleep(0.05)
                nursery.cancel_scope.cancel()
            async with producer.transaction(Message("T", b"not ended")):
                yield cluster


async def dead_letters(cluster: LocalCluster) -> int:
    """How many messages the failing group has given up."""
    async with cluster.admin() as admin:
        return len(await admin.dead_letters.list("H"))


def expressions() -> Iterator[str]:
    """Queries of the dashboard and of the alerts."""
    board = json.loads((DOCS / "reference" / "monitoring" / "dashboard.json").read_text())
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (each["query"] for each in board["templating"]["list"][1:])
    alerts = (DOCS / "reference" / "monitoring" / "alerts.yml").read_text()
    yield from re.findall(r"expr: (.*?)\n        (?:for|labels):", alerts, re.DOTALL)


def faults(expression: str, told: Told) -> list[str]:
    """Names and labels of an expression that nobody tells."""
    names = NAME.findall(expression)
    every = {label for name in names for label in told.get(name, ())} | {"le", "instance"}
    grouped = [label.strip() for some in GROUPING.findall(expression) for label in some.split(",")]
    selected = [
        (name, label)
        for name, inside in SELECTOR.findall(expression)
        for label in re.findall(r"(\w+)\s*=", inside)
    ]
    return [
        *(name for name in names if name not in told),
        *(label for label in grouped if label and label not in every),
        *(f"{name}{{{label}}}" for name, label in selected if label not in told.get(name, ())),
    ]


async def test_names_in_dashboards_alerts_and_docs_are_told() -> None:
    """A cluster of three with traffic tells every name, so no panel is empty for a typing error.

    The docs name all that is told.
    """
    told: dict[str, set[str]] = defaultdict(set)
    async with live() as cluster:
        addresses = await addresses_of(cluster)
        await trio.sleep(PAGE_S)
        await told_by(addresses, "/metrics", told)
        await told_by(addresses, "/metrics/detailed?topic=T&group=G", told)
    told |= ELSEWHERE
    page, _, left_out = (DOCS / "reference" / "metrics.md").read_text().partition(LEFT_OUT)
    documented = set(NAME.findall(page))
    found = list(expressions())
    assert len(found) > 30
    assert [(each, wrong) for each in found if (wrong := faults(each, told))] == []
    families = {base(name) for name in told}
    assert {name for name in documented - families if "_namesrv" not in name} == set()
    assert families - documented == set()
    not_told = set(NAME.findall(left_out))
    assert {name for name in ROCKETMQ if name not in families} <= not_told
    assert not_told & families <= {"rocketmq_processor_watermark", "dledger_popped_messages"}


def test_each_name_of_rocketmq_is_told_or_left_out_with_a_reason() -> None:
    """An operator whose dashboard stays empty finds out why."""
    page = (DOCS / "reference" / "metrics.md").read_text()
    assert set(ROCKETMQ) - set(NAME.findall(page)) == set()
    rows = page.partition(LEFT_OUT)[2].splitlines()
    reasons = [row.rsplit("|", 2)[1].strip() for row in rows if row.startswith(("| `", "| all"))]
    assert len(reasons) >= 10
    assert all(reasons)


def base(name: str) -> str:
    """The family of a series."""
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)
