"""A leader dies while stock consumers pop: acknowledged messages stay so, and none is lost."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

import failover
import pytest
import trio
from clients import Client, each_of, ready
from drivers import Run, pop_by_default
from judges import judge

from mqchaos.cluster.cluster import Cluster
from mqclient import Admin

FEATURE = "pop_failover"
BEGUN_S = 60.0
QUEUES = 2


async def prepare(namesrv_addr: str, name: str) -> None:
    """The topic, and a group that pops it."""
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update(name, read_queues=QUEUES, write_queues=QUEUES)
        await pop_by_default(admin, name)


@pytest.mark.long
@pytest.mark.parametrize(("client", "feature"), each_of("java5", feature=FEATURE))
def test_a_leader_dies_and_who_pops_goes_on(
    cluster: Cluster, client: Client, feature: str, tmp_path: Path
) -> None:
    """The next leader knows which messages are hidden and which are done."""
    argv = ready(client)
    namesrv_addr = cluster.layout.namesrv_addr
    trio.run(prepare, namesrv_addr, f"{client.name}_{feature}")
    with Run(replace(client, features=(feature,)), argv, namesrv_addr, tmp_path) as run:
        deadline = time.monotonic() + BEGUN_S
        while run.stdout.read_text().count('"received"') < 50 and time.monotonic() < deadline:
            time.sleep(0.1)
        for broker in cluster.layout.brokers:
            failover.kill_leader(cluster, broker, io.StringIO(), down_s=2)
            # A stock producer's three tries take some ms: the other group must be whole meanwhile.
            trio.run(failover.level, cluster, broker)
        judge(run.scenarios()[feature])
