"""A model of ordered members that come and go while they wait for each other's queues.

Members join, are drained, leave their block, are cancelled, or end without a word while they have
no lock yet; handlers are slow or quick. Whatever happens, each message is handled once, and soon:
no lock is left with a member that is gone. A broker that keeps the requests of members that are
gone is found.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NoReturn

import pytest
import trio

from dledger.errors import ConnectFailed
from mqbroker.requests.groups.clients import ClientHandler
from mqbroker.requests.held_pulls import HeldPulls
from mqclient import Consumer, Message, Producer, ReceivedMessage
from mqlocal import LocalCluster, local_cluster

STEPS, SEEDS = 16, 4
QUEUES = 2
HANDLED_S = (0.1, 0.2, 0.3, 0.4)
SOON_S = 1.0
"""Seconds until a message's handler begins, though its queue is handed on and on."""


class Life:
    """The members of one group."""

    def __init__(
        self,
        cluster: LocalCluster,
        brokers: list[ClientHandler],
        nursery: trio.Nursery,
        draw: random.Random,
    ) -> None:
        self._cluster, self._nursery, self._draw = cluster, nursery, draw
        self._brokers = brokers
        self.handled: Counter[bytes] = Counter()
        self.late_s = [0.0]
        self.sent: dict[bytes, float] = {}
        self.due: set[bytes] = set()
        self.members: list[tuple[Consumer, trio.CancelScope]] = []

    async def send(self, producer: Producer) -> None:
        """Send to each queue in turn."""
        for number in range(10_000):
            body = b"%d" % number
            await producer.send(Message("T", body), queue_id=number % QUEUES)
            self.sent[body] = trio.current_time()
            await trio.sleep(max(HANDLED_S) / QUEUES)

    async def step(self) -> None:
        """Make a member come, or go, or come and be killed before it has a lock."""
        way = self._draw.choice(["come", "go", "visit"])
        if way != "go" or len(self.members) < 2:
            await self._nursery.start(self._live)
        if way != "come" and len(self.members) > 1:
            await trio.sleep(self._draw.choice([0.0, 0.01, 0.05]))
            consumer, scope = self.members.pop(-1 if way == "visit" else 0)
            if way == "visit" and not self._has_locks(consumer):  # they would last for a minute
                _end(consumer)
            elif self._draw.random() < 0.5:
                assert await consumer.drain()
            scope.cancel()
        await trio.sleep(self._draw.choice([0.0, 0.01, 0.1, 0.5, 1.0]))

    def _has_locks(self, consumer: Consumer) -> bool:
        """Whether the member has a lock, or may have one soon."""
        (broker,) = self._brokers
        held = broker._core.machine.locks._held.values()
        owners = {lock.client_id for lock in held}
        return consumer.client_id in owners or broker._locking._asked.total() > 0

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as scope:
            async with self._cluster.consumer("G", {"T": "*"}, ordered=True) as consumer:
                self.members.append((consumer, scope))
                task_status.started()
                await consumer.run(self._handle, 8)

    async def _handle(self, message: ReceivedMessage) -> None:
        self.handled[message.body] += 1
        if message.body in self.sent:
            self.late_s.append(trio.current_time() - self.sent[message.body])
        with trio.CancelScope(shield=True):
            await trio.sleep(self._draw.choice(HANDLED_S))


def _end(consumer: Consumer) -> None:
    """End a consumer like a killed process: its connections close without a word."""

    async def fail(address: str, _: float) -> NoReturn:
        raise ConnectFailed(f"no connection to {address}")

    pool = consumer._session.pool
    vars(pool).update(_dial=fail)
    consumer._has_left = True
    for slot in pool._slots.values():
        if slot.peer is not None:
            slot.peer.close()


async def lived(seed: int, brokers: list[ClientHandler]) -> Life:
    """A life of the group."""
    print("seed", seed)
    brokers.clear()
    async with (
        local_cluster(replicas=1) as cluster,
        cluster.admin() as admin,
        cluster.producer("P") as producer,
        trio.open_nursery() as nursery,
    ):
        await admin.topics.update("T", read_queues=QUEUES, write_queues=QUEUES)
        life = Life(cluster, brokers, nursery, random.Random(seed))
        await life.step()
        await trio.sleep(5)
        nursery.start_soon(life.send, producer)
        for _ in range(STEPS):
            await life.step()
        await trio.sleep(SOON_S + 1)
        life.due = {body for body, at_s in life.sent.items() if at_s < trio.current_time() - SOON_S}
        nursery.cancel_scope.cancel()
    return life


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[ClientHandler]:
    """The parts of brokers that grant locks, as they are made."""
    made: list[ClientHandler] = []
    make = ClientHandler.__init__

    def noted(self: ClientHandler, *parts: Any) -> None:
        make(self, *parts)
        made.append(self)

    monkeypatch.setattr(ClientHandler, "__init__", noted)
    return made


async def test_ordered_members_that_come_and_go_leave_no_queue_locked(
    brokers: list[ClientHandler],
) -> None:
    """Ordered members that come and go have each message handled once and soon."""
    first = random.randrange(1 << 32)
    for seed in range(first, first + SEEDS):
        life = await lived(seed, brokers)
        print(max(life.late_s), len(life.due))
        assert life.due - {*life.handled} == set()
        assert [body for body, times in life.handled.items() if times > 1] == []
        assert max(life.late_s) < SOON_S


async def test_a_lock_that_is_given_to_a_member_that_is_gone_is_found(
    brokers: list[ClientHandler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that gives locks to members that are gone is found by unhandled messages.

    Either of the two calls that it forgets is enough.
    """
    for forgotten in ("disconnected", "members_changed"):
        monkeypatch.setattr(HeldPulls, forgotten, lambda *_: None)
    for seed in range(8 * SEEDS):
        life = await lived(seed, brokers)
        print(max(life.late_s), life.due - {*life.handled})
        if life.due - {*life.handled}:
            return
    pytest.fail("it was not found")
