"""`local_cluster_in_thread`: a cluster for tests that run on asyncio, or without an event loop.

The cluster has a thread and an event loop of its own, real time, and is on loopback, so every
client reaches it: `mqclient`'s on any event loop, the blocking clients, and stock clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from anyio.from_thread import BlockingPortal, start_blocking_portal

from mqclient.blocking import Admin, Consumer, Producer
from mqclient.blocking.loop import check_thread
from mqlocal import limits
from mqlocal.clients import with_address
from mqlocal.cluster import LocalCluster, local_cluster
from mqlocal.view import ClusterView


class ThreadedCluster(ClusterView):
    """A cluster for any thread, made by :func:`local_cluster_in_thread`. Its calls block.

    `producer`, `consumer` and `admin` make blocking clients of the cluster.
    """

    producer = with_address(Producer)
    consumer = with_address(Consumer)
    admin = with_address(Admin)

    def __init__(self, cluster: LocalCluster, portal: BlockingPortal) -> None:
        super().__init__(cluster)
        self._portal = portal

    def leader(self, group: str | None = None) -> str:
        """The name of a group's leader; waits until there is one."""
        return self._portal.call(self._cluster.leader, group)

    def kill(self, name: str = "leader") -> str:
        """Kill a server, by default the first group's leader. Returns its name."""
        return self._portal.call(self._cluster.kill, name)

    def stop(self, name: str = "leader") -> str:
        """Stop a server in order. Returns its name."""
        return self._portal.call(self._cluster.stop, name)

    def restart(self, name: str) -> None:
        """Start a server that was killed or stopped."""
        self._portal.call(self._cluster.restart, name)


@contextmanager
def local_cluster_in_thread(
    *,
    replicas: int = limits.REPLICAS,
    groups: int = 1,
    settings: Mapping[str, object] | None = None,
) -> Iterator[ThreadedCluster]:
    """Run a cluster until the block ends: see :func:`~mqlocal.cluster.local_cluster`.

    Raises BadInput in a task of trio.
    """
    check_thread("`local_cluster_in_thread`", "`async with local_cluster()`")
    block = local_cluster(replicas=replicas, groups=groups, settings=settings)
    with (
        start_blocking_portal("trio") as portal,
        portal.wrap_async_context_manager(block) as cluster,
    ):
        yield ThreadedCluster(cluster, portal)
