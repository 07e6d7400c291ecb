"""Failpoints are all passed, and a node that ends at one comes back to what the others hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
import trio
from clusters import new_cluster

from dledger.errors import DledgerError
from dledger.failpoints import PLACES, By, Place
from mqchaos.cluster.cluster import Cluster
from mqchaos.faults.failpoints.orders import note_places, reached
from mqchaos.faults.fault import fault_of
from mqchaos.faults.kinds import BAD_SYNC, CUT_CLIENTS, FAILPOINT_HOLD, FAILPOINT_KILL
from mqchaos.faults.targets import Target
from mqchaos.limits import PROVOKED_S
from mqclient import Consumer, Message, Producer

from .levels import level

TOPIC = "Lines"
SAMPLE = ("disk.torn-write", "recovery.dropped", "log.cut-marked")
SEGMENT_BYTES = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three replicas that take orders, with short logs, behind a proxy."""
    logs = {"segment_bytes": SEGMENT_BYTES, "retain_bytes": 4 * SEGMENT_BYTES}
    folder = tmp_path_factory.mktemp("places")
    with new_cluster(folder, network=True, failpoints=True, **logs).running() as cluster:
        yield cluster


async def send(cluster: Cluster) -> None:
    """Send and read for ever, as applications do."""
    address = cluster.layout.namesrv_addr
    async with (
        Producer(address, "Filling", timeout_s=60.0) as producer,
        Consumer(address, group="Reading", subscriptions={TOPIC: "*"}) as consumer,
    ):
        while True:
            with suppress(DledgerError):
                for _ in range(20):
                    await producer.send_soon(Message(TOPIC, bytes(500)))
                await consumer.poll(max_messages=100, timeout_s=0.02)
                await consumer.commit()


def strike(cluster: Cluster, place: Place, kind: str) -> None:
    """Make a node end at a place, or be held there, and come back."""

    async def run() -> None:
        target = Target.LEADER if place.by is By.LEADER else Target.FOLLOWER
        fault = fault_of(kind, place.name)
        async with trio.open_nursery() as nursery:
            hurt = await level(cluster, target)
            nursery.start_soon(send, cluster)
            assert fault.why_not(cluster, hurt) is None

            try:
                await fault.inject(cluster, hurt)
                assert await fault.took_effect(cluster, hurt)
            finally:
                await fault.heal(cluster, hurt)
            assert not await fault.took_effect(cluster, hurt)
            await level(cluster, target)
            nursery.cancel_scope.cancel()

    trio.run(run)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_node_that_ends_there_comes_back(cluster: Cluster, name: str) -> None:
    """A node that ends at a place comes back level with the others."""
    strike(cluster, PLACES[name], FAILPOINT_KILL.name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PLACES if name not in SAMPLE])
def test_a_node_that_ends_anywhere_comes_back(cluster: Cluster, name: str) -> None:
    """A node that ends at any other place comes back level, too."""
    strike(cluster, PLACES[name], FAILPOINT_KILL.name)


@pytest.mark.parametrize(
    "name", ["batch.applied", pytest.param("disk.sync", marks=pytest.mark.long)]
)
def test_a_node_that_is_held_goes_on(cluster: Cluster, name: str) -> None:
    """A node that is held, in its loop or in a thread of its own, goes on."""
    strike(cluster, PLACES[name], FAILPOINT_HOLD.name)


def test_a_fault_that_another_one_keeps_from_showing_is_soon_given_up(cluster: Cluster) -> None:
    """A fault that another one hides is given up soon: no write reaches a follower's sync.

    No client reaches the leader, so nothing is written, and a run must not hold both for long.
    """

    async def run() -> float:
        (leader,), (follower,) = [
            await level(cluster, role) for role in (Target.LEADER, Target.FOLLOWER)
        ]
        cut, bad_sync = fault_of(CUT_CLIENTS.name, ""), fault_of(BAD_SYNC.name, "")
        cluster.provoked_s = 1.0
        try:
            await cut.inject(cluster, (leader,))
            began_s = trio.current_time()
            await bad_sync.inject(cluster, (follower,))
            took_s = trio.current_time() - began_s
            assert not await bad_sync.took_effect(cluster, (follower,))
        finally:
            cluster.provoked_s = PROVOKED_S
            await bad_sync.heal(cluster, (follower,))
            await cut.heal(cluster, (leader,))
        await level(cluster)
        return took_s

    assert 1.0 <= trio.run(run) < PROVOKED_S / 4


def test_what_sends_come_by_is_noted(cluster: Cluster) -> None:
    """Places of a leader and a follower are noted within half a minute of load."""
    expected = {place.name for place in PLACES.values() if place.when.name == "LOAD"}
    expected -= {"disk.torn-write"}
    nodes = cluster.layout.nodes

    def missing() -> set[str]:
        return expected - {told.place for node in nodes for told in reached(cluster, node.name)}

    async def run() -> None:
        for node in nodes:
            await note_places(cluster, node.name)
        await level(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, cluster)
            with trio.move_on_after(30):
                while missing():  # noqa: ASYNC110 - processes' files
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    trio.run(run)
    assert missing() == set()
