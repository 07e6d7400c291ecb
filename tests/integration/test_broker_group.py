"""Broker processes in a group: what it keeps when its leader is killed, what a restart finds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from broker.testing.requests import ask, produce_request, pull_request, records
from chaos.cluster import Cluster
from chaos.layout import NodeLayout, plan, ports_needed
from chaos.processes import free_ports
from dledger.errors import DledgerError
from dledger.net import Peer, connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import (
    ProduceResponseHeader,
    decode_header,
)

pytestmark = pytest.mark.slow

TIMEOUT_S = 30.0


@asynccontextmanager
async def group(directory: Path, nodes: int = 3) -> AsyncIterator[Cluster]:
    """A name server and a broker group of real processes, gone when the block is left."""
    layout = plan(free_ports(ports_needed(nodes, 1, 1)), nodes, 1, 1, "SYNC_FLUSH")
    cluster = Cluster.create(directory / "c", layout)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill_all()


async def leader_of(cluster: Cluster, *, but: str | None = None) -> NodeLayout:
    """The node that serves, other than `but`."""
    with trio.fail_after(TIMEOUT_S):
        while True:
            for node in cluster.layout.nodes:
                if node.name == but or cluster.pid(node.name) is None:
                    continue
                try:
                    async with connect_peer("127.0.0.1", node.port, 1.0) as peer:
                        info = await peer.request(Command(RequestCode.GROUP_INFO), 1.0)
                except DledgerError:
                    continue
                if info.ext["role"] == "leader":
                    return node
            await trio.sleep(0.02)


async def produce(peer: Peer, key: str) -> ProduceResponseHeader:
    """Send a batch; where it went."""
    response = await peer.request(batch(key), TIMEOUT_S)
    assert response.code == ResponseCode.SUCCESS, (response.remark, response.ext)
    return decode_header(ProduceResponseHeader, response)


def batch(key: str) -> Command:
    """Eight messages for queue 0."""
    return produce_request(key, runs=((0, 8),))


async def drain(peer: Peer) -> list[tuple[int, int, bytes]]:
    """(queue offset, position, body) of every message of queue 0, in order."""
    rows: list[tuple[int, int, bytes]] = []
    while True:
        request = pull_request(0, len(rows), maxMsgNums=1000, maxMsgBytes=1 << 20)
        response = await peer.request(request, TIMEOUT_S)
        if response.code != ResponseCode.SUCCESS:
            return rows
        rows += [
            (record.queue_offset, record.physical_offset, bytes(record.body))
            for record in records(response)
        ]


async def test_a_new_leader_has_all_that_the_old_one_acknowledged(tmp_path: Path) -> None:
    """Messages at the same offsets and positions, the dedup window, offsets, topics, groups."""
    async with group(tmp_path) as cluster:
        first = await leader_of(cluster)
        async with connect_peer("127.0.0.1", first.port) as peer:
            stored = [await produce(peer, f"b{number}") for number in range(20)]
            key: dict[str, ExtValue] = {"consumerGroup": "C", "topic": "Orders", "queueId": 0}
            await ask(peer, RequestCode.UPDATE_CONSUMER_OFFSET, **key, commitOffset=33)
            before = await drain(peer)
        assert [offset for offset, _, _ in before] == list(range(160))
        cluster.kill(first.name)
        second = await leader_of(cluster, but=first.name)
        async with connect_peer("127.0.0.1", second.port) as peer:
            assert await drain(peer) == before
            again = await produce(peer, "b7")
            assert again.duplicate
            assert (again.position, again.offsets) == (stored[7].position, stored[7].offsets)
            committed = await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **key)
            assert committed.ext["offset"] == 33
            more = await produce(peer, "new")
            assert more.offsets == [(0, 160)]


async def test_a_broker_killed_again_and_again_comes_back_with_everything(tmp_path: Path) -> None:
    """Queue files and snapshots of a killed process never disagree with its log."""
    async with group(tmp_path, nodes=1) as cluster:
        (node,) = cluster.layout.nodes
        acknowledged = 0
        for round_number in range(8):
            await leader_of(cluster)
            async with connect_peer("127.0.0.1", node.port) as peer:
                rows = await drain(peer)
                assert [offset for offset, _, _ in rows] == list(range(len(rows)))
                assert len(rows) >= acknowledged
                with trio.move_on_after(0.3):
                    for number in range(10_000):
                        response = await peer.request(batch(f"{round_number}-{number}"), 10)
                        stored = decode_header(ProduceResponseHeader, response)
                        acknowledged = stored.offsets[0][1] + 8
            cluster.kill(node.name)
            cluster.start([node.name])


async def test_a_stopped_broker_leaves_its_route_and_ends_well(tmp_path: Path) -> None:
    """SIGTERM: name servers are told, the state is saved, nothing is left to say on stderr."""
    async with group(tmp_path, nodes=1) as cluster:
        (node,) = cluster.layout.nodes
        await leader_of(cluster)
        async with connect_peer("127.0.0.1", node.port) as peer:
            await peer.request(batch("a"), 10)
        assert cluster.stop([node.name]) == []
        namesrv = cluster.layout.namesrvs[0]
        async with connect_peer("127.0.0.1", namesrv.port) as peer:
            route = await ask(peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Orders")
            assert route.code == ResponseCode.TOPIC_NOT_EXIST
        log = cluster.log(node.name).read_text()
        assert '"event": "broker stopped"' in log
        assert "Traceback" not in log
        assert (cluster.store(node) / "snapshot.msgpack").exists()
