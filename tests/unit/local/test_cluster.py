"""A cluster inside a test: real servers in this process, on virtual time or on loopback."""

from __future__ import annotations

import gc
import math
import os
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
import trio
from trio.testing import MockClock

from dledger.errors import ConfigError
from dledger.testing import virtual
from mqclient import Consumer, Message, Producer
from mqlocal import LocalCluster, local_cluster, local_cluster_in_thread
from mqlocal.places import SHARED_MEMORY

TEN_MINUTES_S = 600
OURS = virtual._NAMES.strip("\0/")
"""The beginning of the names of this process's sockets in memory."""


async def send(cluster: LocalCluster, *bodies: bytes, topic: str = "T") -> None:
    """Send some messages, one after the other, into one queue."""
    async with cluster.producer("P") as producer:
        for body in bodies:
            await producer.send(Message(topic, body), queue_id=0)


async def read(cluster: LocalCluster, count: int, topic: str = "T") -> list[bytes]:
    """The first messages of a topic, as a new group gets them."""
    found: list[bytes] = []
    async with cluster.consumer("C", {topic: "*"}) as consumer:
        with trio.fail_after(60):
            while len(found) < count:
                found += [message.body for message in await consumer.poll(timeout_s=5)]
    return found


async def test_a_leaders_death_is_not_noticed() -> None:
    """Messages are read in their order over the deaths of two leaders."""
    async with local_cluster() as cluster:
        await send(cluster, b"1")
        first = await cluster.kill()
        assert not cluster.runs(first)
        await send(cluster, b"2")
        await cluster.restart(first)
        second = await cluster.kill("leader")
        await send(cluster, b"3")

        assert second != first
        assert await read(cluster, 3) == [b"1", b"2", b"3"]


async def test_waiting_costs_no_time() -> None:
    """A message for ten minutes later comes then, by the cluster's clock, and within seconds."""
    began_s = time.perf_counter()
    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        cluster.consumer("C", {"T": "*"}) as consumer,
    ):
        sent_at, at = trio.current_time(), cluster.now() + timedelta(seconds=TEN_MINUTES_S)
        await producer.send(Message("T", b"then", deliver_at=at))
        await producer.send(Message("T", b"after", delay_s=TEN_MINUTES_S))
        came: list[float] = []
        while len(came) < 2:
            came += [trio.current_time() - sent_at for _ in await consumer.poll(timeout_s=3600)]

    assert came == pytest.approx([TEN_MINUTES_S, TEN_MINUTES_S], abs=1)
    assert time.perf_counter() - began_s < TEN_MINUTES_S / 20


async def test_a_stop_hands_over() -> None:
    """A stopped server hands over, as by SIGTERM, and joins again with its files."""
    async with local_cluster() as cluster:
        await send(cluster, b"1")
        stopped = await cluster.stop()
        assert await cluster.leader() != stopped
        await cluster.restart(stopped)
        others = [name for name in cluster.servers if "broker" in name and name != stopped]
        await cluster.kill(others[0])

        assert await read(cluster, 1) == [b"1"]


async def test_a_name_server_comes_back() -> None:
    """A restarted name server has all routes when `restart` returns."""
    async with local_cluster() as cluster:
        await send(cluster, b"1")
        await cluster.kill("namesrv-0")
        await cluster.restart("namesrv-0")

        await send(cluster, b"2")
        assert await read(cluster, 2) == [b"1", b"2"]


async def test_tasks_may_have_one_each() -> None:
    """Tasks of one event loop may have a cluster each."""

    async def alone(name: bytes) -> None:
        async with local_cluster(replicas=1) as cluster:
            await send(cluster, name)
            found[name] = await read(cluster, 1)

    names = [b"a", b"b", b"c"]
    found: dict[bytes, list[bytes]] = {}
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(alone, name)

    assert found == {name: [name] for name in names}


async def test_several_groups_take_messages() -> None:
    """Messages of a producer go to all broker groups."""
    async with local_cluster(replicas=1, groups=3) as cluster, cluster.producer("P") as producer:
        sent = [await producer.send(Message("T", b"x")) for _ in range(24)]

        assert cluster.groups == ("broker-a", "broker-b", "broker-c")
        assert {each.broker_name for each in sent} == {*cluster.groups}


def leftovers() -> tuple[int, int, list[str], list[str]]:
    """Descriptors, threads, folders and named sockets of this process."""
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted, not walked
    threads = [each for each in threading.enumerate() if not each.name.startswith("Trio thread")]
    folders = [path.name for path in SHARED_MEMORY.glob(f"mqlocal-{os.getpid()}-*")]
    names = [line for line in Path("/proc/net/unix").read_text().split() if OURS in line]
    return descriptors, len(threads), sorted(folders), names


async def test_nothing_is_left() -> None:
    """A cluster leaves no task, file, thread, folder or socket, though a server was killed."""
    async with local_cluster() as cluster:
        await send(cluster, b"1")
    before, tasks = leftovers(), trio.lowlevel.current_statistics().tasks_living
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        await producer.send(Message("T", b"x"))
        await cluster.kill()
        await producer.send(Message("T", b"x"))

    assert leftovers() == before
    assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_an_error_leaves_as_it_is() -> None:
    """A test that fails shows its own exception, and no group around it."""
    with pytest.raises(KeyError, match="mine"):
        async with local_cluster(replicas=1):
            raise KeyError("mine")


def test_a_clock_may_stand_still() -> None:
    """Time passes while a cluster starts; from then on the test moves its clock."""

    async def main() -> None:
        async with local_cluster(replicas=1) as cluster:
            assert still.autojump_threshold == math.inf
            started_at = trio.current_time()
            await send(cluster, b"1")
            assert trio.current_time() == started_at

    still = MockClock()
    trio.run(main, clock=still)
    assert still.current_time() > 0


async def test_a_majority_that_is_gone_is_named() -> None:
    """A wait for a leader ends with the names of servers that do not run."""
    async with local_cluster() as cluster:
        gone = sorted([await cluster.kill(), await cluster.kill()])

        with pytest.raises(TimeoutError, match=f"not running: {', '.join(gone)}"):
            await cluster.leader()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"replicas": 0}, "replicas=0 is not within 1 to 7"),
        ({"groups": 9}, "groups=9 is not within 1 to 8"),
        ({"settings": {"listenPort": 1}}, "listenPort is the cluster's own"),
        ({"settings": {"flushDiskTyp": "x"}}, "flushDiskType"),
        ({"settings": {"transactionTimeOut": 1}}, "transactionTimeOut 1 is not within"),
    ],
)
async def test_what_can_not_be_is_said(wrong: dict[str, object], said: str) -> None:
    """Wrong parameters are refused before anything starts."""
    with pytest.raises(ConfigError, match=said):
        async with local_cluster(**wrong):  # type: ignore[arg-type]
            pass


async def test_names_are_checked() -> None:
    """An unknown server or group, or one that runs already, is an error."""
    async with local_cluster(replicas=1) as cluster:
        with pytest.raises(ConfigError, match="no server 'n7': namesrv-0, broker-a-n0"):
            await cluster.kill("n7")
        with pytest.raises(ConfigError, match="broker-a-n0 runs"):
            await cluster.restart("broker-a-n0")
        with pytest.raises(ConfigError, match="no group 'broker-z': broker-a"):
            await cluster.leader("broker-z")


async def test_settings_are_the_brokers() -> None:
    """Settings are keys of the brokers' config file."""
    settings = {"autoCreateTopicEnable": False, "defaultTopicQueueNums": 2}
    async with local_cluster(replicas=1, settings=settings) as cluster, cluster.admin() as admin:
        await admin.topics.update("Made", read_queues=2, write_queues=2)
        await send(cluster, b"x", topic="Made")

        assert await read(cluster, 1, topic="Made") == [b"x"]


def test_programs_without_trio_have_one_in_a_thread() -> None:
    """A cluster in a thread serves blocking and asyncio clients, in real time and over a kill."""

    async def on_asyncio(namesrv_addr: str) -> Sequence[bytes]:
        async with Producer(namesrv_addr, group="P") as producer:
            await producer.send(Message("T", b"2"), queue_id=0)
        found: list[bytes] = []
        async with Consumer(namesrv_addr, "C", {"T": "*"}) as consumer:
            with anyio.fail_after(30):
                while len(found) < 2:
                    found += [message.body for message in await consumer.poll()]
        return found

    with local_cluster_in_thread() as cluster:
        host, _, port = cluster.namesrv_addr.partition(":")
        socket.create_connection((host, int(port))).close()
        with cluster.producer("P") as producer:
            producer.send(Message("T", b"1"), queue_id=0)
        killed = cluster.kill()
        found = anyio.run(on_asyncio, cluster.namesrv_addr, backend="asyncio")
        assert killed != cluster.leader()
        cluster.restart(killed)
        assert cluster.runs(killed)
        assert cluster.address(cluster.stop(killed)).startswith("127.0.0.1:")

    assert found == [b"1", b"2"]
