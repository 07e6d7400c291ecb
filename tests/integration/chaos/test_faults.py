"""Faults on real processes: each takes effect, and can be healed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from clusters import new_cluster

from dledger.errors import DledgerError
from dledger.files import replace as put
from dledger.log.recovery.verify import verify_replica
from mqchaos.cluster.access import enforce
from mqchaos.cluster.cluster import SECRET_FILE, Cluster
from mqchaos.cluster.layout import AUTHORITY
from mqchaos.faults.disk import DISK_FAULTS
from mqchaos.faults.failpoints.clocks import CLOCK_FAULTS
from mqchaos.faults.failpoints.disks import ORDERED_DISKS
from mqchaos.faults.failpoints.orders import give, taken
from mqchaos.faults.failpoints.provoking import filling
from mqchaos.faults.fault import FAULTS, Fault
from mqchaos.faults.kinds import (
    AT_PLACES,
    BLANK_NAMESRV,
    CUT_CLIENTS,
    CUT_NAMESRV,
    DISMISS,
    FULL_DISK,
    JOIN,
    KILL,
    KILL_ALL,
    KILL_MAJORITY,
    KILL_NAMESRV,
    LOSSY,
    NARROW,
    OF_OWN_DISKS,
    OF_PACKETS,
    PARTITION,
    PAUSE,
    RENEW_CERTIFICATES,
    RENEW_SECRET,
    RING,
    SLOW,
    SLOW_CPU,
    STALE,
    STORM,
)
from mqchaos.faults.network import NETWORK_FAULTS
from mqchaos.faults.targets import Target
from mqchaos.limits import EFFECT_S, POLL_S
from mqclient import Admin, Message
from mqclient import Producer as AsyncProducer
from mqclient.blocking import Producer

from .levels import level, replaced

BROKER = "broker-a"
TARGETS = {
    KILL_MAJORITY.name: Target.MAJORITY,
    KILL_ALL.name: Target.ALL,
    STORM.name: Target.ALL,
    KILL_NAMESRV.name: Target.NAMESRVS,
    BLANK_NAMESRV.name: Target.NAMESRVS,
    DISMISS.name: Target.FOLLOWER,
    **{
        kind.name: Target.ALL
        for kind in (CUT_NAMESRV, SLOW, LOSSY, NARROW, RING, RENEW_CERTIFICATES, RENEW_SECRET)
    },
}
OF_NETWORK = {
    fault.kind.name: fault
    for fault in NETWORK_FAULTS
    if fault.kind is not RING and fault.kind.name not in OF_PACKETS
}
"""Three nodes in a ring hear each other all; and a proxy knows no packets."""
OF_DISKS = {fault.kind.name: fault for fault in DISK_FAULTS if fault.kind is not STALE}
OF_ORDERS = {fault.kind.name: fault for fault in (*ORDERED_DISKS, *CLOCK_FAULTS)}
RENEWED = (RENEW_CERTIFICATES.name, RENEW_SECRET.name)
OTHERS = {
    RING.name,
    *OF_PACKETS,
    *OF_OWN_DISKS,
    *OF_NETWORK,
    *OF_DISKS,
    *OF_ORDERS,
    *AT_PLACES,
    STALE.name,
    *RENEWED,
}
OF_PROCESSES = {name: FAULTS[name] for name in FAULTS if name not in OTHERS}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and three replicas."""
    folder = tmp_path_factory.mktemp("chaos")
    with new_cluster(folder, flush="ASYNC_FLUSH").running() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster behind a proxy."""
    folder = tmp_path_factory.mktemp("chaos")
    with new_cluster(folder, flush="ASYNC_FLUSH", network=True).running() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def obedient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with short segments whose brokers take orders."""
    folder = tmp_path_factory.mktemp("chaos")
    with new_cluster(folder, failpoints=True, segment_bytes=1 << 20).running() as cluster:
        yield cluster


async def checkpoints(cluster: Cluster) -> None:
    """Wait until every replica has written down how far its log went."""
    paths = [cluster.store(node) / "log" / "checkpoint" for node in cluster.layout.nodes]
    with trio.fail_after(30):
        while not all([await trio.Path(path).exists() for path in paths]):  # noqa: ASYNC110
            await trio.sleep(0.05)


async def strike(cluster: Cluster, fault: Fault) -> None:
    """Inject a fault on its targets, a leader among them, and heal it."""
    hurt = await level(cluster, TARGETS.get(fault.kind.name, Target.LEADER))
    assert fault.why_not(cluster, hurt) is None
    assert not await fault.took_effect(cluster, hurt)

    await fault.inject(cluster, hurt)

    assert await fault.took_effect(cluster, hurt)
    if fault.kind.state:
        assert "does not serve" in (fault.why_not(cluster, hurt) or "")
    await fault.heal(cluster, hurt)
    assert not fault.kind.undone or not await fault.took_effect(cluster, hurt)
    await level(cluster)


def test_certificates_and_the_secret_are_renewed_and_nobody_is_refused(tmp_path: Path) -> None:
    """Certificates and the secret are renewed under sends, in a cluster that enforces rights.

    Each look of a server at its files may meet the change. Then clients get in by the new ones, and
    by the old ones no more.
    """
    made = new_cluster(tmp_path, flush="ASYNC_FLUSH", tls=True, users=True)
    old_ca, old_secret = tmp_path / "old.pem", tmp_path / "old.secret"
    put(old_ca, (made.directory / AUTHORITY).read_bytes())
    put(old_secret, (made.directory / SECRET_FILE).read_bytes())

    async def let_in() -> None:
        await level(made)
        async with made.admin() as admin:
            await enforce(made.directory, admin)

    async def look() -> None:
        address = made.layout.namesrv_addr
        async with AsyncProducer(address, "PG", **made.access) as producer:
            await producer.send(Message("Renewed", b"by new certificates"))
        async with made.admin() as admin:
            assert len(await admin.users.list()) == 2
        assert made.refusals() == []
        async with Admin(address, secret_file=made.secret_file, tls=old_ca) as admin:
            with pytest.raises(DledgerError, match="does not trust"):
                await admin.users.list()
        async with Admin(address, secret_file=old_secret, tls=made.tls) as admin:
            with pytest.raises(DledgerError, match="does not know the group's secret"):
                await admin.users.list()

    with made.running():
        trio.run(let_in)
        for name in RENEWED:
            trio.run(strike, made, FAULTS[name])
        trio.run(look)


def test_certificates_are_renewed_where_there_are_some(cluster: Cluster) -> None:
    """Certificates are renewed in a cluster that has some; elsewhere the fault says why not."""
    nodes = cluster.layout.group(BROKER)
    why = FAULTS[RENEW_CERTIFICATES.name].why_not(cluster, nodes)
    assert why == "the servers of this cluster have no certificates; --tls gives them some"


@pytest.mark.parametrize("name", sorted(OF_PROCESSES))
async def test_a_fault_takes_effect_and_is_healed(cluster: Cluster, name: str) -> None:
    """A fault takes effect, is healed, and leaves all nodes level."""
    await strike(cluster, FAULTS[name])


@pytest.mark.parametrize("name", [FULL_DISK.name, "torn-write", "clock-strobe"])
async def test_what_a_process_is_ordered_takes_effect(obedient: Cluster, name: str) -> None:
    """A disk that fails, or a clock that jumps, by order is level with the others again."""
    await strike(obedient, FAULTS[name])


@pytest.mark.parametrize("hindered", [SLOW_CPU.name, PAUSE.name])
async def test_orders_reach_a_process_that_stands_still_at_the_moment(
    obedient: Cluster, hindered: str
) -> None:
    """An order reaches a stopped process, lest a healed disk stays full for ever."""
    hurt, fault = await level(obedient), FAULTS[hindered]
    (name,) = [victim.name for victim in hurt]
    await fault.inject(obedient, hurt)
    for strobe_s in (0.5, 0.0):
        await give(obedient, name, strobe_s=strobe_s)
        if hindered == SLOW_CPU.name:
            assert taken(obedient, name)

    await fault.heal(obedient, hurt)

    with trio.fail_after(EFFECT_S):
        while not taken(obedient, name):  # noqa: ASYNC110 - what a process has written
            await trio.sleep(POLL_S)
    await level(obedient)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(OF_ORDERS))
async def test_whatever_a_process_is_ordered_takes_effect(obedient: Cluster, name: str) -> None:
    """Orders of all kinds for disks and clocks take effect."""
    await strike(obedient, FAULTS[name])


@pytest.mark.long
async def test_an_old_file_is_missed_and_mended(obedient: Cluster) -> None:
    """A replica with an old file misses it, and gets the later entries from the others."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(filling, obedient)
        hurt, fault = await level(obedient), FAULTS[STALE.name]
        await fault.inject(obedient, hurt)
        assert await fault.took_effect(obedient, hurt)
        await fault.heal(obedient, hurt)
        nursery.cancel_scope.cancel()
    await level(obedient)


@pytest.mark.parametrize("name", sorted(OF_DISKS))
def test_a_damaged_disk_is_mended_by_the_group(cluster: Cluster, name: str) -> None:
    """A replica with a damaged disk holds the others' bytes again in the end."""
    trio.run(level, cluster)
    with Producer(cluster.layout.namesrv_addr, "Filling") as producer:
        for number in range(100):
            producer.send(Message("Filling", bytes([number]) * 2000))
    trio.run(checkpoints, cluster)

    trio.run(strike, cluster, OF_DISKS[name])

    found = {node.node: verify_replica(cluster.store(node)) for node in cluster.layout.nodes}
    assert not [
        fault for each in found.values() for fault in each.faults if fault.severity == "damaged"
    ]
    (end,) = {each.last_index for each in found.values()}
    assert end > 100


async def test_a_leader_that_is_cut_off_is_replaced(proxied: Cluster) -> None:
    """A leader that is cut off is replaced without a death, and follows when it is heard again."""
    (leader,) = hurt = await level(proxied)
    fault = OF_NETWORK[PARTITION.name]
    other = next(node for node in proxied.layout.nodes if node != leader)
    await fault.inject(proxied, hurt)
    assert await fault.took_effect(proxied, hurt)
    assert FAULTS[KILL.name].why_not(proxied, (other,)) == "broker-a would lose its majority"
    assert fault.why_not(proxied, (other,)) == "broker-a would lose its majority"
    await replaced(proxied, hurt)
    await fault.heal(proxied, hurt)
    await level(proxied)
    assert fault.why_not(proxied, hurt) is None


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*OF_NETWORK} - {CUT_CLIENTS.name}))
async def test_a_fault_of_the_network_takes_effect_and_is_healed(
    proxied: Cluster, name: str
) -> None:
    """A fault of the network is seen by what the proxy held back, and healed."""
    await strike(proxied, OF_NETWORK[name])


@pytest.mark.parametrize("kind", [KILL, PAUSE], ids=lambda kind: kind.name)
def test_what_a_group_could_not_miss_needs_a_fault_that_says_so(
    cluster: Cluster, kind: object
) -> None:
    """With one node gone, a fault on a second is refused, but for faults of a majority."""
    fault = FAULTS[kind.name]  # type: ignore[attr-defined]
    trio.run(level, cluster)
    first, second, _ = cluster.layout.group(BROKER)

    trio.run(fault.inject, cluster, (first,))

    may = {name for name in OF_PROCESSES if FAULTS[name].why_not(cluster, (second,)) is None}
    namesrvs, others = {KILL_NAMESRV.name, BLANK_NAMESRV.name}, {"transfer", JOIN.name}
    assert may == {KILL_MAJORITY.name, KILL_ALL.name, STORM.name, *namesrvs, *others}
    assert FAULTS[KILL.name].why_not(cluster, (second,)) == "broker-a would lose its majority"
    trio.run(fault.heal, cluster, (first,))
    trio.run(level, cluster)


def test_without_a_proxy_no_link_can_be_cut(cluster: Cluster) -> None:
    """A fault on links says that this cluster has no proxy, instead of doing nothing."""
    (node, *_) = cluster.layout.nodes

    for fault in OF_NETWORK.values():
        assert fault.why_not(cluster, (node,)) == "the links of this cluster pass no proxy"
