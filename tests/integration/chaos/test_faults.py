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
from mqclient.connection.peers import PeerPool

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and three replicas."""
    layout = plan(free_ports(ports_needed(3, 1, 1)), 3, 1, 1, "ASYNC_FLUSH")
    with Cluster.create(tmp_path_factory.mktemp("chaos") / "c", layout).running() as cluster:
        yield cluster


async def level(cluster: Cluster) -> None:
    """Until a leader serves, and all have what it has."""
    async with PeerPool() as pool:
        probe = Probe(cluster, pool)
        await probe.wait_until_serving()
        await probe.wait_until_level("broker-a")


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_takes_effect_and_is_healed(cluster: Cluster, fault: Fault) -> None:
    """Also on the leader; a second node is not available meanwhile; afterwards all are level."""
    trio.run(level, cluster)
    first, second, _ = cluster.layout.group("broker-a")
    assert fault.available(cluster, first)
    assert not fault.took_effect(cluster, first)

    fault.inject(cluster, first)

    assert fault.took_effect(cluster, first)
    for other in FAULTS.values():
        assert not other.available(cluster, first)
        assert not other.available(cluster, second)
    fault.heal(cluster, first)
    assert not fault.took_effect(cluster, first)
    trio.run(level, cluster)
