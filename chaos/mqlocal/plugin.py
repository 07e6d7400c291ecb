"""The fixtures for pytest. Installed with dledger, pytest finds them by itself.

`mq_cluster` is a cluster of three replicas for an asynchronous test, under trio (pytest-trio, or
anyio's plugin) or asyncio (pytest-asyncio, or anyio's plugin). It is on virtual time if the test
has pytest-trio's `autojump_clock`, or, with pytest-asyncio, `mq_virtual_time`.
`mq_cluster_in_thread` is one on loopback for any other test. The marker
`@pytest.mark.mq_cluster(replicas=1, groups=2, settings={...})` says what it shall be.

What the cluster's servers warn of is logged, which pytest shows with a test that fails; each line
names the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mqlocal.cluster import LocalCluster
    from mqlocal.on_asyncio import AsyncioCluster
    from mqlocal.threaded import ThreadedCluster

ON_ASYNCIO = "_mq_cluster_on_asyncio"


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker, and pytest-asyncio of what is its own."""
    config.addinivalue_line(
        "markers",
        "mq_cluster(replicas=3, groups=1, settings={}): what the fixture mq_cluster shall be",
    )
    if config.pluginmanager.hasplugin("asyncio"):
        from mqlocal import plugin_asyncio  # noqa: PLC0415 - it needs pytest-asyncio

        config.pluginmanager.register(plugin_asyncio)


def _wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("mq_cluster")
    return {} if marker is None else dict(marker.kwargs)


async def cluster_here(
    request: pytest.FixtureRequest,
) -> AsyncIterator[LocalCluster | AsyncioCluster]:
    """A cluster for the event loop of the test."""
    import trio  # noqa: PLC0415 - pytest loads this module in every run

    if trio.lowlevel.in_trio_task():
        from mqlocal import local_cluster  # noqa: PLC0415 - likewise

        async with local_cluster(**_wanted(request)) as on_trio:
            yield on_trio
        return
    from mqlocal import local_cluster_on_asyncio  # noqa: PLC0415 - likewise

    _check_loop(request)
    async with local_cluster_on_asyncio(**_wanted(request)) as cluster:
        yield cluster


def _check_loop(request: pytest.FixtureRequest) -> None:
    """Raises ConfigError if the test wants virtual time, and its loop has none."""
    import asyncio  # noqa: PLC0415 - likewise

    from dledger.errors import ConfigError  # noqa: PLC0415 - likewise
    from mqlocal import VirtualLoop  # noqa: PLC0415 - likewise

    loop = asyncio.get_running_loop()
    if "mq_virtual_time" in request.fixturenames and not isinstance(loop, VirtualLoop):
        raise ConfigError(
            f"mq_virtual_time: the test's loop is a {type(loop).__name__}. pytest-asyncio 1.4 and "
            "newer makes a VirtualLoop for it; for anyio's plugin let the fixture anyio_backend "
            "return ('asyncio', {'loop_factory': mqlocal.VirtualLoop})"
        )


_mq_cluster_here = pytest.fixture(cluster_here, name="_mq_cluster_here")


@pytest.fixture
def mq_cluster(request: pytest.FixtureRequest) -> object:
    """A cluster for an asynchronous test, which whatever runs that test starts."""
    is_asyncio = request.node.get_closest_marker("asyncio") is not None
    return request.getfixturevalue(ON_ASYNCIO if is_asyncio else "_mq_cluster_here")


@pytest.fixture
def mq_virtual_time() -> None:
    """Virtual time, for a test on asyncio: the test's event loop is chosen by this name."""


@pytest.fixture
def mq_cluster_in_thread(request: pytest.FixtureRequest) -> Iterator[ThreadedCluster]:
    """A cluster in a thread of its own, on loopback."""
    from mqlocal import local_cluster_in_thread  # noqa: PLC0415 - likewise

    with local_cluster_in_thread(**_wanted(request)) as cluster:
        yield cluster
