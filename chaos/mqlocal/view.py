"""Facts about a cluster that are known outside its event loop, without asking its servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqlocal.cluster import LocalCluster


class ClusterView:
    """Names and addresses of a cluster that runs in another event loop, or beside this one."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        #: The name server's address, for any client.
        self.namesrv_addr = cluster.namesrv_addr
        #: The names of the broker groups, and of all servers.
        self.groups = cluster.groups
        self.servers = cluster.servers

    def address(self, name: str) -> str:
        """The address of a server's port for clients."""
        return self._cluster.address(name)

    def runs(self, name: str) -> bool:
        """Whether a server runs: it was not killed or stopped, or was restarted after that."""
        return self._cluster.runs(name)
