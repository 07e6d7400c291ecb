"""Clusters for tests on asyncio: on virtual time in their loop, or beside it in real time."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import ConfigError
from dledger.world import world
from mqclient import Message, PopConsumer, ReceivedMessage
from mqlocal import AsyncioCluster, VirtualLoop, local_cluster, local_cluster_on_asyncio


def on_virtual_time(main: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Decorator that runs a coroutine in a loop whose time is virtual."""

    @wraps(main)
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(main())  # type: ignore[arg-type]

    return run


def with_cluster(test: Callable[[AsyncioCluster], Awaitable[None]], **wanted: Any) -> None:
    """Run a test with a cluster on virtual time."""

    @on_virtual_time
    async def main() -> None:
        async with local_cluster_on_asyncio(**wanted) as cluster:
            await test(cluster)

    main()


def test_hours_pass_when_everybody_waits() -> None:
    """Hours pass at once for the loop, the clients and the servers while all of them wait."""

    async def test(cluster: AsyncioCluster) -> None:
        loop, began = asyncio.get_running_loop(), cluster.now()
        async with cluster.producer("P") as producer, cluster.consumer("C", {"T": "*"}) as consumer:
            sent_at, sent_by_loop = cluster.now(), loop.time()
            await producer.send(Message("T", b"later", delay_s=1800))
            (message,) = await consumer.poll(timeout_s=3600)
            assert message.body == b"later"
            # By the clock of the servers, whose times are whole milliseconds.
            assert timedelta(seconds=1800) <= cluster.now() - sent_at < timedelta(seconds=1801)
            assert loop.time() - sent_by_loop == pytest.approx(1800, abs=1)
            assert timedelta(seconds=1800) <= cluster.now() - began < timedelta(seconds=1810)

    real = time.monotonic()
    with_cluster(test, replicas=1)
    assert time.monotonic() - real < 600


def test_a_leader_dies_and_comes_back() -> None:
    """A leader dies and comes back under each call of a task on asyncio, with nothing lost."""

    async def test(cluster: AsyncioCluster) -> None:
        assert cluster.groups == ("broker-a",)
        async with cluster.producer("P") as producer, cluster.consumer("C", {"T": "*"}) as consumer:
            for number in range(10):
                await producer.send(Message("T", b"%d" % number))
            killed = await cluster.kill()
            assert not cluster.runs(killed)
            for number in range(10, 20):
                await producer.send(Message("T", b"%d" % number))
            await cluster.restart(killed)
            assert cluster.runs(killed)
            stopped = await cluster.stop(await cluster.leader())
            assert await cluster.leader() != stopped
            assert cluster.address(stopped).startswith("127.0.0.1:")
            found: set[bytes] = set()
            while len(found) < 20:
                found |= {message.body for message in await consumer.poll(timeout_s=60)}
            async with cluster.admin() as admin:
                assert "T" in {each.topic for each in await admin.topics.list()}

    with_cluster(test)


def test_the_same_calls_take_the_same_time_again() -> None:
    """Virtual time does not depend on the machine: retries come when the schedule says."""
    times: list[list[float]] = []

    async def test(cluster: AsyncioCluster) -> None:
        loop, called = asyncio.get_running_loop(), list[float]()

        async def handle(message: ReceivedMessage) -> None:
            called.append(loop.time())
            await asyncio.sleep(0.25)
            if len(called) < 4:
                raise LookupError("not yet")

        async with (
            cluster.producer("P") as producer,
            PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}, retry_delays_s=[10, 60]) as consumer,
        ):
            await producer.send(Message("T", b"x"))
            running = asyncio.create_task(consumer.run(handle))
            await asyncio.sleep(200)
            await consumer.drain()
            await running
        times.append([after - before for before, after in itertools.pairwise(called)])

    for _ in range(2):
        with_cluster(test, replicas=1)
    for waits in times:
        assert waits == pytest.approx([10.25, 60.25, 60.25], abs=1.1)


@on_virtual_time
async def test_time_stands_still_for_work_in_threads() -> None:
    """Virtual time stands still while a thread works, of asyncio.to_thread or an executor."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    ticking = asyncio.create_task(asyncio.sleep(1000))
    await asyncio.to_thread(time.sleep, 0.05)
    await loop.run_in_executor(None, time.sleep, 0.05)
    assert loop.time() - before < 1
    await ticking
    assert loop.time() - before == pytest.approx(1000)


@on_virtual_time
async def test_time_passes_without_a_cluster_too() -> None:
    """Timeouts end and sleepers wake in their order."""
    loop, woken = asyncio.get_running_loop(), list[float]()

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(loop.time())

    async with asyncio.TaskGroup() as tasks:
        for seconds in (86_400 * 40, 5, 0, 1.5):
            tasks.create_task(sleep(seconds))
    assert woken == pytest.approx([0, 1.5, 5, 86_400 * 40])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()


@on_virtual_time
async def test_another_thread_wakes_the_loop() -> None:
    """Another thread may wake the loop, which waits for it and lets no time pass."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    loop.run_in_executor(None, lambda: loop.call_soon_threadsafe(woken.set))
    await woken.wait()
    assert loop.time() == 0


@on_virtual_time
async def test_each_task_is_in_the_loops_world() -> None:
    """A task is in the loop's world, in any context, so its clients are on virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    worlds = []

    async def look() -> None:
        worlds.append(world())

    await asyncio.create_task(look())
    await loop.create_task(look(), name="named")
    assert worlds == [loop.world] * 2
    with world().socket(socket.AF_INET) as ours:
        assert ours.family == socket.AF_UNIX


def test_a_test_that_fails_keeps_its_error_and_leaves_nothing() -> None:
    """A failing test raises its own error alone, and leaves no task or file."""

    async def test(cluster: AsyncioCluster) -> None:
        async with cluster.producer("P") as producer:
            await producer.send(Message("T", b"x"))
            raise ZeroDivisionError("the test's own")

    before = {*Path("/dev/shm").iterdir()} if Path("/dev/shm").exists() else set()  # noqa: S108
    with pytest.raises(ZeroDivisionError, match="the test's own"):
        with_cluster(test, replicas=1)
    after = {*Path("/dev/shm").iterdir()} if Path("/dev/shm").exists() else set()  # noqa: S108
    mine = [path for path in after - before if path.name.startswith("mqlocal-")]
    assert not [path for path in mine if f"-{os.getpid()}-" in path.name]


@on_virtual_time
async def test_clusters_follow_each_other() -> None:
    """A loop may have one cluster after the other; a second at a time is refused."""
    for _ in range(2):
        async with local_cluster_on_asyncio(replicas=1) as cluster:
            async with cluster.producer("P") as producer:
                assert (await producer.send(Message("T", b"x"))).queue_offset == 0
            with pytest.raises(ConfigError, match="one cluster at a time"):
                async with local_cluster_on_asyncio(replicas=1):
                    pass
    with pytest.raises(ConfigError, match="replicas=9"):
        async with local_cluster_on_asyncio(replicas=9):
            pass


def test_in_any_other_loop_it_is_in_real_time() -> None:
    """A cluster in another loop runs in a thread and in real time, with the same calls."""

    async def main() -> None:
        async with local_cluster_on_asyncio(replicas=1) as cluster:
            async with (
                cluster.producer("P") as producer,
                cluster.consumer("C", {"T": "*"}) as consumer,
            ):
                await producer.send(Message("T", b"x"))
                assert [each.body for each in await consumer.poll(timeout_s=60)] == [b"x"]
            stopped = await cluster.stop()
            await cluster.restart(stopped)
            assert await cluster.leader() == stopped
            with pytest.raises(ConfigError, match="no server 'nobody'"):
                await cluster.kill("nobody")

    asyncio.run(main())


async def test_each_kind_of_loop_has_its_own_call() -> None:
    """A wrong kind of loop is an error that names the right call."""
    with pytest.raises(ConfigError, match="use local_cluster here"):
        async with local_cluster_on_asyncio():
            pass

    async def main() -> None:
        async with local_cluster():
            pass

    with pytest.raises(ConfigError, match="use local_cluster_on_asyncio"):
        await asyncio_elsewhere(main)


async def asyncio_elsewhere(main: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine on asyncio, in a thread."""
    import anyio  # noqa: PLC0415

    await anyio.to_thread.run_sync(lambda: asyncio.run(main()))  # type: ignore[arg-type]
