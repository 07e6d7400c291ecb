"""Transactions and delays over the death of real leaders: each message once, or never."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
from clusters import serving_cluster

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import Probe
from mqclient import Consumer, Decision, Message, Producer, ReceivedMessage, blocking
from mqclient.connection.peers import PeerPool

BROKER = "broker-a"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A name server and three replicas, real processes, with fsync."""
    with serving_cluster(tmp_path) as cluster:
        yield cluster


async def read(namesrv: str, count: int) -> list[bytes]:
    """`count` messages, and whatever comes within a second after them."""
    bodies: list[bytes] = []
    async with Consumer(namesrv, "CG", {"Orders": "*"}) as consumer:
        with trio.fail_after(30):
            while len(bodies) < count:
                bodies += [message.body for message in await consumer.poll(timeout_s=0.2)]
        bodies += [message.body for message in await consumer.poll(timeout_s=1.0)]
    return bodies


async def test_the_leader_dies_between_half_message_and_end(cluster: Cluster) -> None:
    """A committed message is read once and a rolled back one never, over two leaders' deaths.

    The checker decides about open ones; a delayed message that waited meanwhile arrives once.
    """
    namesrv, asked = cluster.layout.namesrv_addr, []

    def checker(message: ReceivedMessage) -> Decision:
        asked.append(message.body)
        return Decision.COMMIT

    async with (
        PeerPool() as pool,
        Producer(namesrv, "PG", checker=checker, timeout_s=10) as producer,
    ):
        probe = Probe(cluster, pool)
        expected = []
        for number in range(2):
            await producer.send(Message("Orders", b"late %d" % number, delay_s=4))
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message("Orders", b"open %d" % number)):
                    raise ZeroDivisionError
            async with producer.transaction(Message("Orders", b"no %d" % number)) as other:
                async with producer.transaction(Message("Orders", b"yes %d" % number)):
                    leader = await probe.wait_for_leader(BROKER)
                    cluster.kill(leader.node.name)
                await other.rollback()
            cluster.start([leader.node.name])
            await probe.wait_until_level(BROKER)
            expected += [b"late %d" % number, b"open %d" % number, b"yes %d" % number]
        assert sorted(await read(namesrv, len(expected))) == sorted(expected)
    assert set(asked) == {b"open 0", b"open 1"}


async def test_commits_under_fire_are_told_as_they_are(cluster: Cluster) -> None:
    """Two hundred transactions while the leader is killed: every one that says it is committed is

    read exactly once, and nothing else is.
    """
    namesrv, bodies = cluster.layout.namesrv_addr, [b"%d" % number for number in range(200)]
    async with (
        PeerPool() as pool,
        Producer(namesrv, "PG", checker=lambda _: Decision.UNKNOWN, timeout_s=10) as producer,
        trio.open_nursery() as nursery,
    ):

        async def pay(body: bytes) -> None:
            async with producer.transaction(Message("Orders", body)) as transaction:
                await trio.sleep(0.02)
                if int(body) % 4 == 0:
                    await transaction.rollback()

        for number, body in enumerate(bodies):
            if number == 100:
                leader = await Probe(cluster, pool).wait_for_leader(BROKER)
                cluster.kill(leader.node.name)
            nursery.start_soon(pay, body)
            await trio.sleep(0.005)
    committed = [body for body in bodies if int(body) % 4]
    assert sorted(await read(namesrv, len(committed))) == sorted(committed)


def test_a_program_without_an_event_loop_has_transactions(cluster: Cluster, tmp_path: Path) -> None:
    """The checker runs in a thread of its own: it may open its own database."""
    database, namesrv = tmp_path / "orders.db", cluster.layout.namesrv_addr
    with closing(sqlite3.connect(database)) as orders, orders:
        orders.execute("create table orders (id text)")

    def checker(message: ReceivedMessage) -> Decision:
        with closing(sqlite3.connect(database)) as mine, mine:
            found = mine.execute("select 1 from orders where id = ?", (message.keys,)).fetchone()
        return Decision.COMMIT if found else Decision.ROLLBACK

    def fail(producer: blocking.Producer, key: str, work: str) -> None:
        with producer.transaction(Message("Orders", key.encode(), keys=key)):
            with closing(sqlite3.connect(database)) as orders, orders:
                orders.execute(work, (key,))
            raise ZeroDivisionError

    with blocking.Producer(namesrv, "PG", checker=checker) as producer:
        with pytest.raises(ZeroDivisionError):
            fail(producer, "o-1", "delete from orders where id = ?")
        with pytest.raises(ZeroDivisionError):
            fail(producer, "o-2", "insert into orders values (?)")
        with producer.transaction(Message("Orders", b"o-3")):
            pass
        with producer.transaction(Message("Orders", b"o-4")) as transaction:
            transaction.rollback()
        later = producer.send(Message("Orders", b"o-5", delay_s=60))
        producer.recall(later)
        assert sorted(trio.run(read, namesrv, 2)) == [b"o-2", b"o-3"]
