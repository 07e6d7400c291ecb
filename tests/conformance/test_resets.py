"""mqadmin resets a group while stock consumers run: they go back, and read once more."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from clients import CLIENTS, Client, each_of, ready
from drivers import Run
from judges import judge
from mqadmin import Line, Stock

from mqchaos.cluster.cluster import Cluster
from mqclient import Admin

FEATURE = "reset_running"
JAVA5 = CLIENTS[1]
RECEIVED_S = 20.0
"""A stock consumer asks who else is in its group within that time."""


async def make_topic(namesrv_addr: str, topic: str) -> None:
    """Make a topic with two queues on each group, before its consumer looks for it."""
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update(topic, read_queues=2, write_queues=2)


@pytest.mark.parametrize(
    ("client", "feature"), each_of("java4", "java5", feature=FEATURE, long=("go",))
)
def test_a_running_consumer_goes_where_mqadmin_tells_it(
    cluster: Cluster, client: Client, feature: str, tmp_path: Path
) -> None:
    """A reset reaches a running consumer by its own connection, and nothing is lost."""
    argv = ready(client)
    ready(JAVA5)
    name, namesrv_addr = f"{client.name}_{feature}", cluster.layout.namesrv_addr
    trio.run(make_topic, namesrv_addr, name)
    before_ms = int(time.time() * 1000)
    with (
        Stock(JAVA5, namesrv_addr, name) as mqadmin,
        Run(replace(client, features=(feature,)), argv, namesrv_addr, tmp_path) as run,
    ):
        deadline = time.monotonic() + RECEIVED_S
        while run.stdout.read_text().count('"received"') < 10 and time.monotonic() < deadline:
            time.sleep(0.1)
        told = mqadmin.run(Line(f"resetOffsetByTime -g {name} -t {name} -s {before_ms}", ()))
        assert "broker-a" in told, told
        assert "broker-b" in told, told
        judge(run.scenarios()[feature])
