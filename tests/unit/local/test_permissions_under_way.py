"""Changes of permissions while clients are busy, and servers come and go."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import trio

from dledger.testing.virtual import SELDOM
from mqclient import (
    Admin,
    ClientError,
    Consumer,
    Message,
    PopConsumer,
    PoppedMessage,
    Producer,
    SendError,
    limits,
)
from mqlocal import LocalCluster, local_cluster

KEYS = [f"key {number}" for number in range(6)]
STEPS = 14
LOOKED_AGAIN_S = 1.1 * SELDOM * limits.ROUTE_REFRESH_S
"""Virtual time after which producers have looked at their routes again."""
TOLD_S = 0.5
"""A name server tells a group's members at once what was wiped: as good as at once."""


@dataclass
class History:
    """Answers to producers, and times when no write should have been allowed."""

    sent: list[tuple[float, float, str, str, int]] = field(default_factory=list)
    """(began, ended, key, broker group, queue) of acknowledged sends."""
    refused: int = 0
    is_busy: bool = True
    forbidden: list[tuple[float, float, str]] = field(default_factory=list)
    """Spans as (from, until, broker group or all), from one change's answer to the next one's
    request.
    """

    def violations(self) -> list[str]:
        """Acknowledged sends that lie within such a time, and keys that moved."""
        found = [
            f"{key} was stored on {group} at {ended_s:.2f} s, forbidden since {since_s:.2f} s"
            for began_s, ended_s, key, group, _ in self.sent
            for since_s, until_s, where in self.forbidden
            if since_s <= began_s and ended_s <= until_s and where in ("", group)
        ]
        places = defaultdict[str, set[tuple[str, int]]](set)
        for *_, key, group, queue_id in self.sent:
            places[key].add((group, queue_id))
        moved = {key: where for key, where in places.items() if len(where) > 1}
        return found + [f"{key} was sent to {where}" for key, where in moved.items()]


async def produce(producer: Producer, key: str, history: History) -> None:
    """Send messages of a key one after the other, and note each outcome."""
    while True:
        began_s = trio.current_time()
        try:
            sent = await producer.send(Message("T", b"m"), key=key, timeout_s=20)
        except (SendError, ClientError):
            history.refused += 1
        else:
            ended_s = trio.current_time()
            history.sent.append((began_s, ended_s, key, sent.broker_name, sent.queue_id))
        await trio.sleep(0.2)


class Operator:
    """Changes permissions and ends servers, as a seed says, and puts everything back."""

    def __init__(self, cluster: LocalCluster, admin: Admin, history: History, seed: int) -> None:
        self._cluster = cluster
        self._admin = admin
        self._history = history
        self._dice = random.Random(seed)
        self._denied_s: float | None = None
        self._down: list[str] = []

    async def work(self) -> None:
        """Do some random steps, and then restore all."""
        steps = (self._permit, self._permit, self._end_a_group, self._end_a_name_server)
        for _ in range(STEPS):
            await self._dice.choice(steps)()
            await trio.sleep(self._dice.uniform(0.1, 3))
        await self._restart()
        if self._denied_s is not None:
            await self._permit()
        await trio.sleep(5)

    async def _permit(self) -> None:
        """Make the topic read-only, or writable again, on all groups: so all must be there."""
        await self._restart()
        denied_s, self._denied_s = self._denied_s, None
        if denied_s is not None:
            self._history.forbidden.append((denied_s, trio.current_time(), ""))
        await self._admin.topics.update("T", perm=4 if denied_s is None else 6)
        if denied_s is None:
            self._denied_s = trio.current_time()

    async def _end_a_group(self) -> None:
        """The leader of one is killed, which leaves groups of one with nobody."""
        await self._restart()
        group = self._dice.choice(self._cluster.groups)
        self._down.append(await self._cluster.kill(await self._cluster.leader(group)))

    async def _end_a_name_server(self) -> None:
        """The only one: it comes back at the next change."""
        if "namesrv-0" not in self._down:
            self._down.append(await self._cluster.kill("namesrv-0"))

    async def _restart(self) -> None:
        while self._down:
            await self._cluster.restart(self._down.pop())


@pytest.mark.parametrize("seed", range(2))
async def test_no_send_is_stored_while_its_topic_is_read_only_and_no_key_moves(seed: int) -> None:
    """No send is stored while its topic is read-only, and no key moves, as servers come and go."""
    history = History()
    async with (
        local_cluster(replicas=1, groups=2) as cluster,
        cluster.producer("P") as producer,
        cluster.admin() as admin,
    ):
        await admin.topics.update("T", read_queues=4, write_queues=4)
        async with trio.open_nursery() as nursery:
            for key in KEYS:
                nursery.start_soon(produce, producer, key, history)
            await Operator(cluster, admin, history, seed).work()
            nursery.cancel_scope.cancel()
    print(f"seed {seed}: {len(history.sent)} stored, {history.refused} refused")
    assert history.violations() == []
    assert history.refused > 0
    assert {group for *_, group, _ in history.sent} == set(cluster.groups)
    assert history.forbidden


Change = Callable[[Admin, str, bool], Awaitable[object]]
CHANGES: dict[str, Change] = {
    "wipeWritePerm": lambda admin, group, is_given: admin.settings.set_write_perm(
        group, writable=is_given
    ),
    "brokerPermission": lambda admin, group, is_given: admin.settings.update_broker_config(
        "brokerPermission", "6" if is_given else "4", broker=group
    ),
}


@pytest.mark.parametrize("how", CHANGES)
async def test_a_group_that_takes_nothing_stays_so_whoever_leads(how: str) -> None:
    """A group without write permission stores nothing, though its leaders are killed.

    The other group takes all messages without a key.
    """
    history, dice = History(), random.Random(7)
    async with (
        local_cluster(replicas=3, groups=2) as cluster,
        cluster.producer("P") as producer,
        cluster.admin() as admin,
    ):
        await admin.topics.update("T", read_queues=4, write_queues=4)

        async def free() -> None:
            while True:
                began_s = trio.current_time()
                sent = await producer.send(Message("T", b"m"), timeout_s=20)
                ended_s = trio.current_time()
                history.sent.append((began_s, ended_s, "", sent.broker_name, 0))
                await trio.sleep(0.2 if history.is_busy else 20)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(free)
            for _ in range(3):
                group = dice.choice(cluster.groups)
                await CHANGES[how](admin, group, False)
                began_s = trio.current_time() + TOLD_S
                await trio.sleep(2)
                killed = await cluster.kill(await cluster.leader(group))
                await trio.sleep(3)
                await cluster.restart(killed)
                history.forbidden.append((began_s, trio.current_time(), group))
                await CHANGES[how](admin, group, True)
                history.is_busy = False
                await trio.sleep(LOOKED_AGAIN_S)
                history.is_busy = True
            nursery.cancel_scope.cancel()
    stored = [each for each in history.violations() if "forbidden" in each]
    assert stored == []
    assert {group for *_, group, _ in history.sent} == set(cluster.groups)


@pytest.mark.parametrize("pops", [False, True])
@pytest.mark.parametrize("what", ["group", "topic"])
async def test_members_get_nothing_while_they_may_not(pops: bool, what: str) -> None:
    """No message passes while a group is disabled or its topic unreadable, and none is lost."""
    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        cluster.admin() as admin,
    ):
        await admin.topics.update("T", read_queues=2, write_queues=2)

        async def allow(*, allowed: bool) -> None:
            if what == "group":
                await admin.groups.update("G", consume_enable=allowed)
            else:
                await admin.topics.update("T", perm=6 if allowed else 2)

        make = PopConsumer if pops else Consumer
        async with make(cluster.namesrv_addr, "G", {"T": "*"}) as consumer:
            found: list[bytes] = []

            async def read() -> None:
                while True:
                    for message in await consumer.poll(timeout_s=5):
                        found.append(message.body)
                        if isinstance(consumer, PopConsumer):
                            assert isinstance(message, PoppedMessage)
                            await consumer.ack(message)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await producer.send(Message("T", b"1"))
                await trio.sleep(2)
                assert found == [b"1"]
                await allow(allowed=False)
                await producer.send(Message("T", b"2"))
                await trio.sleep(60)
                assert found == [b"1"]
                await allow(allowed=True)
                with trio.fail_after(60):
                    while len(found) < 2:  # noqa: ASYNC110 -- nothing to be woken by
                        await trio.sleep(0.1)
                assert found == [b"1", b"2"]
                nursery.cancel_scope.cancel()
