"""Members that join and leave while others read: no message is handled twice."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from mqbroker.requests.groups.membership import Membership
from mqbroker.requests.groups.readers import Readers
from mqbroker.requests.reading.lookups import LookupHandler
from mqbroker.state.groups.locks import QueueKey
from mqclient import Consumer, Message, PopConsumer, Producer, ReceivedMessage
from mqlocal import LocalCluster, local_cluster

Handler = Callable[[ReceivedMessage], Awaitable[None]]
HANDLED_S_MAX = 0.3
DEPLOYS = 6

MODES: dict[str, Callable[[LocalCluster], Any]] = {
    "pull": lambda cluster: cluster.consumer("G", {"T": "*"}),
    "circular": lambda cluster: cluster.consumer("G", {"T": "*"}, assign="circular"),
    "by hand": lambda cluster: cluster.consumer("G", {"T": "*"}, auto_commit=False),
    "ordered": lambda cluster: cluster.consumer("G", {"T": "*"}, ordered=True),
    "pop": lambda cluster: PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}),
}


async def member(
    cluster: LocalCluster, mode: str, handle: Handler, *, task_status: trio.TaskStatus[Any]
) -> None:
    """A program that handles messages until it is drained."""
    async with MODES[mode](cluster) as consumer:
        task_status.started(consumer)
        if mode != "by hand":
            await consumer.run(handle, 8)
            return
        async for message in consumer:
            await handle(message)
            await consumer.commit(message)


async def produce(producer: Producer, sent: dict[bytes, float]) -> None:
    for number in range(10_000):
        body = b"%d" % number
        await producer.send(Message("T", body))
        sent[body] = trio.current_time()
        await trio.sleep(0.06)


@pytest.mark.parametrize("mode", MODES)
async def test_rolling_deploys_handle_each_message_once_and_soon(mode: str) -> None:
    """Rolling deploys handle each message once and soon, as members come and go."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    handled: Counter[bytes] = Counter()
    late_s: list[float] = []
    sent: dict[bytes, float] = {}

    async def handle(message: ReceivedMessage) -> None:
        if message.body in sent:
            late_s.append(trio.current_time() - sent[message.body])
        await trio.sleep(draw.uniform(0, HANDLED_S_MAX) if mode != "by hand" else 0.002)
        handled[message.body] += 1

    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        trio.open_nursery() as nursery,
    ):
        members = [await nursery.start(member, cluster, mode, handle) for _ in range(2)]
        await trio.sleep(5)
        nursery.start_soon(produce, producer, sent)
        for _ in range(DEPLOYS):
            await trio.sleep(draw.uniform(0.5, 1.5))
            members.append(await nursery.start(member, cluster, mode, handle))
            await trio.sleep(draw.uniform(0.2, 1.5))
            assert await members.pop(0).drain()
        await trio.sleep(2)
        due = {body for body, at_s in sent.items() if at_s < trio.current_time() - 1.5}
        nursery.cancel_scope.cancel()
    assert [body for body, times in handled.items() if times > 1] == []
    assert len(due) > 10 * DEPLOYS
    assert due - set(handled) == set()
    assert max(late_s) < 1 + 2 * HANDLED_S_MAX


@pytest.mark.parametrize("mode", ["pull", "circular", "ordered"])
async def test_a_queue_waits_for_its_own_handlers_alone(mode: str) -> None:
    """A queue waits for its own handlers alone, not for those of other queues lost with it."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    sent: dict[bytes, float] = {}
    begun: defaultdict[int, dict[int, tuple[str, float]]] = defaultdict(dict)
    ended: defaultdict[int, dict[int, float]] = defaultdict(dict)
    pauses_s: list[float] = []
    drained_s = 0.0

    def handled_by(name: str) -> Handler:
        async def handle(message: ReceivedMessage) -> None:
            queue, offset, now_s = message.queue_id, message.queue_offset, trio.current_time()
            before = begun[queue].get(offset - 1)
            assert offset not in begun[queue]
            begun[queue][offset] = name, now_s
            if before is not None and before[0] != name:
                since_s = max(ended[queue][offset - 1], sent.get(message.body, now_s), drained_s)
                pauses_s.append(now_s - since_s)
            await trio.sleep(draw.choice([0.0] * 19 + [3.0]))
            ended[queue][offset] = trio.current_time()

        return handle

    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        trio.open_nursery() as nursery,
    ):
        members = [await nursery.start(member, cluster, mode, handled_by(f"{n}")) for n in range(2)]
        await trio.sleep(5)
        nursery.start_soon(produce, producer, sent)
        for number in range(DEPLOYS):
            await trio.sleep(draw.uniform(0.5, 1.5))
            new = await nursery.start(member, cluster, mode, handled_by(f"new {number}"))
            members.append(new)
            await trio.sleep(draw.uniform(0.2, 1.5))
            drained_s = math.inf
            assert await members.pop(0).drain()
            drained_s = trio.current_time()
        nursery.cancel_scope.cancel()
    assert len(pauses_s) > DEPLOYS
    assert max(pauses_s) < 0.01


async def handled_by_two(
    cluster: LocalCluster, first: Consumer, handled_s: float
) -> Counter[bytes]:
    """Bodies with the number of times they were handled, while another member joins."""
    handled: Counter[bytes] = Counter()

    async def handle(message: ReceivedMessage) -> None:
        await trio.sleep(handled_s)
        handled[message.body] += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run, handle, 64)
        await trio.sleep(handled_s / 2)
        async with cluster.consumer("G", {"T": "*"}) as second:
            nursery.start_soon(second.run, handle, 64)
            await trio.sleep(30 + 10 * handled_s)
            nursery.cancel_scope.cancel()
    return handled


async def sent(cluster: LocalCluster) -> set[bytes]:
    bodies = {b"%d" % number for number in range(64)}
    async with cluster.producer("P") as producer:
        for body in sorted(bodies):
            await producer.send(Message("T", body))
    return bodies


async def test_a_member_that_takes_too_long_is_not_waited_for() -> None:
    """A member above its `revoke_timeout_s` is not waited for, and its messages come again."""
    async with local_cluster(replicas=1) as cluster:
        bodies = await sent(cluster)
        async with cluster.consumer("G", {"T": "*"}) as first:
            handled = await handled_by_two(cluster, first, 20)
    assert set(handled) == bodies
    assert 0 < sum(times > 1 for times in handled.values()) < len(bodies)


@pytest.mark.parametrize("dies", [False, True])
async def test_a_member_waits_at_the_broker_for_one_that_is_busy(
    dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member waits at the broker, with few questions, until the other is through or gone."""
    asked = 0
    through_s: list[float] = []
    began_s: list[float] = []
    answers = LookupHandler._stored_offset

    def counted(*asking: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        return answers(*asking, **more)

    async def busy(_: ReceivedMessage) -> None:
        await trio.sleep(4.4)
        through_s.append(trio.current_time())

    async def begin(_: ReceivedMessage) -> None:
        began_s.append(trio.current_time())

    async def say_nothing(**_: object) -> None:
        """Say nothing, like a killed process."""

    async with local_cluster(replicas=1) as cluster, trio.open_nursery() as nursery:
        await sent(cluster)
        async with cluster.consumer("G", {"T": "*"}) as first:
            monkeypatch.setattr(first, "_leave", say_nothing)
            nursery.start_soon(first.run, busy, 64)
            await trio.sleep(1)
            monkeypatch.setattr(LookupHandler, "_stored_offset", counted)
            second = await nursery.start(member, cluster, "pull", begin)
            await trio.sleep(2.5 if dies else 10)
        ended_s = trio.current_time() if dies else through_s[0]
        await trio.sleep(1)
        queues = len(second._readings())
        nursery.cancel_scope.cancel()
    assert 0 <= began_s[0] - ended_s < 0.06
    assert 0 < asked <= queues * 4


@pytest.mark.parametrize("tells", [True, False])
async def test_stock_members_are_not_waited_for(
    tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock members are not waited for: they never say that they have given a queue up."""

    def stock(self: Membership, group: str, connection_id: int) -> bool:
        return tells

    async with local_cluster(replicas=1) as cluster:
        bodies = await sent(cluster)
        monkeypatch.setattr(Membership, "tells", stock)
        async with cluster.consumer("G", {"T": "*"}) as first:
            handled = await handled_by_two(cluster, first, 1)
    assert set(handled) == bodies
    assert any(times > 1 for times in handled.values()) != tells


async def test_a_member_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose connection has closed is not waited for: others begin at its commits."""

    async def say_nothing(_: object) -> None:
        """Say nothing, like a killed process."""

    async with local_cluster(replicas=1) as cluster:
        bodies, got = await sent(cluster), set[bytes]()
        async with cluster.consumer("G", {"T": "*"}, auto_commit=False) as second:
            async with cluster.consumer("G", {"T": "*"}, auto_commit=False) as first:
                await trio.sleep(25)
                assert await first.poll()
                monkeypatch.setattr(first._session, "leave", say_nothing)
            with trio.fail_after(2):
                while got != bodies:
                    got |= {message.body for message in await second.poll()}


def test_a_queue_is_anothers_until_it_is_given_up_by_who_reads_it() -> None:
    """A queue belongs to its last reader until that one gives it up."""
    readers, key = Readers(), QueueKey("G", "T", 0)
    assert readers.reader(key) is None
    readers.take(key, 1)
    readers.give_up(key, 2)
    assert readers.reader(key) == 1
    readers.pulled(key, 2, 0)
    readers.give_up(key, 1)
    assert readers.reader(key) == 2
    readers.give_up(key, 2)
    assert readers.reader(key) is None
    readers.take(key, 3)
    readers.clear()
    assert readers.reader(key) is None
