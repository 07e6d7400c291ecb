"""Consumers that stop in order: what has begun is finished and committed, nothing comes twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mqclient import (
    ClientClosed,
    Consumer,
    Message,
    PopConsumer,
    Producer,
    ReceivedMessage,
    run_until_signal,
)
from mqlocal import LocalCluster, local_cluster

DEPLOYS = 4
HANDLED_S = 0.13

MODES: dict[str, Callable[[LocalCluster, Path], Any]] = {
    "pull": lambda cluster, _: cluster.consumer("G", {"T": "*"}),
    "ordered": lambda cluster, _: cluster.consumer("G", {"T": "*"}, ordered=True),
    "broadcast": lambda cluster, path: cluster.consumer(
        "G", {"T": "*"}, assign="all", offsets=path / "offsets"
    ),
    "pop": lambda cluster, _: PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}),
    "ordered pop": lambda cluster, _: PopConsumer(
        cluster.namesrv_addr, "G", {"T": "*"}, ordered=True
    ),
}


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("mode", MODES)
async def test_deploys_under_load_handle_each_message_once(
    mode: str, explicit: bool, autojump_clock: MockClock, tmp_path: Path
) -> None:
    """By `drain`, or by leaving the block: handlers end, `run` returns, others take over."""
    began: list[bytes] = []
    ended: list[bytes] = []
    gaps_s: list[float] = []
    last_s = 0.0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal last_s
        gaps_s.append(trio.current_time() - last_s)
        began.append(message.body)
        await trio.sleep(HANDLED_S)
        ended.append(message.body)
        last_s = trio.current_time()

    async def produce(producer: Producer) -> None:
        for number in range(10_000):
            await producer.send(Message("T", b"%d" % number))
            await trio.sleep(0.05)

    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        trio.open_nursery() as load,
    ):
        load.start_soon(produce, producer)
        await trio.sleep(1)
        last_s = trio.current_time()
        for number in range(DEPLOYS):
            async with trio.open_nursery() as nursery, MODES[mode](cluster, tmp_path) as consumer:
                nursery.start_soon(consumer.run, handle, 4)
                await trio.sleep(1.5 + 0.017 * number)
                if explicit:
                    assert await consumer.drain()
        load.cancel_scope.cancel()
    assert sorted(began) == sorted(ended)
    assert len(began) == len({*began}), "handled twice"
    assert len(began) > 10 * DEPLOYS
    assert max(gaps_s) < 1


async def test_a_drained_consumer_hands_its_queues_over_within_a_second(
    autojump_clock: MockClock,
) -> None:
    """While it still is in its block: the other member has all of them."""
    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        cluster.consumer("G", {"T": "*"}, ordered=True) as first,
        cluster.consumer("G", {"T": "*"}, ordered=True) as second,
    ):
        await producer.send(Message("T", b"x"))
        await trio.sleep(10)
        every = len(first.queues) + len(second.queues)
        assert first.queues
        await first.drain()
        await trio.sleep(1)
        assert len(second.queues) == every
        await trio.sleep(30)  # no heartbeat brings it back
        assert len(second.queues) == every


async def test_loops_and_polls_end(autojump_clock: MockClock) -> None:
    """A loop has its message finished when it asks for the next; a poll that waits is answered."""
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        await producer.send_many("T", [b"%d" % number for number in range(20)])
        got: list[bytes] = []

        async def loop(consumer: Consumer) -> None:
            async for message in consumer:
                await trio.sleep(0.2)
                got.append(message.body)

        async with cluster.consumer("G", {"T": "*"}) as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(loop, consumer)
            await trio.sleep(1.5)
            assert await consumer.drain()
        for make in (MODES["pull"], MODES["pop"]):
            async with make(cluster, Path()) as consumer, trio.open_nursery() as nursery:
                while messages := await consumer.poll(timeout_s=3):
                    got += [message.body for message in messages]
                    if isinstance(consumer, PopConsumer):
                        await consumer.ack(*messages)
                nursery.start_soon(consumer.poll, 1, 1e6)
                await trio.sleep(1)
                assert await consumer.drain()
                with pytest.raises(ClientClosed, match="drained"):
                    await consumer.poll()
        assert sorted(map(int, got)) == [*range(20)]


async def test_a_handler_that_takes_too_long_is_told(autojump_clock: MockClock) -> None:
    """`drain` says so at its time; what was not finished is others'."""

    async def slow(_: ReceivedMessage) -> None:
        await trio.sleep(1000)

    for make in (MODES["pull"], MODES["pop"]):
        async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
            await producer.send(Message("T", b"x"))
            async with make(cluster, Path()) as consumer, trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, slow)
                await trio.sleep(5)
                began_s = trio.current_time()
                assert not await consumer.drain(timeout_s=2)
                assert trio.current_time() - began_s < 2.5
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["pull", "pop"])
async def test_a_signal_drains(mode: str, autojump_clock: MockClock) -> None:
    """One line in a script; `run` returns, and the handlers of the signals are as before."""
    ended = []
    before = signal.getsignal(signal.SIGTERM)

    async def handle(message: ReceivedMessage) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep(3)
        ended.append(message.body)

    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        await producer.send(Message("T", b"x"))
        async with MODES[mode](cluster, Path()) as consumer:
            await run_until_signal(lambda: consumer.run(handle), consumer, producer)
            assert ended == [b"x"]
    assert signal.getsignal(signal.SIGTERM) is before


async def test_clients_are_opened_and_closed_without_a_block(autojump_clock: MockClock) -> None:
    """For programs with a start and a stop of their own; what was handed over is sent."""
    async with local_cluster(replicas=1) as cluster:
        producer = await Producer(cluster.namesrv_addr).open()
        pending = await producer.send_soon(Message("T", b"x"))
        assert await producer.drain()
        assert pending.settled
        await producer.close()
        await producer.close()
        with pytest.raises(ClientClosed):
            await producer.send(Message("T", b"x"))
