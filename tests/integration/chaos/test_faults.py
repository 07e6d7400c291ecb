"""Faults on real processes: each takes effect, is seen to, and can be healed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import Probe
from mqchaos.cluster.processes import free_ports
from mqchaos.faults.fault import FAULTS, Fault
from mqchaos.faults.kinds import KILL, KILL_ALL, KILL_MAJORITY, KILL_NAMESRV, PAUSE, STORM
from mqchaos.faults.targets import Target, Victims, victims
from mqclient.connection.peers import PeerPool

pytestmark = pytest.mark.slow

BROKER = "broker-a"
TARGETS = {
    KILL_MAJORITY.name: Target.MAJORITY,
    KILL_ALL.name: Target.ALL,
    STORM.name: Target.ALL,
    KILL_NAMESRV.name: Target.NAMESRVS,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and three replicas."""
    layout = plan(free_ports(ports_needed(3, 1, 1)), 3, 1, 1, "ASYNC_FLUSH")
    with Cluster.create(tmp_path_factory.mktemp("chaos") / "c", layout).running() as cluster:
        yield cluster


async def level(cluster: Cluster, kind: str) -> Victims:
    """Wait until a leader serves and all have what it has; whom a fault of the kind would hurt."""
    async with PeerPool() as pool:
        probe = Probe(cluster, pool)
        await probe.wait_until_serving()
        await probe.wait_until_level(BROKER)
        leader = (await probe.wait_for_leader(BROKER)).node
    return victims(TARGETS.get(kind, Target.LEADER), 0.0, cluster.layout, BROKER, leader)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_takes_effect_and_is_healed(cluster: Cluster, fault: Fault) -> None:
    """On whom it is for, the leader among them; afterwards all are level."""

    async def strike() -> None:
        hurt = await level(cluster, fault.kind.name)
        assert fault.why_not(cluster, hurt) is None
        assert not await fault.took_effect(cluster, hurt)

        await fault.inject(cluster, hurt)

        assert await fault.took_effect(cluster, hurt)
        if fault.kind.undone:
            assert "does not serve" in (fault.why_not(cluster, hurt) or "")
        await fault.heal(cluster, hurt)
        assert not fault.kind.undone or not await fault.took_effect(cluster, hurt)
        await level(cluster, fault.kind.name)

    trio.run(strike)


@pytest.mark.parametrize("kind", [KILL, PAUSE], ids=lambda kind: kind.name)
def test_what_a_group_could_not_miss_needs_a_fault_that_says_so(
    cluster: Cluster, kind: object
) -> None:
    """With one node gone a second is refused to all faults but those of a majority."""
    fault = FAULTS[kind.name]  # type: ignore[attr-defined]
    trio.run(level, cluster, "")
    first, second, _ = cluster.layout.group(BROKER)

    trio.run(fault.inject, cluster, (first,))

    may = {name for name, other in FAULTS.items() if other.why_not(cluster, (second,)) is None}
    assert may == {KILL_MAJORITY.name, KILL_ALL.name, STORM.name, KILL_NAMESRV.name, "transfer"}
    assert FAULTS[KILL.name].why_not(cluster, (second,)) == "broker-a would lose its majority"
    trio.run(fault.heal, cluster, (first,))
    trio.run(level, cluster, "")
