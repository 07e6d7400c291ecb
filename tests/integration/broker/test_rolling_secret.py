"""The cluster's secret is replaced in real processes, while a leader dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from clusters import new_cluster

from dledger.files import replace
from dledger.limits import SECRET_LOOK_S
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import Probe
from mqclient import Admin, Consumer, Message, Producer

TOPIC, BROKER = "Orders", "broker-a"
PASSWORD = "-".join(("a", "long", "password"))
NEW = b"a-new-secret-of-this-cluster\n"
PATIENCE_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A running cluster with a secret."""
    with new_cluster(tmp_path).running() as made:
        yield made


async def until(cluster: Cluster, said: str, times: int, *names: str) -> None:
    """Wait until each of these servers has logged something so often."""
    with trio.fail_after(PATIENCE_S):
        for name in names:
            while cluster.log(name).read_text().count(said) < times:  # noqa: ASYNC110
                await trio.sleep(SECRET_LOOK_S / 10)


async def test_no_send_is_lost_while_a_leader_dies_and_the_secret_rolls(cluster: Cluster) -> None:
    """Sends go on while the secret rolls: old, both, both with the new one first, new.

    Each send is taken, a user's too, and a member that is away keeps the old secret valid.
    """
    file = cluster.secret_file
    assert file is not None
    old, names = file.read_bytes(), [*cluster.names]
    address = cluster.layout.namesrv_addr
    async with cluster.pool() as pool, Admin(address, secret_file=file) as admin:
        probe = Probe(cluster, pool)
        await probe.wait_until_serving()
        await admin.users.create("shop", PASSWORD, super_user=True)
        await admin.settings.update_broker_config("authorizationMode", "enforce")
        acknowledged, ended = list[bytes](), trio.Event()

        async def send() -> None:
            async with Producer(
                address, "PG", timeout_s=PATIENCE_S, user="shop", secret=PASSWORD
            ) as producer:
                while not ended.is_set():
                    body = b"%d" % len(acknowledged)
                    await producer.send(Message(TOPIC, body))
                    acknowledged.append(body)
                    await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            replace(file, NEW)
            await until(cluster, "secrets not taken over", 1, *names)
            replace(file, old + b"\n" + NEW)
            await until(cluster, "secrets taken over", 1, *names)
            leader = (await probe.wait_for_leader(BROKER, PATIENCE_S)).node.name
            cluster.kill(leader)
            replace(file, NEW + b"\n" + old)
            others = [each.name for each in cluster.layout.nodes if each.name != leader]
            await until(cluster, "secrets not taken over", 2, *others)
            sent = len(acknowledged)
            while len(acknowledged) < sent + 10:  # noqa: ASYNC110
                await trio.sleep(0.05)
            cluster.start([leader])
            await until(cluster, "secrets taken over", 2, *others)
            await until(cluster, "password wrapped anew", 1, await _leading(probe))
            replace(file, NEW)
            await until(cluster, "secrets taken over", 3, *others)
            await probe.wait_until_level(BROKER)
            assert [user.name for user in await admin.users.list()] == ["shop"]
            sent = len(acknowledged)
            while len(acknowledged) < sent + 10:  # noqa: ASYNC110
                await trio.sleep(0.05)
            ended.set()
        async with Consumer(address, "G", {TOPIC: "*"}, user="shop", secret=PASSWORD) as consumer:
            read = set[bytes]()
            with trio.fail_after(PATIENCE_S):
                while len(read) < len(acknowledged):
                    read |= {bytes(each.body) for each in await consumer.poll(timeout_s=1)}
        assert read == set(acknowledged)
    with cluster.log(names[0]).open() as log:
        assert NEW.decode().strip() not in log.read()


async def _leading(probe: Probe) -> str:
    return (await probe.wait_for_leader(BROKER, PATIENCE_S)).node.name
