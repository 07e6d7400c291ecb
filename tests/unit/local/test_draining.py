"""Consumers that stop in order finish and commit what they began, and no message comes twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from dledger.errors import BadInput
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
DRAINED_AFTER_MAX = 12

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
    mode: str, explicit: bool, tmp_path: Path
) -> None:
    """Handlers end, `run` returns and others take over, by `drain` or by leaving the block."""
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


async def test_a_drained_consumer_hands_its_queues_over_within_a_second() -> None:
    """A drained consumer gives all its queues to another member, though its block goes on."""
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


LEAVING_TURNS = 12


@pytest.mark.parametrize("way", ["drained", "left", "cancelled"])
async def test_what_a_waiting_pop_brings_at_the_end_is_for_others_at_once(way: str) -> None:
    """Messages that come while a consumer leaves, at any turn of the loop, are never hidden."""
    handled: set[bytes] = set()
    waits_s = []

    async def handle(message: ReceivedMessage) -> None:
        await trio.sleep(0.2)
        handled.add(message.body)

    async def live(concurrency: int, began: trio.Event, ends: trio.Event) -> None:
        with trio.CancelScope() as scope:
            async with (
                PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as consumer,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(consumer.run, handle, concurrency)
                await trio.sleep(1)
                began.set()
                await ends.wait()
                if way == "drained":
                    await consumer.drain()
                elif way == "left":
                    nursery.cancel_scope.cancel()
                else:
                    scope.cancel()

    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        await producer.send(Message("T", b"first"))
        for turns in range(LEAVING_TURNS):
            bodies = {b"%d %d" % (turns, number) for number in range(8)}
            async with trio.open_nursery() as nursery:
                began, ends = trio.Event(), trio.Event()
                nursery.start_soon(live, 1 + turns % 3, began, ends)
                await began.wait()
                for body in bodies:
                    await producer.send_soon(Message("T", body))
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                ends.set()
            began_s = trio.current_time()
            async with PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as consumer:
                while not handled >= bodies and (found := await consumer.poll(timeout_s=70)):
                    await consumer.ack(*found)
                    handled.update(message.body for message in found)
            assert handled >= bodies
            waits_s.append(trio.current_time() - began_s)
    assert max(waits_s) < 1, waits_s


@pytest.mark.parametrize("explicit", [True, False])
async def test_a_slow_handler_of_a_pop_keeps_no_other_message_hidden(explicit: bool) -> None:
    """A slow handler hides its own message alone, not those popped ahead or coming later."""
    at_s: dict[bytes, float] = {}
    ended: list[bytes] = []

    async def slow(message: ReceivedMessage) -> None:
        await trio.sleep(20)
        ended.append(message.body)

    async def soon(message: ReceivedMessage) -> None:
        at_s[message.body] = trio.current_time()

    async def go(leaves: trio.Event) -> None:
        async with trio.open_nursery() as working, MODES["pop"](cluster, Path()) as consumer:
            working.start_soon(consumer.run, slow)
            await leaves.wait()
            if explicit:
                assert await consumer.drain()

    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        trio.open_nursery() as nursery,
        MODES["pop"](cluster, Path()) as other,
    ):
        for number in range(3):
            await producer.send(Message("T", b"before %d" % number))
        async with trio.open_nursery() as going:
            leaves = trio.Event()
            going.start_soon(go, leaves)
            await trio.sleep(3)
            nursery.start_soon(other.run, soon)
            began_s = trio.current_time()
            leaves.set()
            for number in range(5):
                await producer.send(Message("T", b"after %d" % number))
    assert len(ended) == 1
    assert len(at_s) == 7
    assert not {*ended} & {*at_s}
    assert max(at_s.values()) - began_s < 0.1


async def test_an_ordered_pop_that_fails_again_and_again_is_drained() -> None:
    """An ordered message that fails is tried no more; the next member gets it, in order."""
    seen: list[bytes] = []

    async def fail(message: ReceivedMessage) -> None:
        raise ValueError

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        for number in range(3):
            await producer.send(Message("T", b"%d" % number), key="k")
        async with (
            MODES["ordered pop"](cluster, Path()) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, fail, 3)
            await trio.sleep(2)
            began_s = trio.current_time()
            assert await consumer.drain()
            assert trio.current_time() - began_s < 0.5
        async with MODES["ordered pop"](cluster, Path()) as consumer:
            with trio.move_on_after(2):
                await consumer.run(handle, 3)
    assert seen == [b"0", b"1", b"2"]


async def test_loops_and_polls_end() -> None:
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


async def _iterate(consumer: Consumer | PopConsumer, got: Callable[[object], None]) -> None:
    async for message in consumer:
        got(message)


async def _poll(consumer: Consumer | PopConsumer, got: Callable[[object], None]) -> None:
    with suppress(ClientClosed):
        while True:
            for message in await consumer.poll():
                got(message)


async def _run(consumer: Consumer | PopConsumer, got: Callable[[object], None]) -> None:
    await consumer.run(got)


async def _run_here(consumer: Consumer, got: Callable[[object], None]) -> None:
    """Handle messages here, as blocking consumers do in the caller's thread."""
    message = await consumer.next_after(None)
    while message is not None:
        got(message)
        message = await consumer.next_after(message)


WAYS: list[tuple[str, Callable[..., Awaitable[None]]]] = [
    *((mode, way) for mode in ("pull", "pop") for way in (_iterate, _poll, _run)),
    ("pull", _run_here),
]


@pytest.mark.parametrize("messages", [0, 3])
@pytest.mark.parametrize(("mode", "way"), WAYS)
async def test_a_drain_at_any_moment_ends_what_waits(
    mode: str, way: Callable[..., Awaitable[None]], messages: int, tmp_path: Path
) -> None:
    """A drain ends waiting calls at any switch of tasks after a start or a message."""
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        await producer.send_many("T", [b"x"] * (messages or 1))
        for switches in range(DRAINED_AFTER_MAX):
            missing, none_missing = messages, trio.Event()

            def got(message: object, none_missing: trio.Event = none_missing) -> None:
                nonlocal missing
                missing -= 1
                if missing == 0:
                    none_missing.set()

            with trio.fail_after(60):
                async with (
                    MODES[mode](cluster, tmp_path) as consumer,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(way, consumer, got)
                    if messages:
                        await none_missing.wait()
                    for _ in range(switches):
                        await trio.lowlevel.checkpoint()
                    await consumer.drain()
            if messages:
                await producer.send_many("T", [b"x"] * messages)


async def test_a_handler_that_takes_too_long_is_told() -> None:
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
async def test_a_signal_drains(mode: str) -> None:
    """A signal drains a script's clients: `run` returns, and signals have their old handlers."""
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


async def test_a_signal_drains_the_clients_of_all_calls_that_run() -> None:
    """Two groups of one program are stopped by one signal, each by its own call."""
    before = signal.getsignal(signal.SIGTERM)
    ended = []

    async def handle(message: ReceivedMessage) -> None:
        ended.append(message.body)
        if len(ended) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    async def member(cluster: LocalCluster, group: str) -> None:
        async with cluster.consumer(group, {"T": "*"}) as consumer:
            await run_until_signal(lambda: consumer.run(handle), consumer)

    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        await producer.send(Message("T", b"x"))
        with trio.fail_after(60):
            async with trio.open_nursery() as members:
                for group in ("A", "B"):
                    members.start_soon(member, cluster, group)
    assert ended == [b"x", b"x"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def strays() -> Iterator[list[int]]:
    """The signals that reach the handler which a program had before."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    ours = signal.getsignal(signal.SIGTERM)
    yield came
    assert signal.signal(signal.SIGTERM, before) is ours, "the handler was not restored"


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_calls_that_run_at_the_same_time_may_end_in_any_order(
    backend: str, strays: list[int]
) -> None:
    """The first call ends, a signal stops the second one, and the old handler is restored."""
    drained = []

    async def first() -> None:
        await run_until_signal(partial(anyio.sleep, 0.01))
        with pytest.raises(BadInput, match="runs until SIGINT, SIGTERM already.*until SIGUSR1"):
            await run_until_signal(anyio.sleep_forever, signals=(signal.SIGUSR1,))
        os.kill(os.getpid(), signal.SIGTERM)

    async def run() -> None:
        stop = anyio.Event()

        class Client:
            async def drain(self, timeout_s: float) -> bool:
                drained.append(timeout_s)
                stop.set()
                return True

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first)
                await run_until_signal(stop.wait, Client(), timeout_s=7)

    anyio.run(run, backend=backend)
    assert drained == [7]
    assert not strays


def test_a_child_of_a_program_that_waits_for_a_signal_waits_for_its_own() -> None:
    """The child of a fork has an event loop of its own, whose call a signal to the child ends."""

    async def child() -> None:
        stop = anyio.Event()

        class Client:
            async def drain(self, timeout_s: float) -> bool:
                stop.set()
                return True

        async def run() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await stop.wait()

        with anyio.fail_after(10):
            await run_until_signal(run, Client())

    forked = []

    async def forks() -> None:
        if pid := os.fork():
            forked.append(pid)
            return
        with suppress(BaseException):
            asyncio.run(child())
            os._exit(0)
        os._exit(1)

    async def parent() -> None:
        await run_until_signal(forks)

    anyio.run(parent)
    assert os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]) == 0


async def test_clients_are_opened_and_closed_without_a_block() -> None:
    """Programs with a start and a stop of their own open and close clients without a block."""
    async with local_cluster(replicas=1) as cluster:
        producer = await Producer(cluster.namesrv_addr).open()
        pending = await producer.send_soon(Message("T", b"x"))
        assert await producer.drain()
        assert pending.settled
        await producer.close()
        await producer.close()
        with pytest.raises(ClientClosed):
            await producer.send(Message("T", b"x"))
