"""A whole cluster inside a test: name server, brokers and Raft, in the test's own process.

``cluster``   `local_cluster`: starts one, kills and restarts its servers
``threaded``  `local_cluster_in_thread`: for programs on asyncio, or without an event loop
``layout``    its servers' names, addresses and configs (pure)
``server``    one server, as a task that can be killed
``places``    addresses that nobody else has, and a folder
``plugin``    the fixtures for pytest, which finds them by itself
``limits``    the bounds, and the defaults of what a user may set
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dledger.program.extras import require

if TYPE_CHECKING:
    from mqlocal.cluster import LocalCluster, local_cluster
    from mqlocal.threaded import ThreadedCluster, local_cluster_in_thread

__all__ = ["LocalCluster", "ThreadedCluster", "local_cluster", "local_cluster_in_thread"]

_HOMES = {
    "mqlocal.cluster": "LocalCluster local_cluster",
    "mqlocal.threaded": "ThreadedCluster local_cluster_in_thread",
}


def __getattr__(name: str) -> object:
    """Load a name when it is first used: pytest loads the plugin in every run, the brokers only
    where there is a test of theirs."""
    for module, names in _HOMES.items():
        if name in names.split():
            require("a cluster in a test", "server")
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'mqlocal' has no attribute {name!r}")
