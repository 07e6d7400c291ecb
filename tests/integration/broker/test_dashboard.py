"""Queries of the dashboard, and of RocketMQ's own one, are answered by a real Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import trio

from .prometheus import Prometheus, prometheus
from .test_figures import DOCS, addresses_of, live

PATIENCE_S = 90.0
OF_PROCESSES = "dledger_loop_stalls_total"
"""Told by brokers in processes of their own."""
STUDIO = (
    "sum by (cluster, node_id) (rate(rocketmq_messages_in_total[1m]))",
    "sum by (cluster, node_id, consumer_group) (rate(rocketmq_messages_out_total[1m]))",
    "sum by (cluster, node_id) (rate(rocketmq_throughput_in_total[1m]))",
    "sum by (cluster, node_id, consumer_group) (rate(rocketmq_throughput_out_total[1m]))",
    "sum by (cluster, topic, consumer_group) (rocketmq_consumer_lag_messages)",
    "max by (cluster, topic, consumer_group) (rocketmq_consumer_lag_latency_milliseconds)",
    "max by (cluster) (rocketmq_topic_number)",
    "max by (cluster) (rocketmq_consumer_group_number)",
)
"""Queries of rocketmq-dashboard's metric profile."""


def queries() -> Iterator[str]:
    """The dashboard's, as Grafana sends them once everything is chosen."""
    board = json.loads((DOCS / "reference" / "monitoring" / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            expression: str = target["expr"]
            for each in board["templating"]["list"]:
                expression = expression.replace(f"${each['name']}", ".*")
            yield expression


async def without_answer(running: Prometheus, expressions: list[str]) -> list[str]:
    """Expressions that give no series. OSError for a wrong expression."""
    return [each for each in expressions if not await running.query(each)]


async def test_each_query_of_a_dashboard_is_answered(tools: Path, tmp_path: Path) -> None:
    """A query has series, so no panel is empty for a wrong label or a missing figure."""
    left = [each for each in (*queries(), *STUDIO) if OF_PROCESSES not in each]
    assert len(left) > 25
    assert not [each for each in left if "$" in each]
    async with prometheus(tools, tmp_path) as running, live() as cluster:
        running.scrape(await addresses_of(cluster))
        await running.started()
        with trio.move_on_after(PATIENCE_S):
            while left:
                await trio.sleep(1)
                left = await without_answer(running, left)
    assert left == []
