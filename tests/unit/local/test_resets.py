"""A group that is reset goes on from its new offsets at once, in every way of reading."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ConsumeMessageDirectlyHeader, encode_header
from mqbroker.requests.unsupported import REASONS
from mqclient import Consumer, Message, PopConsumer, ReceivedMessage
from mqclient.admin import Admin
from mqclient.consuming.membership import notices
from mqlocal import LocalCluster, local_cluster

OLD, NEW = 60, 5
TO_END_MS = -1
SOON_S = 1.0
"""Far below what a pull that waits takes (15 s), and a popped message that is hidden (60 s)."""

Take = Callable[[Any, list[bytes]], Awaitable[None]]


async def by_run(
    consumer: Consumer | PopConsumer, got: list[bytes], *how: Any, **more: Any
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        await trio.sleep(0.5)

    await consumer.run(handle, *how, **more)


async def by_loop(consumer: Consumer, got: list[bytes]) -> None:
    async for message in consumer:
        got.append(message.body)
        await trio.sleep(0.5)


async def by_poll(consumer: Consumer, got: list[bytes]) -> None:
    while True:
        for message in await consumer.poll(1, timeout_s=30):
            got.append(message.body)
            await trio.sleep(0.5)


MODES: dict[str, tuple[Callable[[str, Path], Any], Take]] = {
    "run": (lambda address, _: Consumer(address, "G", {"T": "*"}), by_run),
    "run by key": (
        lambda address, _: Consumer(address, "G", {"T": "*"}),
        lambda consumer, got: by_run(consumer, got, 3, order="key"),
    ),
    "ordered": (lambda address, _: Consumer(address, "G", {"T": "*"}, ordered=True), by_run),
    "loop": (lambda address, _: Consumer(address, "G", {"T": "*"}), by_loop),
    "poll": (lambda address, _: Consumer(address, "G", {"T": "*"}), by_poll),
    "pop": (lambda address, _: PopConsumer(address, "G", {"T": "*"}), by_run),
    "ordered pop": (lambda address, _: PopConsumer(address, "G", {"T": "*"}, ordered=True), by_run),
    "broadcast": (
        lambda address, path: Consumer(
            address, "G", {"T": "*"}, assign="all", offsets=path / "offsets"
        ),
        by_run,
    ),
}


async def prepared(cluster: LocalCluster, stack: AsyncExitStack) -> tuple[Any, Admin]:
    """A topic of one queue with old messages."""
    producer = await stack.enter_async_context(cluster.producer("P"))
    admin = await stack.enter_async_context(cluster.admin())
    await admin.topics.update("T", read_queues=1, write_queues=1)
    for number in range(OLD):
        await producer.send(Message("T", b"old-%d" % number))
    return producer, admin


@pytest.mark.parametrize("mode", MODES)
async def test_what_was_fetched_before_a_reset_to_the_end_is_not_handed_out(
    mode: str, tmp_path: Path
) -> None:
    """A reset to the end drops fetched messages, but for those in handlers; later ones come."""
    make, take = MODES[mode]
    got: list[bytes] = []
    async with local_cluster(replicas=1) as cluster, AsyncExitStack() as stack:
        producer, admin = await prepared(cluster, stack)
        consumer = await stack.enter_async_context(make(cluster.namesrv_addr, tmp_path))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, consumer, got)
            await trio.sleep(5.3)
            assert 3 <= len(got) < OLD - 10
            await admin.groups.reset_offset("G", "T", TO_END_MS)
            seen = len(got)
            await trio.sleep(SOON_S)
            old = got[seen:]
            for number in range(NEW):
                await producer.send(Message("T", b"new-%d" % number))
            await trio.sleep(NEW)
            nursery.cancel_scope.cancel()
    assert len(old) <= 3
    assert [body for body in got[seen:] if body not in old] == [b"new-%d" % n for n in range(NEW)]


@pytest.mark.parametrize("mode", MODES)
async def test_an_idle_member_follows_a_reset_to_the_beginning_at_once(
    mode: str, tmp_path: Path
) -> None:
    """An idle member follows a reset at once, though its pull waits at the broker."""
    make, take = MODES[mode]
    got: list[bytes] = []
    async with local_cluster(replicas=1) as cluster, AsyncExitStack() as stack:
        _, admin = await prepared(cluster, stack)
        consumer = await stack.enter_async_context(make(cluster.namesrv_addr, tmp_path))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, consumer, got)
            await trio.sleep(OLD / 2 + 10.7)
            assert len(got) == OLD
            await admin.groups.reset_offset("G", "T", 0)
            await trio.sleep(SOON_S)
            assert got[OLD:][:1] == [b"old-0"]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_a_reset_holds_after_its_member_has_left(auto_commit: bool) -> None:
    """A commit of what was in hand before does not undo it."""
    async with local_cluster(replicas=1) as cluster, AsyncExitStack() as stack:
        _, admin = await prepared(cluster, stack)
        async with cluster.consumer("G", {"T": "*"}, auto_commit=auto_commit) as consumer:
            assert await consumer.poll(20, timeout_s=20)
            await consumer.commit()
            in_hand = await consumer.poll(20, timeout_s=20)
            await admin.groups.reset_offset("G", "T", 0)
            await trio.sleep(SOON_S)
            if not auto_commit:
                await consumer.commit(in_hand[-1])
        async with cluster.consumer("G", {"T": "*"}) as consumer:
            assert (await consumer.poll(1, timeout_s=20))[0].body == b"old-0"


CLIENTS = {
    "consumer": lambda cluster: cluster.consumer("G", {"T": "*"}),
    "pop consumer": lambda cluster: PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}),
}
FROM_BROKERS = {
    RequestCode.CHECK_TRANSACTION_STATE: "producers'",
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: "producers'",
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: "obeyed",
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: "obeyed",
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: "answered",
    RequestCode.GET_CONSUMER_RUNNING_INFO: "answered",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "refused",
}


def test_every_notice_of_a_broker_has_a_case() -> None:
    """Notices for clients are those that the broker says it sends or passes on."""
    to_clients = {code for code, why in REASONS.items() if "ask clients" in why}
    assert to_clients <= set(FROM_BROKERS)
    told = notices.__doc__ or ""
    assert all(str(int(code)) in told for code in FROM_BROKERS)


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_member_answers_each_question(kind: str) -> None:
    """A member answers the questions of tools, and refuses one with the remedy."""
    async with local_cluster(replicas=1) as cluster, AsyncExitStack() as stack:
        _, admin = await prepared(cluster, stack)
        consumer = await stack.enter_async_context(CLIENTS[kind](cluster))
        await trio.sleep(5)
        (status,) = await admin.clients.status("G")
        assert (status.client.client_id, status.problem) == (consumer.client_id, "")
        assert "'T'" in str(status.running_info)
        header = ConsumeMessageDirectlyHeader("G", consumer.client_id, "m")
        question = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, encode_header(header))
        answer = consumer._asked("b:1", question)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "redriveDeadLetters" in answer.remark
