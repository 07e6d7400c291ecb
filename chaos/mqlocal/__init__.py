"""A whole cluster inside a test: name server, brokers and Raft, in the test's own process.

``cluster``         `local_cluster`: starts one, kills and restarts its servers
``on_asyncio``      `local_cluster_on_asyncio`: the same for tests that run on asyncio
``virtual_loop``    an event loop of asyncio on virtual time, and trio within it
``threaded``        `local_cluster_in_thread`: for programs without an event loop
``layout``          the cluster's servers: names, addresses, configs (pure)
``server``          one server, as a task that can be killed
``clients``         clients that know the cluster's address
``view``            the cluster's names and addresses, from outside its event loop
``places``          reserved addresses, and a folder
``plugin``          the fixtures for pytest, which finds them by itself
``plugin_asyncio``  the same for pytest-asyncio
``fixtures``        the parts that both plugins share
``limits``          the bounds, and the defaults of what a user may set
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.loading import listed, when_used
from dledger.program.extras import require

if TYPE_CHECKING:
    from mqlocal.cluster import LocalCluster, local_cluster
    from mqlocal.on_asyncio import AsyncioCluster, local_cluster_on_asyncio
    from mqlocal.threaded import ThreadedCluster, local_cluster_in_thread
    from mqlocal.virtual_loop import VirtualLoop

__all__ = [
    "AsyncioCluster",
    "LocalCluster",
    "ThreadedCluster",
    "VirtualLoop",
    "local_cluster",
    "local_cluster_in_thread",
    "local_cluster_on_asyncio",
]

_HOMES = {
    "mqlocal.cluster": "LocalCluster local_cluster",
    "mqlocal.on_asyncio": "AsyncioCluster local_cluster_on_asyncio",
    "mqlocal.threaded": "ThreadedCluster local_cluster_in_thread",
    "mqlocal.virtual_loop": "VirtualLoop",
}

_load = when_used(__name__, _HOMES)
__dir__ = listed(__name__)


def __getattr__(name: str) -> object:
    """Load a name when it is first used: pytest loads the plugin in every run, but the brokers only
    for a test that uses them."""
    if name in __all__:
        require("a cluster in a test", "server")
    return _load(name)
