"""The life of a log in real processes: old segments go, and replicas without theirs come back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import trio
from clusters import new_cluster

from dledger.errors import DledgerError
from dledger.log.recovery.startup import open_log
from dledger.net import Peer, connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from mqbroker.testing.requests import ask, make_topic, produce_request, pull_request, records
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout

TIMEOUT_S = 60.0
SEGMENT_BYTES = 1 << 20
KEPT_BYTES = 4 << 20
BODY = b"x" * 8192


def small(directory: Path, **settings: int) -> AbstractContextManager[Cluster]:
    """A name server and three brokers with small segments, gone when the block is left."""
    return new_cluster(directory, segment_bytes=SEGMENT_BYTES, settings=settings).running()


async def info(node: NodeLayout) -> dict[str, object]:
    """How the group stands, seen from a node; empty if it does not answer."""
    try:
        async with connect_peer("127.0.0.1", node.port, 1.0) as peer:
            return dict((await peer.request(Command(RequestCode.GROUP_INFO), 1.0)).ext)
    except DledgerError:
        return {}


async def until(
    condition: Callable[[dict[str, dict[str, object]]], object], cluster: Cluster
) -> dict[str, dict[str, object]]:
    """The nodes' views as soon as they meet a condition."""
    with trio.fail_after(TIMEOUT_S):
        while True:
            found = {node.name: view for node in cluster.layout.nodes if (view := await info(node))}
            if condition(found):
                return found
            await trio.sleep(0.1)


def leads(found: dict[str, dict[str, object]]) -> str | None:
    return next((name for name, view in found.items() if view["role"] == "leader"), None)


async def leader_of(cluster: Cluster) -> NodeLayout:
    name = leads(await until(leads, cluster))
    return next(node for node in cluster.layout.nodes if node.name == name)


def all_equal(found: dict[str, dict[str, object]]) -> bool:
    applied = {(str(view["appliedIndex"]), str(view["lastIndex"])) for view in found.values()}
    counted = all(str(view["counted"]).lower() == "true" for view in found.values())
    return len(found) == 3 and len(applied) == 1 and counted and leads(found) is not None


async def fill(peer: Peer, name: str, batches: int) -> None:
    """Send batches of 8 messages of 8 KiB to queue 0."""
    for number in range(batches):
        request = produce_request(f"{name}{number}", runs=((0, 8),), content=BODY)
        response = await peer.request(request, TIMEOUT_S)
        assert response.code == ResponseCode.SUCCESS, response.remark


async def bounds(peer: Peer) -> tuple[int, int]:
    """The first and the next offset of queue 0."""
    low = await ask(peer, RequestCode.GET_MIN_OFFSET, topic="Orders", queueId=0)
    high = await ask(peer, RequestCode.GET_MAX_OFFSET, topic="Orders", queueId=0)
    return int(str(low.ext["offset"])), int(str(high.ext["offset"]))


async def until_dropped(peer: Peer) -> tuple[int, int]:
    """The bounds of queue 0 once old segments have gone, and none is left that may go."""
    before = (-1, 0)
    with trio.fail_after(TIMEOUT_S):
        while (found := await bounds(peer)) != before or found[0] < 600:
            before = found
            await trio.sleep(1.0)
    return found


def files(cluster: Cluster) -> list[int]:
    """How many segments each replica has."""
    stores = [cluster.store(node) for node in cluster.layout.nodes]
    return [len(list((store / "log").glob("*.seg"))) for store in stores]


async def test_old_segments_go_and_consumers_are_sent_to_the_first_that_is_left(
    tmp_path: Path,
) -> None:
    """A replica keeps what it was told; a pull below is told where to go on."""
    settings = {"commitLogSizeMax": KEPT_BYTES, "cleanResourceInterval": 200}
    with small(tmp_path, **settings) as cluster:
        async with connect_peer("127.0.0.1", (await leader_of(cluster)).port) as peer:
            await make_topic(peer)
            await fill(peer, "a", 200)
            low, high = await until_dropped(peer)
            answer = await peer.request(pull_request(0, 5), TIMEOUT_S)
            assert answer.code == ResponseCode.PULL_OFFSET_MOVED
            assert int(str(answer.ext["nextBeginOffset"])) == low
            found = records(await peer.request(pull_request(0, low), TIMEOUT_S))
            assert found[0].queue_offset == low
        await until(lambda _: max(files(cluster)) <= KEPT_BYTES // SEGMENT_BYTES + 3, cluster)
        cluster.stop([node.name for node in cluster.layout.nodes])
        cluster.start()
        async with connect_peer("127.0.0.1", (await leader_of(cluster)).port) as peer:
            assert (await bounds(peer)) == (low, high)
            await fill(peer, "b", 1)


async def test_an_emptied_folder_is_filled_again_behind_retention(tmp_path: Path) -> None:
    """The folder of a follower is lost, and the others' logs lost their heads: it copies what
    they have, becomes eligible, and can then replace one of them."""
    settings = {"commitLogSizeMax": KEPT_BYTES, "cleanResourceInterval": 200}
    with small(tmp_path, **settings) as cluster:
        leader = await leader_of(cluster)
        follower = next(node for node in cluster.layout.nodes if node != leader)
        async with connect_peer("127.0.0.1", leader.port) as peer:
            await make_topic(peer)
            await fill(peer, "a", 30)
            cluster.kill(follower.name)
            shutil.rmtree(cluster.store(follower))
            await fill(peer, "b", 170)
            await until_dropped(peer)
        cluster.start([follower.name])
        await until(all_equal, cluster)
        other = next(n for n in cluster.layout.nodes if n not in (leader, follower))
        cluster.kill(other.name)
        async with connect_peer("127.0.0.1", (await leader_of(cluster)).port) as peer:
            await fill(peer, "c", 5)  # by the leader and the replica that had been empty
            high = (await bounds(peer))[1]
        cluster.kill(leader.name)
        cluster.start([other.name])
        async with connect_peer("127.0.0.1", (await leader_of(cluster)).port) as peer:
            assert (await bounds(peer))[1] == high
            offset = (await bounds(peer))[0]
            while offset < high:
                found = records(await peer.request(pull_request(0, offset), TIMEOUT_S))
                assert [r.queue_offset for r in found] == list(range(offset, offset + len(found)))
                assert all(bytes(record.body) == BODY for record in found)
                offset += len(found)
            await fill(peer, "d", 1)
        cluster.start([leader.name])
        level = await until(all_equal, cluster)
        end = int(str(next(iter(level.values()))["lastIndex"]))
        cluster.stop([node.name for node in cluster.layout.nodes])
        # A leader that stops hands over, so some may hold the no-op of one more term.
        chains = set()
        for node in cluster.layout.nodes:
            log = open_log(cluster.store(node) / "log", SEGMENT_BYTES)[0]
            assert log.first_index > 1
            chains.add(log.reader.header(end).chain_crc)
            log.close()
        assert len(chains) == 1
