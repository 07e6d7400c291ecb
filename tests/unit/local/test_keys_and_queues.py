"""A key keeps its queue, whatever is away: a broker group, a name server, or both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from dledger.remoting.message import tags_code
from dledger.testing.virtual import SELDOM
from mqclient import Message, NoRoute, Producer, Refused, SendFailed, SendResult, limits
from mqlocal import LocalCluster, local_cluster

KEYS = [f"key {number}" for number in range(12)]
LOOKED_AGAIN_S = 2 * SELDOM * limits.ROUTE_REFRESH_S
"""Virtual time after which producers have looked at their routes again."""
SECOND_GROUPS = next(key for key in KEYS if abs(tags_code(key)) % 8 >= 4)
"""A key whose queue is the second group's, where each of two has four queues."""
Places = Mapping[str, tuple[str, int]]


async def send(producer: Producer, key: str, timeout_s: float = 60) -> tuple[str, int]:
    """Where a message with this key goes."""
    sent: SendResult = await producer.send(Message("T", b"m"), key=key, timeout_s=timeout_s)
    return sent.broker_name, sent.queue_id


async def places(producer: Producer, keys: Sequence[str] = KEYS) -> Places:
    """Where each key's next message goes, all sent at once."""
    found: dict[str, tuple[str, int]] = {}

    async def one(key: str) -> None:
        found[key] = await send(producer, key)

    async with trio.open_nursery() as nursery:
        for key in keys:
            nursery.start_soon(one, key)
    return found


@asynccontextmanager
async def two_groups(*, order: bool = False) -> AsyncIterator[LocalCluster]:
    """Two broker groups of one replica each, with a topic of four queues on each."""
    async with local_cluster(replicas=1, groups=2) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=4, write_queues=4, order=order)
        yield cluster


def servers(cluster: LocalCluster, group: str) -> list[str]:
    """Names of a group's servers."""
    return [name for name in cluster.servers if name.startswith(group)]


@pytest.mark.parametrize("order", [False, True])
async def test_keys_wait_for_their_group(order: bool) -> None:
    """Keys wait for their group, though it is away for longer than routes are kept."""
    async with two_groups(order=order) as cluster, cluster.producer("P") as producer:
        before = await places(producer)
        away, here = cluster.groups
        assert {name for name, _ in before.values()} == {away, here}
        for name in servers(cluster, away):
            await cluster.kill(name)
        await trio.sleep(LOOKED_AGAIN_S)
        at_once = [key for key in KEYS if before[key][0] == here]
        with trio.fail_after(5):
            assert await places(producer, at_once) == {key: before[key] for key in at_once}
        after: list[Places] = []

        async def send_all() -> None:
            after.append(await places(producer))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all)
            await trio.sleep(10)
            assert not after
            for name in servers(cluster, away):
                await cluster.restart(name)
        assert after == [before]


@pytest.mark.parametrize("order", [False, True])
async def test_keys_stay_while_a_name_server_comes_back(order: bool) -> None:
    """A new name server that knows of one group says nothing of the other's queues."""
    async with two_groups(order=order) as cluster, cluster.producer("P") as producer:
        before = await places(producer)
        away, here = cluster.groups
        for name in servers(cluster, away):
            await cluster.kill(name)
        await cluster.kill("namesrv-0")
        with trio.move_on_after(20):  # one of the groups never registers
            await cluster.restart("namesrv-0")
        await trio.sleep(LOOKED_AGAIN_S)
        at_once = [key for key in KEYS if before[key][0] == here]
        assert await places(producer, at_once) == {key: before[key] for key in at_once}
        late = next(key for key in KEYS if before[key][0] == away)
        with pytest.raises(SendFailed):
            await send(producer, late, timeout_s=3)
        for name in servers(cluster, away):
            await cluster.restart(name)
        assert await places(producer) == before


@pytest.mark.parametrize("order", [False, True])
async def test_a_producer_that_begins_while_a_group_is_away_knows_its_queues(order: bool) -> None:
    """A new producer learns an absent group's queues from name servers, and keys wait."""
    async with two_groups(order=order) as cluster:
        async with cluster.producer("P") as producer:
            before = await places(producer)
        away, here = cluster.groups
        for name in servers(cluster, away):
            await cluster.kill(name)
        await trio.sleep(10)
        async with cluster.producer("P") as producer:
            at_once = [key for key in KEYS if before[key][0] == here]
            assert await places(producer, at_once) == {key: before[key] for key in at_once}
            for _ in range(8):
                assert (await producer.send(Message("T", b"m"))).broker_name == here
            for name in servers(cluster, away):
                await cluster.restart(name)
            assert await places(producer) == before


async def test_queues_that_an_operator_takes_are_taken() -> None:
    """A group that is wiped has no keys any more: they move. Where only the topic is read-only they
    are refused, and the others stay."""
    async with two_groups() as cluster, cluster.producer("P") as producer:
        before = await places(producer)
        away, here = cluster.groups
        async with cluster.admin() as admin:
            await admin.settings.set_write_perm(away, writable=False)
            await trio.sleep(LOOKED_AGAIN_S)
            assert {name for name, _ in (await places(producer)).values()} == {here}
            await admin.settings.set_write_perm(away, writable=True)
            await trio.sleep(LOOKED_AGAIN_S)
            assert await places(producer) == before
            await admin.topics.update("T", broker=away, perm=4)
            here_still = [key for key in KEYS if before[key][0] == here]
            assert await places(producer, here_still) == {key: before[key] for key in here_still}
            refused = next(key for key in KEYS if before[key][0] == away)
            with pytest.raises(SendFailed, match="not writable"):
                await send(producer, refused)
            assert (await producer.send(Message("T", b"m"))).broker_name == here


async def test_keys_of_a_group_that_is_gone_for_good_move_when_it_is_wiped() -> None:
    """Keys of a group that is away move when it is wiped; an unknown name is refused."""
    async with two_groups() as cluster, cluster.producer("P") as producer:
        before = await places(producer)
        gone, here = cluster.groups
        for name in servers(cluster, gone):
            await cluster.kill(name)
        await trio.sleep(1)
        async with cluster.admin() as admin:
            with pytest.raises(Refused, match="no broker group 'broker-x' is known"):
                await admin.settings.set_write_perm("broker-x", writable=False)
            await admin.settings.set_write_perm(gone, writable=False)
        late = next(key for key in KEYS if before[key][0] == gone)
        await trio.sleep(LOOKED_AGAIN_S)
        assert (await send(producer, late))[0] == here


async def test_a_producer_stops_where_it_may_not_write() -> None:
    """A send to a topic that is not writable fails at once, definitely, until it is writable."""
    async with (
        local_cluster(replicas=3) as cluster,
        cluster.producer("P") as producer,
        cluster.admin() as admin,
    ):
        await admin.topics.update("T", read_queues=4, write_queues=4)
        await producer.send(Message("T", b"before"))
        await admin.topics.update("T", perm=4)
        began_s = trio.current_time()
        with pytest.raises(SendFailed, match="not writable"):
            await producer.send(Message("T", b"no"))
        await trio.sleep(1)
        with pytest.raises(NoRoute, match="no writable queue"):
            await producer.send(Message("T", b"no"))
        assert trio.current_time() - began_s < 12
        await admin.topics.update("T", perm=6)
        assert (await producer.send(Message("T", b"after"))).queue_offset >= 0


async def test_a_wiped_group_takes_nothing_from_whoever_leads() -> None:
    """The name servers' word holds over a transfer of leadership and changes of topics."""
    async with (
        local_cluster(replicas=3) as cluster,
        cluster.producer("P") as producer,
        cluster.admin() as admin,
    ):
        await admin.topics.update("T", read_queues=4, write_queues=4)
        await admin.topics.update("R", read_queues=4, write_queues=4, perm=4)
        await producer.send(Message("T", b"before"))
        (group,) = cluster.groups
        await admin.settings.set_write_perm(group, writable=False)
        await trio.sleep(2)
        with pytest.raises(SendFailed, match="takes no messages"):
            await producer.send(Message("T", b"no"))
        await cluster.kill("leader")
        await admin.topics.update("S", read_queues=1, write_queues=1)
        await trio.sleep(LOOKED_AGAIN_S)
        for topic in ("T", "S"):
            with pytest.raises((SendFailed, NoRoute)):
                await producer.send(Message(topic, b"no"))
        await admin.settings.set_write_perm(group, writable=True)
        await trio.sleep(10)
        await producer.send(Message("T", b"after"))
        with pytest.raises((SendFailed, NoRoute)):
            await producer.send(Message("R", b"never"))


async def begin_with_one_group(cluster: LocalCluster, tasks: trio.Nursery) -> None:
    """Restart the name server, with the first group known and the other one late."""
    _, late = cluster.groups
    for name in ("namesrv-0", *servers(cluster, late)):
        await cluster.kill(name)
    await cluster.restart("namesrv-0")

    async def come() -> None:
        await trio.sleep(2)
        for name in servers(cluster, late):
            await cluster.restart(name)

    tasks.start_soon(come)


async def bound(way: str, producer: Producer, topic: str) -> SendResult:
    """A message that its key binds to a queue of the second group, sent in one of the ways."""
    message, key = Message(topic, b"m"), SECOND_GROUPS
    if way == "batch":
        return (await producer.send_batch([message], key=key))[0]
    if way == "each of a batch":
        return (await producer.send_batch([message], keys=[key]))[0]
    if way == "soon":
        return await (await producer.send_soon(message, key=key)).wait()
    if way == "prepared":
        await producer.prepare(topic)
        return await producer.send_nowait(message, key=key).wait()
    if way == "many":
        return (await producer.send_many(topic, [b"m"], key=key))[0]
    if way == "selector":
        return await producer.send(message, selector=lambda queues, _: queues[-1])
    return await producer.send(message, key=key)


@pytest.mark.parametrize(
    "way",
    ["one", "soon", "prepared", "batch", "each of a batch", "many", "selector", "a new topic"],
)
async def test_a_key_waits_for_a_name_server_that_has_just_begun(way: str) -> None:
    """A key's message waits for the unknown group; a message without a key does not."""
    topic = "Made" if way == "a new topic" else "T"
    async with two_groups() as cluster, trio.open_nursery() as nursery:
        await begin_with_one_group(cluster, nursery)
        async with cluster.producer("P", timeout_s=60) as producer:
            with trio.fail_after(1):
                assert (await producer.send(Message("T", b"free"))).broker_name == "broker-a"
            assert (await bound(way, producer, topic)).broker_name == "broker-b"


async def test_what_a_key_binds_is_refused_while_groups_may_be_missing() -> None:
    """A key's message fails definitely at its deadline while its group may be missing."""
    async with two_groups() as cluster, trio.open_nursery() as nursery:
        await begin_with_one_group(cluster, nursery)
        async with cluster.producer("P") as producer:
            with pytest.raises(NoRoute, match="have just begun"):
                await send(producer, SECOND_GROUPS, timeout_s=0.5)
            await producer.send(Message("T", b"free"), timeout_s=0.5)
            with pytest.raises(NoRoute):
                producer.send_nowait(Message("T", b"bound"), key=SECOND_GROUPS)
            await producer.send_nowait(Message("T", b"free")).wait()
