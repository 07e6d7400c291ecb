"""A member that leaves keeps no queue locked, whatever was under way when it left."""

from __future__ import annotations

import random
from typing import cast

import anyio
import pytest
import trio

from dledger.errors import RemotingError
from dledger.remoting.bodies import (
    LockBatchBody,
    LockBatchResponseBody,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.json_dialect import MessageQueue
from mqclient import Message, limits
from mqclient.connection.session import Session
from mqclient.consuming.sharing.locks import Locks
from mqclient.consuming.sharing.offsets import BrokerOffsets
from mqlocal import local_cluster

pytestmark = pytest.mark.usefixtures("autojump_clock")

QUEUES = [MessageQueue("Orders", "broker-a", number) for number in range(4)]


class Broker:
    """Keeps locks of one client, and handles requests in any order: each after a time of its own.

    `way_s` says how long a request and its answer are on their way; `lost` whether the answer is.
    """

    client_id = "member"

    def __init__(self) -> None:
        self.held: set[MessageQueue] = set()
        self.asked: list[tuple[int, list[MessageQueue]]] = []
        self.way_s = lambda: (0.1, 0.0)
        self.lost = lambda: False
        self.finder = self
        self.tasks: trio.Nursery

    async def granted(
        self, _: str, __: str, ___: str, command: Command, timeout_s: float, held_s: float
    ) -> Command:
        body = decode_body(LockBatchBody, command.payload)
        self.asked.append((command.code, body.mq_set))
        there_s, back_s = self.way_s()
        await anyio.sleep(there_s)
        tokens = None
        if command.code == RequestCode.LOCK_BATCH_MQ:
            self.held.update(body.mq_set)
            tokens = [1] * len(body.mq_set)
        else:
            self.held.difference_update(body.mq_set)
        if self.lost():
            await anyio.sleep(timeout_s - there_s)
            raise RemotingError("no answer")
        await anyio.sleep(back_s)
        answer = encode_body(LockBatchResponseBody(body.mq_set, tokens))
        return Command(ResponseCode.SUCCESS, {}, answer)


def member(broker: Broker) -> Locks:
    return Locks(cast(Session, broker), "readers", lambda queue: None, lambda: None)


async def test_a_renewal_under_way_brings_no_lock_back() -> None:
    """A slow renewal is waited for before a queue is given up; the others stay."""
    broker = Broker()
    locks = member(broker)
    async with trio.open_nursery() as nursery:
        for queue in QUEUES:
            await locks.acquire(queue)
        nursery.start_soon(locks.keep)
        await trio.sleep(limits.LOCK_RENEW_S + 0.05)
        broker.way_s = lambda: (0.01, 0.0)
        await locks.release(QUEUES[:1])
        assert broker.held == set(QUEUES[1:])
        await trio.sleep(2 * limits.LOCK_RENEW_S)
        assert broker.held == set(QUEUES[1:])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("attempt", range(20))
async def test_leaving_as_a_renewal_begins_leaves_no_lock(attempt: int) -> None:
    """Leaving gives up the queue's lock for good, also at the moment of a renewal."""
    broker = Broker()
    broker.way_s = lambda: (0.0, 0.0)
    locks = member(broker)
    async with trio.open_nursery() as nursery:
        for queue in QUEUES:
            await locks.acquire(queue)
        nursery.start_soon(locks.keep)
        await trio.sleep(limits.LOCK_RENEW_S)
        await locks.leave()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert not broker.held


async def test_who_has_left_asks_for_nothing() -> None:
    """A member that has left asks neither for a new lock nor for a renewal."""
    broker = Broker()
    locks = member(broker)
    async with trio.open_nursery() as nursery:
        await locks.acquire(QUEUES[0])
        nursery.start_soon(locks.keep)
        await locks.leave()
        nursery.start_soon(locks.acquire, QUEUES[1])
        asked = len(broker.asked)
        await trio.sleep(10 * limits.LOCK_RENEW_S)
        assert len(broker.asked) == asked
        nursery.cancel_scope.cancel()


async def test_what_there_was_no_time_to_unlock_is_unlocked_on_leaving() -> None:
    """A queue that was given up while nobody answered is not forgotten."""
    broker = Broker()
    locks = member(broker)
    await locks.acquire(QUEUES[0])
    with trio.move_on_after(0.05):  # its request is on its way for twice as long
        await locks.release(QUEUES[:1])
    assert broker.held
    assert not locks.holds(QUEUES[0])
    await locks.leave()
    assert not broker.held


async def test_a_lock_that_comes_after_its_queue_was_given_up_is_given_up_too() -> None:
    """A member that stays would renew it, and nobody would read the queue."""
    broker = Broker()
    broker.way_s = lambda: (2.0 if len(broker.asked) == 1 else 0.0, 0.0)
    locks = member(broker)
    async with trio.open_nursery() as broker.tasks:
        broker.tasks.start_soon(locks.keep)
        with trio.move_on_after(0.1):
            async with trio.open_nursery() as reading:
                reading.start_soon(locks.acquire, QUEUES[0])
                await trio.sleep(0.05)
                with trio.move_on_after(1, shield=True):
                    await locks.release(QUEUES[:1])
        await trio.sleep(2 * limits.LOCK_RENEW_S)
        assert broker.asked[0][0] == RequestCode.LOCK_BATCH_MQ
        assert not broker.held
        broker.tasks.cancel_scope.cancel()


async def test_a_last_commit_that_gets_no_answer_does_not_keep_queues_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next member reads at once, and not when the lock has ended, a minute later."""

    async def no_answer(*_: object, **__: object) -> dict[MessageQueue, int]:
        await trio.sleep_forever()
        raise AssertionError

    async with local_cluster() as cluster:
        async with cluster.producer("P") as producer:
            await producer.send(Message("Orders", b"1"))
        async with cluster.consumer("readers", {"Orders": "*"}, ordered=True) as first:
            assert await first.poll(1, timeout_s=30)
            monkeypatch.setattr(BrokerOffsets, "store", no_answer)
        monkeypatch.undo()
        async with cluster.consumer("readers", {"Orders": "*"}, ordered=True) as second:
            assert await second.poll(1, timeout_s=10)


async def test_through_any_stay_nothing_stays_locked() -> None:
    """A member that leaves has all queues unlocked, after any course of requests and losses."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    for case in range(200):
        chance = random.Random(f"{seed}.{case}")
        broker = Broker()
        broker.way_s = lambda chance=chance: (chance.random() * 0.5, chance.random() * 0.5)
        broker.lost = lambda chance=chance: chance.random() < 0.2
        locks = member(broker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(locks.keep)
            scopes: dict[MessageQueue, trio.CancelScope] = {}

            async def take(
                queue: MessageQueue, scope: trio.CancelScope, locks: Locks = locks
            ) -> None:
                with scope:
                    await locks.acquire(queue)

            for _ in range(chance.randrange(1, 12)):
                queue = chance.choice(QUEUES)
                if queue in scopes:
                    scopes.pop(queue).cancel()
                    await locks.release([queue])
                else:
                    scopes[queue] = trio.CancelScope()
                    nursery.start_soon(take, queue, scopes[queue])
                await trio.sleep(chance.random() * chance.choice([0.3, limits.LOCK_RENEW_S]))
            broker.lost = lambda: False
            await locks.leave()
            nursery.cancel_scope.cancel()
        assert not broker.held, f"seed {seed}, case {case}"
