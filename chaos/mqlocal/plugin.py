"""The fixtures for pytest, which finds them by itself where dledger is installed.

`mq_cluster` is a cluster of three replicas for an asynchronous test, under trio (pytest-trio, or
anyio's plugin) or asyncio (pytest-asyncio, or anyio's plugin). It is on virtual time if the test
has pytest-trio's `autojump_clock`, or, with pytest-asyncio, `mq_virtual_time`.
`mq_cluster_in_thread` is a cluster on loopback for any other test. The marker
`@pytest.mark.mq_cluster(replicas=1, groups=2, settings={...})` sets the cluster's parameters.

Warnings of the cluster's servers are logged, and pytest shows them with a failed test; each line
names the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mqlocal.fixtures import ON_ASYNCIO, cluster_here, wanted

if TYPE_CHECKING:
    from mqlocal.threaded import ThreadedCluster


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker, and load the fixtures for pytest-asyncio where it is installed."""
    config.addinivalue_line(
        "markers",
        "mq_cluster(replicas=3, groups=1, settings={}): what the fixture mq_cluster shall be",
    )
    if config.pluginmanager.hasplugin("asyncio"):
        from mqlocal import plugin_asyncio  # noqa: PLC0415 - it needs pytest-asyncio

        config.pluginmanager.register(plugin_asyncio)


_mq_cluster_here = pytest.fixture(cluster_here, name="_mq_cluster_here")


@pytest.fixture
def mq_cluster(request: pytest.FixtureRequest) -> object:
    """A cluster for an asynchronous test, started by the plugin that runs the test."""
    is_asyncio = request.node.get_closest_marker("asyncio") is not None
    return request.getfixturevalue(ON_ASYNCIO if is_asyncio else "_mq_cluster_here")


@pytest.fixture
def mq_virtual_time() -> None:
    """Virtual time, for a test on asyncio: the test's event loop is chosen by this name."""


@pytest.fixture
def mq_cluster_in_thread(request: pytest.FixtureRequest) -> Iterator[ThreadedCluster]:
    """A cluster in a thread of its own, on loopback."""
    from mqlocal import local_cluster_in_thread  # noqa: PLC0415 - as above

    with local_cluster_in_thread(**wanted(request)) as cluster:
        yield cluster
