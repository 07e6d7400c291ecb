"""A group and its name server on IPv6 addresses, with real Java clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from clients import CLIENTS, Client, each_of, ready
from clusters import new_cluster
from drivers import Run
from judges import judge

from dledger.errors import DledgerError
from mqclient import Admin

FEATURES = ("send_sync", "push_clustering", "query_by_id", "query_by_key", "retry", "request_reply")
"""Ids that hold addresses, answers by addresses in ids, pushes to clients, members' lists."""
START_S = 30.0


def has_ipv6() -> bool:
    """Whether this machine has the loopback address ::1."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def namesrv_addr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a group of three, all of them on ::1 for clients."""
    if not has_ipv6():
        pytest.skip("this machine has no address ::1")
    cluster = new_cluster(tmp_path_factory.mktemp("ipv6"))
    for name in cluster.names:
        (config,) = cluster.folder(name).glob("*.toml")
        # Between each other the members keep to IPv4.
        written = [
            line if line.startswith("dLegerPeers") else on_ipv6(line)
            for line in config.read_text().splitlines()
        ]
        config.write_text("\n".join(written))
    address = f"[::1]:{cluster.layout.namesrvs[0].port}"
    with cluster.running():
        trio.run(make_topics, address)
        yield address
        assert cluster.stop() == []


def on_ipv6(line: str) -> str:
    """A line of a config with the other loopback address, in brackets before a port."""
    return line.replace("127.0.0.1:", "[::1]:").replace("127.0.0.1", "::1")


async def make_topics(namesrv_addr: str) -> None:
    """Make all topics once the group serves, as its clients would wait 30 s for them."""
    with trio.fail_after(START_S):
        for client in CLIENTS[:2]:
            for feature in FEATURES:
                for topic in (f"{client.name}_{feature}", f"%RETRY%{client.name}_{feature}"):
                    await make_topic(namesrv_addr, topic)


async def make_topic(namesrv_addr: str, topic: str) -> None:
    while True:
        try:
            async with Admin(namesrv_addr) as admin:
                await admin.topics.update(topic, read_queues=2, write_queues=2)
                return
        except DledgerError:
            await trio.sleep(0.1)


@pytest.mark.long
@pytest.mark.parametrize(("client", "feature"), each_of("java4", "java5", feature="ipv6"))
def test_java_clients_work_over_ipv6(
    namesrv_addr: str, client: Client, feature: str, tmp_path: Path
) -> None:
    """Java clients send, read, retry and query by ids that hold IPv6 addresses."""
    argv = ready(client)
    with Run(replace(client, features=FEATURES), argv, namesrv_addr, tmp_path) as run:
        for scenario in run.scenarios().values():
            judge(scenario)
